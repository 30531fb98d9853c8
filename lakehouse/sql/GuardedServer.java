package lakehouse;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.ReentrantLock;
import java.util.regex.Pattern;
import org.apache.hadoop.hive.common.ServerUtils;
import org.apache.hadoop.hive.common.auth.HiveAuthUtils;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hive.service.auth.HiveAuthFactory;
import org.apache.hive.service.auth.TSetIpAddressProcessor;
import org.apache.hive.service.cli.HiveSQLException;
import org.apache.hive.service.cli.OperationHandle;
import org.apache.hive.service.cli.SessionHandle;
import org.apache.hive.service.cli.operation.ExecuteStatementOperation;
import org.apache.hive.service.cli.operation.GetColumnsOperation;
import org.apache.hive.service.cli.operation.GetFunctionsOperation;
import org.apache.hive.service.cli.operation.GetSchemasOperation;
import org.apache.hive.service.cli.operation.GetTablesOperation;
import org.apache.hive.service.cli.operation.MetadataOperation;
import org.apache.hive.service.cli.operation.Operation;
import org.apache.hive.service.cli.thrift.ThriftBinaryCLIService;
import org.apache.hive.service.rpc.thrift.TCLIService;
import org.apache.hive.service.rpc.thrift.TColumn;
import org.apache.hive.service.rpc.thrift.TExecuteStatementReq;
import org.apache.hive.service.rpc.thrift.TExecuteStatementResp;
import org.apache.hive.service.rpc.thrift.TFetchResultsResp;
import org.apache.hive.service.rpc.thrift.TGetColumnsReq;
import org.apache.hive.service.rpc.thrift.TGetColumnsResp;
import org.apache.hive.service.rpc.thrift.TGetCrossReferenceReq;
import org.apache.hive.service.rpc.thrift.TGetInfoResp;
import org.apache.hive.service.rpc.thrift.TGetInfoValue;
import org.apache.hive.service.rpc.thrift.TGetPrimaryKeysReq;
import org.apache.hive.service.rpc.thrift.TOpenSessionReq;
import org.apache.hive.service.rpc.thrift.TOpenSessionResp;
import org.apache.hive.service.rpc.thrift.TOperationHandle;
import org.apache.hive.service.rpc.thrift.TRow;
import org.apache.hive.service.rpc.thrift.TRowSet;
import org.apache.hive.service.rpc.thrift.TSessionHandle;
import org.apache.hive.service.rpc.thrift.TStatus;
import org.apache.hive.service.rpc.thrift.TStatusCode;
import org.apache.hive.service.server.ThreadFactoryWithGarbageCleanup;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.hive.HiveUtils$;
import org.apache.spark.sql.hive.client.HiveClientImpl;
import org.apache.spark.sql.hive.thriftserver.HiveThriftServer2;
import org.apache.spark.sql.hive.thriftserver.HiveThriftServer2$;
import org.apache.spark.sql.hive.thriftserver.ReflectionUtils$;
import org.apache.spark.sql.hive.thriftserver.SparkSQLCLIService;
import org.apache.spark.sql.hive.thriftserver.server.SparkSQLOperationManager;
import org.apache.spark.sql.types.StructType;
import org.apache.thrift.TException;
import org.apache.thrift.TProcessor;
import org.apache.thrift.TProcessorFactory;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;
import org.apache.thrift.transport.TTransport;
import scala.collection.immutable.Seq;

/**
 * Spark's Thrift server, for users with roles. Each call of a client passes `Calls`, which knows
 * who has logged in on the connection: a call works only on that user's own sessions and
 * statements, and a session can be opened only for him.
 */
public class GuardedServer {
    private final HiveThriftServer2 server;
    private final Audit audit;
    private final Thread watching;

    private GuardedServer(HiveThriftServer2 server, SparkSQLCLIService cli, Audit audit) {
        this.server = server;
        this.audit = audit;
        this.watching = new Thread(new Watch(cli, audit), "sql-access");
    }

