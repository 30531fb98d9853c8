package lakehouse;

import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import javax.security.sasl.AuthenticationException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Slows down who guesses passwords, and logs it. After some wrong passwords for a name, the next
 * attempt for that name is refused without a look at the password, until a time has passed that
 * doubles with each. A refused attempt holds no thread of the server.
 */
public class Throttle {
    private static final Logger LOG = LoggerFactory.getLogger("lakehouse.sql.login");
    private static final int FREE = 5;
    private static final long LONGEST = 60000;
    private static final int MOST_NAMES = 10000;

    // By name: how many passwords have been wrong since the last right one, and when the last was.
    private static final Map FAILED = new ConcurrentHashMap();

    static void before(String user) throws AuthenticationException {
        long[] failed = (long[]) FAILED.get(user);
        if (failed != null && failed[0] >= FREE
                && System.currentTimeMillis() < failed[1] + pause(failed[0])) {
            LOG.warn("A login as '{}' is refused for a while, after {} wrong passwords",
                shown(user), new Long(failed[0]));
            throw new AuthenticationException("Too many wrong passwords. Try again later");
        }
    }

    static long pause(long failures) {
        return Math.min(LONGEST, 1000L << Math.min(6, (int) (failures - FREE)));
    }

    static AuthenticationException refused(String user) {
        if (FAILED.size() >= MOST_NAMES) {
            forget();
        }
        long[] failed = (long[]) FAILED.get(user);
        long count = failed == null ? 1 : failed[0] + 1;
        FAILED.put(user, new long[] {count, System.currentTimeMillis()});
        LOG.warn("A login as '{}' has failed: wrong user or password", shown(user));
        return new AuthenticationException("Wrong user or password");
    }

    static void succeeded(String user) {
        FAILED.remove(user);
    }

    /** Forgets the names whose pauses are over, so that made-up names cannot fill the memory. */
    private static void forget() {
        long now = System.currentTimeMillis();
        Iterator all = FAILED.entrySet().iterator();
        while (all.hasNext()) {
            long[] failed = (long[]) ((Map.Entry) all.next()).getValue();
            if (failed[1] + LONGEST < now) {
                all.remove();
            }
        }
        if (FAILED.size() >= MOST_NAMES) {
            FAILED.clear();
        }
    }

    /** A name as the log shows it, which cannot forge a line. */
    private static String shown(String user) {
        String printable = user.replaceAll("[^ -~]", "?");
        return printable.length() > 64 ? printable.substring(0, 64) + "..." : printable;
    }
}
