package lakehouse;

import java.net.Inet6Address;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.text.Normalizer;
import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import javax.security.sasl.AuthenticationException;
import org.apache.thrift.transport.TSocket;
import org.apache.thrift.transport.TTransport;
import org.apache.thrift.transport.TTransportException;
import org.apache.thrift.transport.TTransportFactory;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Slows down who guesses passwords, and logs it. After some wrong passwords, the next attempt is
 * refused without a look at the password, until a time has passed that doubles with each. A refused
 * attempt holds no thread of the server.
 *
 * Wrong passwords are counted by name. An address from which the right password for a name has come
 * before has a count of its own for that name. Otherwise, whoever guesses from elsewhere could lock
 * the user out. A right password does not end the count, or each login of a user would give more
 * guesses to whoever shares his address.
 */
public class Throttle {
    private static final Logger LOG = LoggerFactory.getLogger("lakehouse.sql.login");
    private static final int FREE = 5;
    private static final long LONGEST = 60000;
    private static final long FORGOTTEN = 10 * LONGEST; // no faster than one guess in a pause
    private static final int MOST = 10000;

    private static final Map ATTEMPTS = new ConcurrentHashMap(); // by name, or name and address
    private static final Set USUAL = Collections.synchronizedSet(new LinkedHashSet()); // likewise

    /** Where the connection comes from that this thread lets in. */
    private static final ThreadLocal ADDRESS = new ThreadLocal();

    /** What is counted for an attempt to log in as `user`. */
    static Attempts of(String user) {
        String name = key(user);
        String here = name + "\n" + ADDRESS.get();
        return attempts(USUAL.contains(here) ? here : name);
    }

    private static Attempts attempts(String key) {
        Attempts found = (Attempts) ATTEMPTS.get(key);
        if (found == null) {
            if (ATTEMPTS.size() >= MOST) {
                forget();
            }
            Attempts made = new Attempts();
            found = (Attempts) ATTEMPTS.putIfAbsent(key, made);
            found = found == null ? made : found;
        }
        return found;
    }

    /** An LDAP server takes names for the same that differ in case, blanks or hidden characters. */
    private static String key(String user) {
        String name = new String( // HiveServer2 makes a char of each byte
            user.getBytes(StandardCharsets.ISO_8859_1), StandardCharsets.UTF_8);
        name = name.replaceAll("[\\p{Cc}\\p{Cf}]", "");
        return Normalizer.normalize(name, Normalizer.Form.NFKC).toLowerCase(Locale.ROOT)
            .replaceAll("\\s+", " ").trim();
    }

    /** Notes that the right password for a name has come from the address of this thread. */
    static void succeeded(String user) {
        if (USUAL.add(key(user) + "\n" + ADDRESS.get()) && USUAL.size() > MOST) {
            synchronized (USUAL) {
                Iterator oldest = USUAL.iterator();
                oldest.next();
                oldest.remove();
            }
        }
    }

    /** Forgets what is over, so that made-up names cannot fill the memory. */
    private static synchronized void forget() {
        removeBelow(1);
        if (ATTEMPTS.size() >= MOST) { // rather the names at which few guess than the others
            removeBelow(FREE);
        }
        if (ATTEMPTS.size() >= MOST) {
            ATTEMPTS.clear();
        }
    }

    private static void removeBelow(long wrong) {
        Iterator all = ATTEMPTS.values().iterator();
        while (all.hasNext()) {
            if (((Attempts) all.next()).wrong() < wrong) {
                all.remove();
            }
        }
    }

    /** A name as the log shows it, which cannot forge a line. */
    private static String shown(String user) {
        String printable = user.replaceAll("[^ -~]", "?");
        return printable.length() > 64 ? printable.substring(0, 64) + "..." : printable;
    }

    /**
     * The wrong passwords that count together. Its monitor must be held from `require` until the
     * password has been checked and `refused` called. Otherwise, many attempts at the same moment
     * would all be looked at.
     */
    static class Attempts {
        private volatile long wrong;
        private volatile long last;

        /** Refuses an attempt during a pause. Must come before any look at the password. */
        void require(String user) throws AuthenticationException {
            long wrong = wrong();
            if (wrong >= FREE && System.currentTimeMillis() < last + pause(wrong)) {
                LOG.warn("A login as '{}' is refused for a while, after {} wrong passwords",
                    shown(user), new Long(wrong));
                throw new AuthenticationException("Too many wrong passwords. Try again later");
            }
        }

        AuthenticationException refused(String user) {
            wrong = wrong() + 1;
            last = System.currentTimeMillis();
            LOG.warn("A login as '{}' has failed: wrong user or password", shown(user));
            return new AuthenticationException("Wrong user or password");
        }

        private long wrong() {
            return System.currentTimeMillis() < last + FORGOTTEN ? wrong : 0;
        }

        private static long pause(long wrong) {
            return Math.min(LONGEST, 1000L << Math.min(6, (int) (wrong - FREE)));
        }
    }

    /** Tells `Throttle` the address of a connection before another factory lets its user in. */
    static class Transports extends TTransportFactory {
        private final TTransportFactory letsIn;

        Transports(TTransportFactory letsIn) {
            this.letsIn = letsIn;
        }

        public TTransport getTransport(TTransport connection) throws TTransportException {
            Socket socket = ((TSocket) connection).getSocket();
            ADDRESS.set(network(socket.getInetAddress()));
            try {
                return letsIn.getTransport(connection);
            } finally {
                ADDRESS.remove();
            }
        }

        /** An address; of IPv6 its network, because one machine has all addresses of it. */
        private static String network(InetAddress address) {
            byte[] bytes = address == null ? new byte[0] : address.getAddress();
            return Arrays.toString(
                address instanceof Inet6Address ? Arrays.copyOf(bytes, 8) : bytes);
        }
    }
}