    /**
     * Does what `HiveThriftServer2.startWithSparkSession` does, with our `Service`. `tls`: null to
     * serve plain text.
     */
    public static GuardedServer start(org.apache.spark.sql.classic.SparkSession spark,
            Access access, Tls tls) throws Exception {
        PlanGuard.install(spark);
        HiveThriftServer2.systemExitOnError().set(false);
        HiveClientImpl client = HiveUtils$.MODULE$.newClientForExecution(
            spark.sparkContext().conf(), spark.sessionState().newHadoopConf());
        ServerUtils.cleanUpScratchDir(client.conf());
        HiveThriftServer2 server = new HiveThriftServer2(spark);
        Method listen = HiveThriftServer2$.class.getDeclaredMethod("createListenerAndUI",
            new Class[] {HiveThriftServer2.class, SparkContext.class});
        listen.setAccessible(true);
        listen.invoke(HiveThriftServer2$.MODULE$, new Object[] {server, spark.sparkContext()});
        server.init(client.conf());
        Audit audit = new Audit();
        SparkSQLCLIService cli = replaceService(server, client.conf(), access, audit, tls);
        server.start();
        GuardedServer guarded = new GuardedServer(server, cli, audit);
        guarded.watching.setDaemon(true);
        guarded.watching.start();
        return guarded;
    }

    /** Puts our service in the place of the one that reads from the connections. */
    private static SparkSQLCLIService replaceService(HiveThriftServer2 server,
            HiveConf configuration, Access access, Audit audit, Tls tls) {
        ReflectionUtils$ fields = ReflectionUtils$.MODULE$;
        SparkSQLCLIService cli = (SparkSQLCLIService) fields.getSuperField(server, "cliService");
        List services = (List) fields.getAncestorField(server, 2, "serviceList");
        Object replaced = fields.getSuperField(server, "thriftCLIService");
        Service service = new Service(cli, new Calls(cli, access, audit), tls);
        if (!(replaced instanceof ThriftBinaryCLIService) || !services.remove(replaced)) {
            throw new IllegalStateException("Spark's Thrift server is not as expected");
        }
        service.init(configuration);
        services.add(service);
        fields.setSuperField(server, "thriftCLIService", service);
        return cli;
    }

    public void stop() {
        watching.interrupt();
        server.stop();
        audit.noteClosed(null);
    }

    /** Notes the statements, also those that do not come by a connection. */
    public Audit audit() {
        return audit;
    }

    /** The statements that have ended since the last call, each as a JSON object. */
    public List endedStatements() {
        return audit.take();
    }

    private static SparkSQLOperationManager operations(SparkSQLCLIService cli) {
        return (SparkSQLOperationManager) cli.getSessionManager().getOperationManager();
    }

    /** Ends the sessions of users who have been removed, or whose role or password has changed. */
    private static class Watch implements Runnable {
        private final SparkSQLCLIService cli;
        private final Audit audit;

        Watch(SparkSQLCLIService cli, Audit audit) {
            this.cli = cli;
            this.audit = audit;
        }

        public void run() {
            try {
                while (true) {
                    Thread.sleep(1000);
                    closeOutdated();
                    audit.noteClosed(operations(cli).handleToOperation());
                }
            } catch (InterruptedException stopped) {
                return;
            }
        }

        private void closeOutdated() {
            Iterator all = new ArrayList(
                operations(cli).sessionToContexts().entrySet()).iterator();
            while (all.hasNext()) {
                Map.Entry each = (Map.Entry) all.next();
                Access.User user = Access.of((SparkSession) each.getValue());
                if (user == null || !user.isCurrent()) {
                    try {
                        cli.closeSession((SessionHandle) each.getKey());
                    } catch (Throwable error) { // closed meanwhile, or tried again
                        ThriftBinaryCLIService.LOG.warn("Cannot close a session", error);
                    }
                }
            }
        }
    }

    /** Serves the calls through `Calls`; otherwise as its superclass. */
    private static class Service extends ThriftBinaryCLIService {
        private final Calls calls;
        private final Tls tls;

