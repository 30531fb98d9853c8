package lakehouse;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.Locale;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.SparkSession;

/**
 * What each role of an SQL endpoint may do, and who uses which session. `access.py` writes the
 * policy, `GuardedServer.java` says who opens a session, and `PlanGuard.java` asks what that user
 * may read. A session that nobody has opened through an endpoint with passwords is not restricted:
 * those of the streams and of `lakehouse sql`.
 */
public class Access {
    public static final String OWNER = "owner";

    // By session. The keys are weak, because nothing tells us reliably when Spark drops a session.
    private static final Map USERS = Collections.synchronizedMap(new WeakHashMap());

    /** The user for whom this thread is opening a session. */
    private static final ThreadLocal OPENING = new ThreadLocal();

    // By name of an LDAP user: the role that the groups of the last login gave.
    private static final Map LDAP_ROLES = new ConcurrentHashMap();

    private final Map roles;
    private final Map masks;
    private final Path usersFile;

    /** `usersFile`: the users with their roles, or null if the roles come from LDAP groups. */
    public Access(String policy, String usersFile) throws Exception {
        Map read = (Map) new ObjectMapper().readValue(policy, Map.class);
        this.roles = (Map) read.get("roles");
        this.masks = (Map) read.get("masks");
        this.usersFile = usersFile == null ? null : Paths.get(usersFile);
    }

    /** A user with the role that he has now. Fails if he may not log in. */
    public User user(String name) {
        String line = line(name);
        if (line == null) {
            throw new AccessDenied("The user '" + name + "' may no longer log in");
        }
        return new User(this, name, role(line), line);
    }

    /** Somebody who has not logged in, and is no owner. Only our own code can be him. */
    User withoutLogin(String name, String role) {
        if (!roles.containsKey(role)) {
            throw new AccessDenied("The role '" + role + "' is not known");
        }
        return new User(this, name, role, role);
    }

    /** What the role and the password of a user are read from; null if he may not log in. */
    String line(String name) {
        if (name == null) {
            return null;
        }
        return usersFile == null ? (String) LDAP_ROLES.get(name) : stored(usersFile, name);
    }

    /** The line of a user in the file, without his name; null if there is none. */
    static String stored(Path file, String name) {
        if (!name.matches("[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")) {
            return null;
        }
        try {
            // Read each time, so that whoever is taken out of it is out at once.
            String text = new String(Files.readAllBytes(file), StandardCharsets.UTF_8);
            String[] lines = text.split("\n");
            for (int i = 0; i < lines.length; i++) {
                if (lines[i].startsWith(name + ":")) {
                    return lines[i].substring(name.length() + 1);
                }
            }
            return null;
        } catch (java.io.IOException error) {
            throw new AccessDenied("The file of users cannot be read");
        }
    }

    private String role(String line) {
        // A line without a role was written before there were roles.
        String found = usersFile == null ? line
            : line.indexOf(':') < 0 ? OWNER : line.substring(line.indexOf(':') + 1);
        if (!found.equals(OWNER) && !roles.containsKey(found)) {
            throw new AccessDenied("The role '" + found + "' is not known");
        }
        return found;
    }

    static void loggedIn(String ldapUser, String role) {
        LDAP_ROLES.put(ldapUser, role);
    }

    Map role(User user) {
        return (Map) roles.get(user.role);
    }

    /** What the columns of a table are replaced by, for everyone but owners; null if by nothing. */
    Map masks(String schema, String table) {
        Map found = (Map) masks.get(schema + "." + table);
        return found == null ? (Map) masks.get("*") : found; // of tables that have none of their own
    }

    static void opening(User user) {
        OPENING.set(user);
    }

    static void opened() {
        OPENING.remove();
    }

    /**
     * Called when a session is made: by a user, from a session of a user, or by the lakehouse
     * itself, which is not restricted.
     */
    static void begin(SparkSession session) {
        User user = (User) OPENING.get();
        if (user == null && SparkSession.getActiveSession().isDefined()) {
            user = of((SparkSession) SparkSession.getActiveSession().get());
        }
        if (user != null) {
            USERS.put(session, user);
        }
    }

    /** The user of a session; null if it is the lakehouse's own. */
    static User of(SparkSession session) {
        return (User) USERS.get(session);
    }

    /** A user who has logged in, with the role that he had then. */
    public static class User {
        public final Access access;
        public final String name;
        public final String role;
        private final String line;

        User(Access access, String name, String role, String line) {
            this.access = access;
            this.name = name;
            this.role = role;
            this.line = line;
        }

        boolean isOwner() {
            return role.equals(OWNER);
        }

        /** Whether the user still has the password and the role with which he logged in. */
        boolean isCurrent() {
            return line.equals(access.line(name));
        }

        AccessDenied denied(String what) {
            return new AccessDenied("The role '" + role + "' may not " + what);
        }

        /** Whether the user may know that a schema exists. */
        boolean seesSchema(String schema) {
            return isOwner() || schema.equals("default") || tables(schema) != null;
        }

        boolean seesTable(String schema, String table) {
            if (isOwner()) {
                return true;
            }
            Collection found = tables(schema);
            return found != null && (found.contains("*") || found.contains(table));
        }

        /** Checks that the user may read a table or view, with the names as Spark has them. */
        void requireTable(String schema, String table) {
            // Spark takes a name with other characters for the path of a file.
            if (!isOwner() && !table.matches("[\\w -]+")
                    || !seesTable(lower(schema), lower(table))) {
                throw denied("read " + schema + "." + table);
            }
        }

        void requireSchema(String schema) {
            if (!seesSchema(lower(schema))) {
                throw denied("see the schema " + schema);
            }
        }

        Map masks(String schema, String table) {
            return isOwner() ? null : access.masks(lower(schema), lower(table));
        }

        /** The schemas that the user may know of. */
        Collection visibleSchemas() {
            Collection found = new HashSet(((Map) access.role(this).get("tables")).keySet());
            found.add("default");
            return found;
        }

        Collection tables(String schema) {
            return (Collection) ((Map) access.role(this).get("tables")).get(schema);
        }

        /** The most rows that a result with so many columns may have; 0 if any number. */
        long mostRows(int columns) {
            long rows = limit("rows");
            long values = limit("values");
            if (values == 0) {
                return rows;
            }
            long most = Math.max(1, values / Math.max(1, columns));
            return rows == 0 ? most : Math.min(rows, most);
        }

        /** A limit of the role; 0 if there is none. */
        long limit(String name) {
            Number found = isOwner() ? null : (Number) access.role(this).get(name);
            return found == null ? 0 : found.longValue();
        }
    }

    static String lower(String name) {
        return name.toLowerCase(Locale.ROOT);
    }

    /** A statement or a call that the role of its user does not allow. */
    public static class AccessDenied extends RuntimeException {
        AccessDenied(String message) {
            super(message);
        }
    }
}
