package lakehouse;

import java.io.InputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.security.KeyStore;
import java.security.Principal;
import java.security.PrivateKey;
import java.security.cert.X509Certificate;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLServerSocket;
import javax.net.ssl.X509ExtendedKeyManager;
import org.apache.thrift.transport.TServerSocket;

/** The key and certificate of the SQL endpoint, which can be renewed while it listens. */
public class Tls extends X509ExtendedKeyManager {
    private static final String[] PROTOCOLS = {"TLSv1.3", "TLSv1.2"};

    private volatile X509ExtendedKeyManager current;

    public Tls(String keyStore, String password) throws Exception {
        renew(keyStore, password);
    }

    /** Uses another key and certificate for the connections that begin from now on. */
    public void renew(String keyStore, String password) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        InputStream file = Files.newInputStream(Paths.get(keyStore));
        try {
            store.load(file, password.toCharArray());
        } finally {
            file.close();
        }
        KeyManagerFactory keys =
            KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(store, password.toCharArray());
        current = (X509ExtendedKeyManager) keys.getKeyManagers()[0];
    }

    TServerSocket serverSocket(String host, int port) throws Exception {
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(new KeyManager[] {this}, null, null);
        InetAddress address = host == null || host.isEmpty() ? null : InetAddress.getByName(host);
        SSLServerSocket socket = (SSLServerSocket)
            context.getServerSocketFactory().createServerSocket(port, 0, address);
        socket.setEnabledProtocols(PROTOCOLS);
        return new TServerSocket(socket);
    }

    public String chooseEngineServerAlias(String type, Principal[] issuers, SSLEngine engine) {
        return current.chooseEngineServerAlias(type, issuers, engine);
    }

    public String chooseServerAlias(String type, Principal[] issuers, Socket socket) {
        return current.chooseServerAlias(type, issuers, socket);
    }

    public String[] getServerAliases(String type, Principal[] issuers) {
        return current.getServerAliases(type, issuers);
    }

    public String chooseClientAlias(String[] types, Principal[] issuers, Socket socket) {
        return null;
    }

    public String[] getClientAliases(String type, Principal[] issuers) {
        return null;
    }

    public X509Certificate[] getCertificateChain(String alias) {
        return current.getCertificateChain(alias);
    }

    public PrivateKey getPrivateKey(String alias) {
        return current.getPrivateKey(alias);
    }
}