        Service(SparkSQLCLIService cli, Calls calls, Tls tls) {
            super(cli);
            this.calls = calls;
            this.tls = tls;
            calls.service = this;
        }

        protected void initializeServer() {
            try {
                ThreadPoolExecutor workers = new ThreadPoolExecutor(minWorkerThreads,
                    maxWorkerThreads, workerKeepAliveTime, TimeUnit.SECONDS,
                    new SynchronousQueue(),
                    new ThreadFactoryWithGarbageCleanup("HiveServer2-Handler-Pool"));
                hiveAuthFactory = new HiveAuthFactory(hiveConf);
                int longest = hiveConf.getIntVar(
                    HiveConf.ConfVars.HIVE_SERVER2_THRIFT_MAX_MESSAGE_SIZE);
                TServerSocket socket = tls == null
                    ? HiveAuthUtils.getServerSocket(hiveHost, portNum)
                    : tls.serverSocket(hiveHost, portNum);
                portNum = socket.getServerSocket().getLocalPort();
                TThreadPoolServer.Args how = new TThreadPoolServer.Args(socket);
                how.processorFactory(new Processors(calls));
                how.transportFactory(
                    new Throttle.Transports(hiveAuthFactory.getAuthTransFactory()));
                how.protocolFactory(new TBinaryProtocol.Factory());
                how.inputProtocolFactory(
                    new TBinaryProtocol.Factory(true, true, longest, longest));
                how.executorService(workers);
                server = new TThreadPoolServer(how);
                server.setServerEventHandler(serverEventHandler);
            } catch (Exception error) {
                throw new org.apache.hive.service.ServiceException(
                    "The SQL endpoint cannot start", error);
            }
        }
    }

    private static class Processors extends TProcessorFactory {
        private final TCLIService.Iface calls;

        Processors(Calls calls) {
            super(null);
            this.calls = (TCLIService.Iface) Proxy.newProxyInstance(
                GuardedServer.class.getClassLoader(), new Class[] {TCLIService.Iface.class}, calls);
        }

        public TProcessor getProcessor(TTransport transport) {
            return new TSetIpAddressProcessor(calls); // which notes the user of the connection
        }
    }

    /** Looks at each call before the server does. Calls that are not listed are refused. */
    private static class Calls implements InvocationHandler {
        private static final Set ON_SESSION = words("CloseSession GetInfo ExecuteStatement "
            + "GetTypeInfo GetCatalogs GetSchemas GetTables GetTableTypes GetColumns GetFunctions "
            + "GetPrimaryKeys GetCrossReference SetClientInfo");
        private static final Set ON_OPERATION = words("GetOperationStatus CancelOperation "
            + "CloseOperation GetResultSetMetadata FetchResults GetQueryId");
        private static final Set OWNERS = words("UploadData DownloadData");
        private static final int LONGEST_STATEMENT = 1000000;
        private static final int MOST_SESSIONS = 100;

        // Statements of readers and analysts that run at a time, so that they leave cores for the
        // streams, also while Spark plans them and if their tasks are long.
        private static final int MOST_AT_ONCE =
            Math.max(1, Runtime.getRuntime().availableProcessors() / 2);
        private static final long LOOK_MILLIS = 20;
        // Statements that read no rows. Clients run them when they connect, or to list tables.
        private static final Pattern WITHOUT_ROWS =
            Pattern.compile("(?is)\\s*(use|set|show|desc|describe|explain)\\b.*");

        // By name of a user: how many calls are about to run a statement.
        private static final Map STARTING = new ConcurrentHashMap();
        // And how many wait until others of him have ended.
        private static final Map WAITING = new ConcurrentHashMap();
        private static final int MOST_WAITING = 16;

        private final SparkSQLCLIService cli;
        private final Access access;
        private final Audit audit;
        private final ReentrantLock queue = new ReentrantLock(true);
        private final AtomicInteger called = new AtomicInteger();  // by others than owners
        TCLIService.Iface service;

