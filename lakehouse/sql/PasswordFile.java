package lakehouse;

import java.nio.charset.StandardCharsets;
import java.nio.file.Paths;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.Base64;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import javax.crypto.SecretKeyFactory;
import javax.crypto.spec.PBEKeySpec;
import javax.security.sasl.AuthenticationException;
import org.apache.hive.service.auth.PasswdAuthenticationProvider;

/**
 * Lets in the users of the file that `lakehouse sql-user` writes: HiveServer2 makes one for each
 * connection, and wants a Java class. `guard.py` compiles it, when an endpoint starts.
 */
public class PasswordFile implements PasswdAuthenticationProvider {
    // Takes as long as a user's would, so that an answer does not tell which names there are.
    private static final String NOBODY = "pbkdf2_sha256$600000$bm9ib2R5$AAAA";

    // A build of gold connects some hundred times, and a hash takes a third of a second of a core:
    // by stored line, a digest of the password that was found right, salted for this process alone.
    private static final Map FOUND_RIGHT = new ConcurrentHashMap();
    private static final byte[] SALT = new byte[32];

    static {
        new SecureRandom().nextBytes(SALT);
    }

    public void Authenticate(String user, String said) throws AuthenticationException {
        Throttle.Attempts attempts = Throttle.of(user);
        synchronized (attempts) {
            attempts.require(user);
            if (!isRightFor(user, decoded(said))) {
                throw attempts.refused(user);
            }
        }
        Throttle.succeeded(user);
    }

    private static boolean isRightFor(String user, String password)
            throws AuthenticationException {
        try {
            String stored = stored(user);
            if (password.isEmpty()) {
                return false;
            }
            if (stored != null && isKnown(stored, password)) {
                return true;
            }
            return isRight(stored == null ? NOBODY : stored, password) && stored != null;
        } catch (Exception error) {
            throw new AuthenticationException("The password file cannot be used", error);
        }
    }

    /** The stored hash of a user's password; null if there is no such user. */
    private static String stored(String user) {
        String line = Access.stored(Paths.get(System.getProperty("lakehouse.sql.users")), user);
        return line == null ? null : line.split(":")[0];
    }

    /** HiveServer2 makes a char of each byte; clients send UTF-8. */
    static String decoded(String said) {
        byte[] bytes = new byte[said.length()];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) said.charAt(i);
        }
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static boolean isKnown(String stored, String password)
            throws GeneralSecurityException {
        byte[] known = (byte[]) FOUND_RIGHT.get(stored);
        return known != null && MessageDigest.isEqual(known, quick(password));
    }

    private static boolean isRight(String stored, String password)
            throws GeneralSecurityException {
        String[] parts = stored.split("\\$");
        byte[] expected = Base64.getDecoder().decode(parts[3]);
        PBEKeySpec spec = new PBEKeySpec(
            password.toCharArray(), parts[2].getBytes(StandardCharsets.UTF_8),
            Integer.parseInt(parts[1]), 256);
        byte[] found =
            SecretKeyFactory.getInstance("PBKDF2WithHmacSHA256").generateSecret(spec).getEncoded();
        boolean right = MessageDigest.isEqual(expected, found);
        if (right) {
            FOUND_RIGHT.put(stored, quick(password));
        }
        return right;
    }

    private static byte[] quick(String password) throws GeneralSecurityException {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        digest.update(SALT);
        return digest.digest(password.getBytes(StandardCharsets.UTF_8));
    }
}
