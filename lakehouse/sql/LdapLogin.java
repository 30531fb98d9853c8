package lakehouse;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.HashSet;
import java.util.Hashtable;
import java.util.Iterator;
import java.util.Map;
import java.util.Set;
import javax.naming.Context;
import javax.naming.NamingEnumeration;
import javax.naming.NamingException;
import javax.naming.directory.Attribute;
import javax.naming.directory.InitialDirContext;
import javax.naming.directory.SearchControls;
import javax.naming.directory.SearchResult;
import javax.naming.ldap.LdapName;
import javax.naming.ldap.Rdn;
import javax.security.sasl.AuthenticationException;
import org.apache.hive.service.auth.PasswdAuthenticationProvider;

/**
 * Lets in the users of an LDAP server, with the role that their groups give. HiveServer2 makes one
 * for each connection. `guard.py` compiles and configures it.
 */
public class LdapLogin implements PasswdAuthenticationProvider {
    private static final String[] RANKS = {"reader", "analyst", "owner"};
    private static final String TIMEOUT = "10000";

    private static volatile String url;
    private static volatile String pattern;
    private static volatile String groupBase;
    private static volatile Map roles;

    /** `groupRoles`: JSON, roles by name of a group; empty if everyone is an owner. */
    public static void configure(String ldapUrl, String userPattern, String base, String groupRoles)
            throws Exception {
        url = ldapUrl;
        pattern = userPattern;
        groupBase = base;
        roles = (Map) new ObjectMapper().readValue(groupRoles, Map.class);
    }

    public void Authenticate(String user, String said) throws AuthenticationException {
        Throttle.Attempts attempts = Throttle.of(user);
        synchronized (attempts) {
            attempts.require(user);
            String role = roleFor(PasswordFile.decoded(user), PasswordFile.decoded(said));
            if (role == null) {
                throw attempts.refused(user);
            }
            Access.loggedIn(user, role);
        }
        Throttle.succeeded(user);
    }

    /** The role of a user; null if he may not log in, or not with this password. */
    private static String roleFor(String name, String password) throws AuthenticationException {
        if (password.isEmpty() || name.isEmpty()) { // the server would take it for nobody
            return null;
        }
        try {
            InitialDirContext server = connect(principal(name), password);
            try {
                return roles.isEmpty() ? Access.OWNER : role(server, name);
            } finally {
                server.close();
            }
        } catch (javax.naming.AuthenticationException wrong) {
            return null;
        } catch (NamingException error) {
            throw new AuthenticationException("The LDAP server cannot be asked", error);
        }
    }

    private static InitialDirContext connect(String principal, String password)
            throws NamingException {
        Hashtable how = new Hashtable();
        how.put(Context.INITIAL_CONTEXT_FACTORY, "com.sun.jndi.ldap.LdapCtxFactory");
        how.put(Context.PROVIDER_URL, url);
        how.put(Context.SECURITY_AUTHENTICATION, "simple");
        how.put(Context.SECURITY_PRINCIPAL, principal);
        how.put(Context.SECURITY_CREDENTIALS, password);
        how.put("com.sun.jndi.ldap.connect.timeout", TIMEOUT);
        how.put("com.sun.jndi.ldap.read.timeout", TIMEOUT);
        return new InitialDirContext(how);
    }

    private static boolean isDomain() {
        return pattern.startsWith("%s@");
    }

    private static String principal(String name) {
        return pattern.replace("%s", isDomain() ? name : Rdn.escapeValue(name));
    }

    private static String role(InitialDirContext server, String name) throws NamingException {
        Set groups = groups(server, name);
        int best = -1;
        Iterator names = groups.iterator();
        while (names.hasNext()) {
            String role = roleOf(new LdapName((String) names.next()));
            for (int rank = 0; rank < RANKS.length; rank++) {
                best = RANKS[rank].equals(role) ? Math.max(best, rank) : best;
            }
        }
        return best < 0 ? null : RANKS[best];
    }

    /** The role of a group, which the setting names by its whole name or by its first part. */
    private static String roleOf(LdapName group) throws NamingException {
        String first = String.valueOf(group.getRdn(group.size() - 1).getValue());
        Iterator all = roles.entrySet().iterator();
        while (all.hasNext()) {
            Map.Entry each = (Map.Entry) all.next();
            String named = (String) each.getKey();
            boolean isWhole = named.indexOf('=') >= 0;
            if (isWhole ? new LdapName(named).equals(group) : named.equalsIgnoreCase(first)) {
                return (String) each.getValue();
            }
        }
        return null;
    }

    private static Set groups(InitialDirContext server, String name) throws NamingException {
        Set found = new HashSet();
        String entry = principal(name);
        SearchControls below = new SearchControls();
        below.setSearchScope(SearchControls.SUBTREE_SCOPE);
        below.setReturningAttributes(new String[] {"memberOf"});
        if (isDomain()) {
            String domain = pattern.substring(3);
            NamingEnumeration people = server.search("dc=" + domain.replace(".", ",dc="),
                "(userPrincipalName={0})", new Object[] {entry}, below);
            while (people.hasMore()) {
                SearchResult person = (SearchResult) people.next();
                entry = person.getNameInNamespace();
                addAll(found, person.getAttributes().get("memberOf"));
            }
        } else {
            addAll(found, server.getAttributes(new LdapName(entry), new String[] {"memberOf"})
                .get("memberOf"));
        }
        if (groupBase != null) {
            NamingEnumeration groups = server.search(groupBase,
                "(|(member={0})(uniqueMember={0}))", new Object[] {entry}, below);
            while (groups.hasMore()) {
                found.add(((SearchResult) groups.next()).getNameInNamespace());
            }
        }
        return found;
    }

    private static void addAll(Set found, Attribute values) throws NamingException {
        for (int i = 0; values != null && i < values.size(); i++) {
            found.add(String.valueOf(values.get(i)));
        }
    }
}