        Calls(SparkSQLCLIService cli, Access access, Audit audit) {
            this.cli = cli;
            this.access = access;
            this.audit = audit;
        }

        private static Set words(String text) {
            return new HashSet(Arrays.asList(text.split(" ")));
        }

        public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
            try {
                return allowed(method, arguments);
            } catch (Access.AccessDenied denied) {
                if (arguments.length > 0 && arguments[0] instanceof TExecuteStatementReq) {
                    audit.refused(TSetIpAddressProcessor.getUserName(),
                        ((TExecuteStatementReq) arguments[0]).getStatement());
                }
                return refusal(method, denied.getMessage());
            } catch (HiveSQLException error) {
                return refusal(method, error.getMessage());
            }
        }

        private Object allowed(Method method, Object[] arguments) throws Throwable {
            String name = method.getName();
            if (method.getDeclaringClass() == Object.class) {
                return call(method, arguments);
            }
            Access.User user = access.user(TSetIpAddressProcessor.getUserName());
            Object request = arguments[0];
            if (name.equals("OpenSession")) {
                return open(user, (TOpenSessionReq) request, method);
            } else if (ON_SESSION.contains(name)
                    || (OWNERS.contains(name) && user.isOwner())) {
                requireOwn(user, sessionOf(request));
            } else if (ON_OPERATION.contains(name)) {
                requireOwn(user, operationOf(request).getParentSession().getSessionHandle());
            } else {
                throw user.denied("call " + name);
            }
            if (name.equals("ExecuteStatement")) {
                return execute(user, (TExecuteStatementReq) request, method);
            }
            requireKeys(user, request);
            Object response = call(method, arguments);
            if (name.equals("GetColumns")) {
                addColumns(user, (TGetColumnsReq) request, (TGetColumnsResp) response);
            }
            if (name.equals("FetchResults")) {
                fetched(user, operationOf(request), (TFetchResultsResp) response);
            }
            return response;
        }

        /** Checks that the user may read the tables about whose keys a call asks. */
        private static void requireKeys(Access.User user, Object request) {
            if (request instanceof TGetPrimaryKeysReq) {
                TGetPrimaryKeysReq asked = (TGetPrimaryKeysReq) request;
                user.requireTable(String.valueOf(asked.getSchemaName()),
                    String.valueOf(asked.getTableName()));
            } else if (request instanceof TGetCrossReferenceReq) {
                TGetCrossReferenceReq asked = (TGetCrossReferenceReq) request;
                user.requireTable(String.valueOf(asked.getParentSchemaName()),
                    String.valueOf(asked.getParentTableName()));
                user.requireTable(String.valueOf(asked.getForeignSchemaName()),
                    String.valueOf(asked.getForeignTableName()));
            }
        }

        private void addColumns(Access.User user, TGetColumnsReq request, TGetColumnsResp response)
                throws Exception {
            if (response.getStatus().getStatusCode() == TStatusCode.SUCCESS_STATUS) {
                SparkSession session = sparkSession(sessionOf(request));
                new Columns(user, (org.apache.spark.sql.classic.SparkSession) session)
                    .add(request, operationOf(response));
            }
        }

        private Object execute(Access.User user, TExecuteStatementReq request, Method method)
                throws Throwable {
            String statement = request.getStatement();
            if (!user.isOwner()) {
                restrict(user, request);
            }
            AtomicInteger starting = begin(user);
            try {
                long begun = System.currentTimeMillis();
                TExecuteStatementResp response = (TExecuteStatementResp) (
                    user.isOwner() || WITHOUT_ROWS.matcher(statement).matches()
                    ? call(method, new Object[] {request}) : callInTurn(user, method, request));
                if (response.getStatus().getStatusCode() == TStatusCode.SUCCESS_STATUS) {
                    audit.begun(user, statement, begun, operationOf(response));
                } else {
                    audit.failed(user, statement, begun, response.getStatus().getErrorMessage());
                }
                return response;
            } finally {
                starting.decrementAndGet();
            }
        }

