package lakehouse;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.classic.SparkSession$;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.StructField;
import scala.Option;

/**
 * Runs statements of the console in the running Spark, each in a session of its own with the rights
 * of a reader. It knows no other role, whatever the SQL endpoint asks of its users, so there is no
 * login and nothing that could be stolen. `reader.py` compiles it for the first statement.
 *
 * The sessions have extensions of their own, so that sessions of streams and owners stay as they
 * are.
 */
public class ReaderQuery {
    private static final String USER = "console";
    private static final String ROLE = "reader";
    private static final int LONGEST_CELL = 10000; // characters
    private static final int LONGEST_RESULT = 4000000;
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Map running = new HashMap(); // by id: the thread
    private final Set cancelled = new HashSet();
    private org.apache.spark.sql.classic.SparkSession spark;
    private SparkSessionExtensions extensions;
    private Audit audit;

    /** `notes`: the audit of the endpoint, or null if it keeps none. */
    public void prepare(org.apache.spark.sql.classic.SparkSession parent, Audit notes) {
        spark = parent;
        extensions = SparkSession$.MODULE$.applyAndLoadExtensions(parent.sparkContext());
        PlanGuard.inject(extensions);
        audit = notes;
    }

    /**
     * Runs a statement, and returns a JSON object: `names`, `types`, `rows` and `is_cut`; or
     * `error`, `kind` and `is_cancelled`. `most`: the most rows.
     */
    public String run(String policy, String id, String statement, int most, String address)
            throws Exception {
        Map found = new HashMap();
        Access.User user = new Access(policy, null).withoutLogin(USER, ROLE);
        SparkContext context = spark.sparkContext();
        long begun = System.currentTimeMillis();
        String message = null;
        try {
            begin(id);
            context.setJobGroup(id, "A statement of the console", true);
            context.setLocalProperty("spark.scheduler.pool", user.role);
            Dataset result = open(user).sql(statement);
            long allowed = user.mostRows(result.columns().length);
            collect(result, allowed == 0 ? most : (int) Math.min(most, allowed), found);
        } catch (Throwable error) {
            message = String.valueOf(error); // with its class, by which the audit knows a refusal
            found.clear();
            found.put("kind", error.getClass().getSimpleName());
            found.put("error", error instanceof AnalysisException
                ? ((AnalysisException) error).getSimpleMessage() : error.getMessage());
        }
        context.clearJobGroup();
        context.setLocalProperty("spark.scheduler.pool", null);
        found.put("is_cancelled", Boolean.valueOf(end(id)));
        if (audit != null) {
            List rows = (List) found.get("rows");
            audit.ended(user, statement, begun, address, message, rows == null ? 0 : rows.size());
        }
        return JSON.writeValueAsString(found);
    }

    /** Cancels a statement that has not ended, whatever it is doing. */
    public synchronized void cancel(String id) {
        Thread thread = (Thread) running.get(id);
        cancelled.add(id);
        if (thread != null) {
            spark.sparkContext().cancelJobGroupAndFutureJobs(id);
            thread.interrupt(); // if it is planning
        }
    }

    private synchronized void begin(String id) throws InterruptedException {
        if (cancelled.contains(id)) {
            throw new InterruptedException();
        }
        running.put(id, Thread.currentThread());
    }

    /** Notes the end of a statement. Returns whether it has been cancelled. */
    private synchronized boolean end(String id) {
        running.remove(id);
        Thread.interrupted(); // the thread is used for other calls
        return cancelled.remove(id);
    }

    private SparkSession open(Access.User user) {
        Access.opening(user);
        org.apache.spark.sql.classic.SparkSession session;
        try {
            session = new org.apache.spark.sql.classic.SparkSession(spark.sparkContext(),
                Option.apply(spark.sharedState()), Option.empty(), extensions,
                scala.collection.immutable.Map$.MODULE$.empty(),
                scala.collection.immutable.Map$.MODULE$.empty());
            session.sessionState().sqlParser(); // which makes the guard note the user
        } finally {
            Access.opened();
        }
        if (Access.of(session) != user) {
            throw new IllegalStateException("A session has been opened without its user");
        }
        session.conf().set("spark.sql.variable.substitute", "false");
        return session;
    }

    private static void collect(Dataset result, int most, Map found) {
        StructField[] fields = result.schema().fields();
        List names = new ArrayList();
        List types = new ArrayList();
        String[] numbered = new String[fields.length]; // names may be the same
        Column[] texts = new Column[fields.length];
        for (int i = 0; i < fields.length; i++) {
            names.add(fields[i].name());
            types.add(fields[i].dataType().simpleString());
            numbered[i] = "c" + i;
            Column column = functions.col(numbered[i]);
            Column text = fields[i].dataType() instanceof BinaryType
                ? functions.hex(column) : column.cast("string");
            texts[i] = text.substr(1, LONGEST_CELL + 1);
        }
        List rows = new ArrayList();
        boolean isCut = false;
        long size = 0;
        Iterator all = fields.length == 0 ? new ArrayList().iterator()
            : result.toDF(numbered).select(texts).limit(most + 1).collectAsList().iterator();
        while (all.hasNext() && !isCut) {
            Row row = (Row) all.next();
            List cells = new ArrayList();
            for (int i = 0; i < fields.length; i++) {
                String cell = row.getString(i);
                size += cell == null ? 4 : cell.length();
                cells.add(cell);
            }
            isCut = rows.size() == most || size > LONGEST_RESULT;
            if (!isCut) {
                rows.add(cells);
            }
        }
        found.put("names", names);
        found.put("types", types);
        found.put("rows", rows);
        found.put("is_cut", Boolean.valueOf(isCut));
        found.put("longest", new Integer(LONGEST_CELL));
    }
}