        /** Runs a statement when fewer than `MOST_AT_ONCE` others run. They wait in their order. */
        private Object callInTurn(Access.User user, Method method, TExecuteStatementReq request)
                throws Throwable {
            long end = latestBegin(user);
            boolean isFirst =
                queue.tryLock(end - System.currentTimeMillis(), TimeUnit.MILLISECONDS);
            try {
                while (isFirst && called.get() + running(null) >= MOST_AT_ONCE
                        && System.currentTimeMillis() < end) {
                    Thread.sleep(LOOK_MILLIS);
                }
                if (!isFirst || System.currentTimeMillis() >= end) {
                    throw user.denied("wait for more than " + user.limit("seconds")
                        + " seconds until statements of others have ended");
                }
                called.incrementAndGet();
            } finally {
                if (isFirst) {
                    queue.unlock();
                }
            }
            try {
                return call(method, new Object[] {request});
            } finally {
                called.decrementAndGet();
            }
        }

        /** Counts a statement of a user, which waits while as many run as he may run at a time. */
        private AtomicInteger begin(Access.User user) throws InterruptedException {
            AtomicInteger starting = count(STARTING, user);
            AtomicInteger waiting = count(WAITING, user);
            long most = user.limit("statements");
            long end = latestBegin(user);
            try {
                boolean mayWait = waiting.incrementAndGet() <= MOST_WAITING;
                while (System.currentTimeMillis() < end) {
                    synchronized (starting) {
                        if (most == 0 || starting.get() + running(user) < most) {
                            starting.incrementAndGet();
                            return starting;
                        }
                    }
                    if (!mayWait) { // each that waits takes a thread
                        throw user.denied("run more than " + most + " statements at a time, while "
                            + MOST_WAITING + " others wait");
                    }
                    Thread.sleep(LOOK_MILLIS);
                }
            } finally {
                waiting.decrementAndGet();
            }
            throw user.denied("run more than " + most + " statements at a time, and those before "
                + "this one have not ended within " + user.limit("seconds") + " seconds");
        }

        private static AtomicInteger count(Map counts, Access.User user) {
            counts.putIfAbsent(user.name, new AtomicInteger());
            return (AtomicInteger) counts.get(user.name);
        }

        /** Until when a statement that is asked for now may wait. */
        private static long latestBegin(Access.User user) {
            long seconds = user.limit("seconds");
            return seconds > 0 ? System.currentTimeMillis() + seconds * 1000 : Long.MAX_VALUE;
        }

        /** How many statements of a user run; without a user, of all but owners. */
        private int running(Access.User user) {
            int count = 0;
            Iterator all =
                new ArrayList(operations(cli).handleToOperation().values()).iterator();
            while (all.hasNext()) {
                Operation each = (Operation) all.next();
                SparkSession session = sparkSession(each.getParentSession().getSessionHandle());
                Access.User opener = session == null ? null : Access.of(session);
                // Those that a call still waits for are counted as starting.
                if (each.shouldRunAsync() && !each.getStatus().getState().isTerminal()
                        && opener != null && (user == null
                            ? !opener.isOwner() : opener.name.equals(user.name))) {
                    count++;
                }
            }
            return count;
        }

        private void fetched(Access.User user, Operation operation, TFetchResultsResp response)
                throws Exception {
            TRowSet rows = response.getResults();
            if (rows == null) {
                return;
            }
            if (!user.isOwner()) {
                new Visible(user, operation).keep(rows);
            }
            if (operation instanceof ExecuteStatementOperation) {
                long end = rows.getStartRowOffset() + size(rows);
                int columns = columns(rows);
                long most = user.mostRows(columns);
                if (most > 0 && end > most) {
                    throw user.denied("read more than " + most + " rows of a result with "
                        + columns + (columns == 1 ? " column" : " columns"));
                }
                audit.fetched(operation.getHandle(), end);
            }
        }

        private static int size(TRowSet rows) throws Exception {
            if (rows.getColumns() == null || rows.getColumnsSize() == 0) {
                return rows.getRowsSize();
            }
            Object column = ((TColumn) rows.getColumns().get(0)).getFieldValue();
            return ((List) column.getClass().getMethod("getValues", new Class[0])
                .invoke(column, new Object[0])).size();
        }

        private static int columns(TRowSet rows) {
            if (rows.getColumnsSize() > 0 || rows.getRowsSize() == 0) {
                return rows.getColumnsSize();
            }
            return ((TRow) rows.getRows().get(0)).getColValsSize();
        }

        private Object call(Method method, Object[] arguments) throws Throwable {
            try {
                return method.invoke(service, arguments);
            } catch (InvocationTargetException error) {
                throw error.getTargetException();
            }
        }

        /** Opens a session whose user Spark's side knows before it is used. */
        private Object open(Access.User user, TOpenSessionReq request, Method method)
                throws Throwable {
            String schema = null;
            if (!user.isOwner()) {
                schema = restrict(user, request);
                if (sessions(user) >= MOST_SESSIONS) {
                    throw user.denied("open more than " + MOST_SESSIONS + " sessions");
                }
            }
            Access.opening(user);
            TOpenSessionResp response;
            try {
                response = (TOpenSessionResp) call(method, new Object[] {request});
            } finally {
                Access.opened();
            }
            if (response.getStatus().getStatusCode() == TStatusCode.SUCCESS_STATUS) {
                SparkSession session = sparkSession(new SessionHandle(response.getSessionHandle()));
                if (session == null || Access.of(session) != user) {
                    throw new IllegalStateException("A session has been opened without its user");
                }
                prepare(user, session, schema);
            }
            return response;
        }

        private int sessions(Access.User user) {
            int count = 0;
            Iterator all =
                new ArrayList(operations(cli).sessionToContexts().values()).iterator();
            while (all.hasNext()) {
                Access.User opener = Access.of((SparkSession) all.next());
                count += opener != null && opener.name.equals(user.name) ? 1 : 0;
            }
            return count;
        }

        private static void prepare(Access.User user, SparkSession session, String schema) {
            if (user.isOwner()) {
                return;
            }
            session.conf().set("spark.sql.variable.substitute", "false");
            // No statement has long tasks on all cores only because of a range.
            session.conf().set("spark.sql.leafNodeDefaultParallelism", "1");
            session.conf().set("spark.sql.thriftserver.scheduler.pool", user.role);
            session.conf().set("spark.sql.thriftServer.queryTimeout",
                user.limit("seconds") + "s");
            if (schema != null) {
                session.catalog().setCurrentDatabase(schema);
            }
        }

        /**
         * Takes out of a request what would set settings, system properties or another user.
         * Returns the schema that it asks for.
         */
        private static String restrict(Access.User user, TOpenSessionReq request) {
            String schema = null;
            Map asked = request.getConfiguration();
            Iterator names = asked == null ? new ArrayList().iterator() : asked.keySet().iterator();
            while (names.hasNext()) {
                String name = (String) names.next();
                if (name.equals("use:database")) {
                    schema = (String) asked.get(name);
                } else if (!name.equals(
                        "set:hiveconf:hive.server2.thrift.resultset.default.fetch.size")) {
                    throw user.denied("open a session with " + name);
                }
            }
            request.setConfiguration(new HashMap());
            if (schema != null) {
                user.requireSchema(schema);
            }
            return schema;
        }

        private static void restrict(Access.User user, TExecuteStatementReq request) {
            if (request.getStatement().length() > LONGEST_STATEMENT) {
                throw user.denied(
                    "run statements of more than " + LONGEST_STATEMENT + " characters");
            }
            if (request.getConfOverlay() != null && !request.getConfOverlay().isEmpty()) {
                throw user.denied("run a statement with settings of its own");
            }
        }

        private void requireOwn(Access.User user, SessionHandle handle) {
            SparkSession session = sparkSession(handle);
            Access.User opener = session == null ? null : Access.of(session);
            if (opener == null || !opener.name.equals(user.name)) {
                throw user.denied("use a session that is not his own");
            }
            if (!opener.isCurrent()) {
                throw new Access.AccessDenied(
                    "The role or the password of '" + user.name + "' has changed. Connect again");
            }
        }

        private SparkSession sparkSession(SessionHandle handle) {
            return (SparkSession) operations(cli).sessionToContexts().get(handle);
        }

        private static SessionHandle sessionOf(Object request) throws Exception {
            Method get = request.getClass().getMethod("getSessionHandle", new Class[0]);
            return new SessionHandle((TSessionHandle) get.invoke(request, new Object[0]));
        }

        private Operation operationOf(Object request) throws Exception {
            Method get = request.getClass().getMethod("getOperationHandle", new Class[0]);
            TOperationHandle handle = (TOperationHandle) get.invoke(request, new Object[0]);
            return operations(cli).getOperation(new OperationHandle(handle));
        }

        private static Object refusal(Method method, String message) throws Exception {
            TStatus status = new TStatus(TStatusCode.ERROR_STATUS);
            status.setErrorMessage(message);
            status.setSqlState("42501"); // insufficient privilege
            // No info messages: Hive's JDBC driver fails at a list that is empty.
            Class type = method.getReturnType();
            Object response = type.getDeclaredConstructor(new Class[0]).newInstance(new Object[0]);
            if (response instanceof TGetInfoResp) { // which must have a value to be sent
                ((TGetInfoResp) response).setInfoValue(TGetInfoValue.stringValue(""));
            }
            try {
                type.getMethod("setStatus", new Class[] {TStatus.class})
                    .invoke(response, new Object[] {status});
            } catch (NoSuchMethodException hasNone) {
                throw new TException(message);
            }
            return response;
        }
    }

    /**
     * Adds the columns of Delta tables to an answer of Spark, which knows only those in the catalog.
     * Those of Delta tables are in their logs.
     */
    private static class Columns {
        private final Access.User user;
        private final org.apache.spark.sql.classic.SparkSession session;
        private final SessionCatalog catalog;

        Columns(Access.User user, org.apache.spark.sql.classic.SparkSession session) {
            this.user = user;
            this.session = session;
            this.catalog = session.sessionState().catalog();
        }

        void add(TGetColumnsReq request, Operation answer) throws Exception {
            String schemas = (String) called(MetadataOperation.class, answer,
                "convertSchemaPattern", new Object[] {request.getSchemaName()});
            String tables = (String) called(MetadataOperation.class, answer,
                "convertIdentifierPattern", new Object[] {request.getTableName(), Boolean.TRUE});
            Pattern columns = request.getColumnName() == null ? null
                : Pattern.compile((String) called(MetadataOperation.class, answer,
                    "convertIdentifierPattern",
                    new Object[] {request.getColumnName(), Boolean.FALSE}));
            Seq found = catalog.listDatabases(schemas);
            for (int i = 0; i < found.length(); i++) {
                String schema = (String) found.apply(i);
                Seq ids = catalog.listTables(schema, tables, false);
                for (int k = 0; k < ids.length(); k++) {
                    String table = ((TableIdentifier) ids.apply(k)).table();
                    if (user.seesTable(Access.lower(schema), Access.lower(table))) {
                        add(answer, columns, schema, (TableIdentifier) ids.apply(k));
                    }
                }
            }
        }

        private void add(Operation answer, Pattern columns, String schema, TableIdentifier id)
                throws Exception {
            StructType type;
            try {
                CatalogTable known = catalog.getTableMetadata(id);
                if (!known.schema().isEmpty()) {
                    return;
                }
                type = session.table("`" + schema + "`.`" + id.table() + "`").schema();
            } catch (Exception gone) { // dropped meanwhile, or its files are
                ThriftBinaryCLIService.LOG.warn("The columns of " + id + " cannot be listed", gone);
                return;
            }
            called(answer.getClass(), answer, "addToRowSet",
                new Object[] {columns, schema, id.table(), type});
        }

        /** Calls a method that Spark has only for itself. `test_access.py` fails if it is gone. */
        private static Object called(Class type, Object on, String name, Object[] arguments)
                throws Exception {
            Method[] all = type.getDeclaredMethods();
            for (int i = 0; i < all.length; i++) {
                if (all[i].getName().equals(name)) {
                    all[i].setAccessible(true);
                    return all[i].invoke(on, arguments);
                }
            }
            throw new IllegalStateException("Spark's Thrift server has no " + name);
        }
    }

    /** Leaves out of the answers about schemas, tables and functions what a user may not see. */
    private static class Visible {
        private final Access.User user;
        private final int schema;
        private final int table;
        private final boolean isMetadata;

        Visible(Access.User user, Operation operation) {
            this.user = user;
            boolean isOfTables = operation instanceof GetTablesOperation
                || operation instanceof GetColumnsOperation;
            this.isMetadata = isOfTables || operation instanceof GetSchemasOperation
                || operation instanceof GetFunctionsOperation;
            this.schema = operation instanceof GetSchemasOperation ? 0 : 1;
            this.table = isOfTables ? 2 : -1;
        }

        void keep(TRowSet rows) throws Exception {
            if (!isMetadata) {
                return;
            }
            List kept = new ArrayList();
            if (rows.getColumns() != null) {
                keepOfColumns(rows);
                return;
            }
            for (int i = 0; i < rows.getRowsSize(); i++) {
                TRow row = (TRow) rows.getRows().get(i);
                if (sees(cell(row, schema), table < 0 ? null : cell(row, table))) {
                    kept.add(row);
                }
            }
            rows.setRows(kept);
        }

        private static String cell(TRow row, int column) {
            return ((org.apache.hive.service.rpc.thrift.TColumnValue)
                row.getColVals().get(column)).getStringVal().getValue();
        }

        private boolean sees(String schemaName, String tableName) {
            if (schemaName == null || schemaName.isEmpty()) {
                return table < 0; // a function of Spark's own
            }
            return table < 0 ? user.seesSchema(Access.lower(schemaName))
                : user.seesTable(Access.lower(schemaName), Access.lower(tableName));
        }

        private void keepOfColumns(TRowSet rows) throws Exception {
            List schemas = strings(rows, schema);
            List tables = table < 0 ? null : strings(rows, table);
            List kept = new ArrayList();
            for (int i = 0; i < schemas.size(); i++) {
                if (sees((String) schemas.get(i),
                        tables == null ? null : (String) tables.get(i))) {
                    kept.add(new Integer(i));
                }
            }
            for (int i = 0; i < rows.getColumnsSize(); i++) {
                pick(((TColumn) rows.getColumns().get(i)).getFieldValue(), kept);
            }
        }

        private static List strings(TRowSet rows, int column) {
            return ((TColumn) rows.getColumns().get(column)).getStringVal().getValues();
        }

        /** Keeps rows of a column, whatever the type of its values. */
        private static void pick(Object column, List kept) throws Exception {
            Class type = column.getClass();
            List values = (List) type.getMethod("getValues", new Class[0])
                .invoke(column, new Object[0]);
            BitSet isNull = BitSet.valueOf((byte[]) type.getMethod("getNulls", new Class[0])
                .invoke(column, new Object[0]));
            List found = new ArrayList();
            BitSet foundNull = new BitSet();
            for (int i = 0; i < kept.size(); i++) {
                int row = ((Integer) kept.get(i)).intValue();
                found.add(values.get(row));
                foundNull.set(i, isNull.get(row));
            }
            type.getMethod("setValues", new Class[] {List.class})
                .invoke(column, new Object[] {found});
            type.getMethod("setNulls", new Class[] {byte[].class})
                .invoke(column, new Object[] {foundNull.toByteArray()});
        }
    }
}
