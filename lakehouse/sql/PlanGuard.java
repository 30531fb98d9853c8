package lakehouse;

import java.util.Arrays;
import java.util.Collection;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry$;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute$;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableValuedFunction;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.parser.ParameterContext;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedWith;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.catalyst.plans.logical.WithCTE;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.command.ExplainCommand;
import org.apache.spark.sql.execution.command.SetCommand;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.Product;
import scala.Tuple2;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractFunction2;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

/**
 * Holds each statement of a user who is not an owner to what his role may do.
 *
 * It looks twice. The parsed statement may consist only of what is listed here, before Spark
 * resolves a name: resolving already reads files, connects to databases and runs functions. The
 * resolved plan may read only the tables of the role, under whatever name, and reads them below a
 * projection that masks personal fields. What is not listed is refused, so a new release of Spark
 * can add nothing that readers may use.
 */
public class PlanGuard {
    private static final String CATALYST = "org.apache.spark.sql.catalyst.";
    private static final String ANALYSIS = CATALYST + "analysis.";
    private static final String LOGICAL = CATALYST + "plans.logical.";
    private static final String EXPRESSIONS = CATALYST + "expressions.";
    private static final String COMMAND = "org.apache.spark.sql.execution.command.";
    private static final String DELTA = "org.apache.spark.sql.delta.";
    private static final String CATALOG = "spark_catalog";

    /** The nodes of a query, before and after analysis. */
    private static final String QUERY =
        "Aggregate CTERelationDef CTERelationRef Distinct Except Filter Generate GlobalLimit "
        + "Intersect Join LateralJoin LocalLimit LocalRelation Offset OneRowRelation Pivot Project "
        + "Range Repartition RepartitionByExpression Sample Sort SubqueryAlias Union Unpivot Window "
        + "CommandResult DeserializeToObject Expand ResolvedHint UnionLoop UnionLoopRef WithCTE";

    private static final Set PARSED_PLANS = names(new String[] {
        LOGICAL, QUERY,
        EXPRESSIONS, "PipeOperator",
        LOGICAL, "LimitAll UnresolvedHint UnresolvedWith WithWindowDefinition",
        ANALYSIS, "RelationTimeTravel UnresolvedHaving UnresolvedInlineTable UnresolvedRelation "
            + "UnresolvedSubqueryColumnAliases UnresolvedTVFAliases UnresolvedTableValuedFunction "
            + "UnresolvedQualify",
        // Commands, whose names are checked below.
        ANALYSIS, "CurrentNamespace$ UnresolvedNamespace UnresolvedTable UnresolvedTableOrView",
        LOGICAL, "DescribeColumn DescribeRelation SetCatalogAndNamespace ShowColumns "
            + "ShowCreateTable ShowPartitions ShowTableProperties ShowTables ShowTablesExtended "
            + "ShowViews",
        COMMAND, "DescribeQueryCommand ExplainCommand SetCommand SetNamespaceCommand "
            + "ShowCurrentNamespaceCommand ShowNamespacesCommand",
        DELTA + "commands.", "DescribeDeltaDetailCommand DescribeDeltaHistory",
    });

    private static final Set PARSED_EXPRESSIONS = names(new String[] {
        ANALYSIS, "MultiAlias UnresolvedAlias UnresolvedAttribute "
            + "UnresolvedExtractValue UnresolvedFieldName UnresolvedFunction UnresolvedGenerator "
            + "UnresolvedOrdinal UnresolvedPipeAggregateOrdinal UnresolvedRegex UnresolvedStar "
            + "UnresolvedStarExceptOrReplace",
        EXPRESSIONS, "Add Alias And AttributeReference BitwiseAnd BitwiseNot BitwiseOr BitwiseXor "
            + "CaseWhen Cast Coalesce Collate Concat CreateNamedStruct CreateStruct Cube "
            + "CurrentDate CurrentRow$ CurrentTime CurrentTimestamp CurrentUser Divide "
            + "EqualNullSafe EqualTo Exists GreaterThan GreaterThanOrEqual GroupingSets ILike In "
            + "InSubquery IntegralDivide IsNotNull IsNull LambdaFunction LateralSubquery LessThan "
            + "LessThanOrEqual Like LikeAll LikeAny ListQuery Literal LocalTimestamp Lower "
            + "Multiply Not NotLikeAll NotLikeAny Or Overlay PipeExpression RLike Remainder Rollup "
            + "ScalarSubquery SemiStructuredExtract ShiftLeft ShiftRight ShiftRightUnsigned "
            + "SortOrder SpecifiedWindowFrame StringLocate StringTrim StringTrimBoth "
            + "StringTrimLeft StringTrimRight Substring Subtract TimestampAdd TimestampDiff "
            + "UnaryMinus UnaryPositive UnboundedFollowing$ UnboundedPreceding$ "
            + "UnresolvedCollation UnresolvedNamedLambdaVariable UnresolvedWindowExpression "
            + "UnspecifiedFrame$ WindowExpression WindowSpecDefinition",
        EXPRESSIONS + "aggregate.", "AggregateExpression AnyValue First Last",
    });

    /** The groups in Spark's list of functions whose functions only compute. */
    private static final Set GROUPS = words(
        "agg_funcs array_funcs bitwise_funcs collection_funcs conditional_funcs conversion_funcs "
        + "csv_funcs datetime_funcs generator_funcs hash_funcs json_funcs lambda_funcs map_funcs "
        + "math_funcs predicate_funcs sketch_funcs st_funcs string_funcs struct_funcs url_funcs "
        + "variant_funcs vector_funcs window_funcs");

    /** Functions that only compute, from groups whose other functions do more. */
    private static final Set FUNCTIONS = words(
        "assert_true bitmap_bit_position bitmap_bucket_number bitmap_construct_agg bitmap_count "
        + "bitmap_or_agg current_catalog current_database current_schema current_user equal_null "
        + "monotonically_increasing_id raise_error session_user typeof user uuid version "
        + "date_part datepart extract");

    private static final Set TABLE_FUNCTIONS = words(
        "explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer range "
        + "stack variant_explode variant_explode_outer");
    private static final String CHANGES = "table_changes"; // reads a table that a text names

    /** The commands that list tables, of which a role sees its own. */
    private static final Set LISTS = words("ShowTables ShowTablesExtended ShowViews");

    /** The settings that a statement may read and set. None of them widens what a role may do. */
    private static final Set SETTINGS = words(
        "spark.sql.session.timezone spark.sql.ansi.enabled");

    private static final Set ANALYSED_PLANS = names(new String[] {
        LOGICAL, QUERY,
        EXPRESSIONS, "PipeOperator",
        LOGICAL, "DescribeColumn DescribeRelation SetCatalogAndNamespace ShowColumns "
            + "ShowCreateTable ShowPartitions ShowTableProperties ShowTables ShowTablesExtended "
            + "ShowViews View",
        ANALYSIS, "ResolvedNamespace ResolvedPersistentView ResolvedTable",
        COMMAND, "DescribeColumnCommand DescribeQueryCommand DescribeTableCommand ExplainCommand "
            + "SetCommand SetNamespaceCommand ShowColumnsCommand ShowCreateTableCommand "
            + "ShowCurrentNamespaceCommand ShowNamespacesCommand ShowTablePropertiesCommand "
            + "ShowTablesCommand ShowViewsCommand",
        DELTA + "commands.", "DescribeDeltaDetailCommand DescribeDeltaHistoryCommand "
            + "ShowDeltaPartitionsCommand ShowDeltaTableColumnsCommand",
    });

    /** Which files Delta reads for a relation that has been checked: its log and its changes. */
    private static final Set DELTA_FILES = names(new String[] {
        DELTA, "DeltaLogFileIndex",
        DELTA + "files.", "CdcAddFileIndex TahoeChangeFileIndex TahoeRemoveFileIndex",
    });

    /** Expressions of Spark's own that call what a user has named or brought along. */
    private static final Set CALLS = words(
        "CallMethodViaReflection TryReflect ScalaUDF PythonUDF PythonUDAF PythonUDTF PythonFuncExpression "
        + "ApplyFunctionExpression V2Aggregator VariableReference SQLFunctionExpression "
        + "SQLScalarFunction UserDefinedExpression InputFileName InputFileBlockStart "
        + "InputFileBlockLength");

    private static final Map INSTALLED = new WeakHashMap();

    /** Makes the sessions that a Spark session opens from now on be guarded. Idempotent. */
    public static synchronized void install(org.apache.spark.sql.classic.SparkSession session) {
        if (INSTALLED.put(session.extensions(), "") == null) {
            inject(session.extensions());
        }
    }

    /** Guards the sessions that are opened with these extensions, which are not guarded yet. */
    static void inject(SparkSessionExtensions extensions) {
        extensions.injectParser(new ParserBuilder());
        extensions.injectPostHocResolutionRule(new MaskingBuilder());
        extensions.injectCheckRule(new CheckBuilder());
    }

    /** The names of the listed classes, for a test that they exist. */
    public static Collection listed() {
        Set found = new HashSet(PARSED_PLANS);
        found.addAll(PARSED_EXPRESSIONS);
        found.addAll(ANALYSED_PLANS);
        found.addAll(DELTA_FILES);
        return found;
    }

    private static Set words(String text) {
        return new HashSet(Arrays.asList(text.split(" ")));
    }

    private static Set names(String[] packagesAndNames) {
        Set found = new HashSet();
        for (int i = 0; i < packagesAndNames.length; i += 2) {
            String[] each = packagesAndNames[i + 1].split(" ");
            for (int k = 0; k < each.length; k++) {
                found.add(packagesAndNames[i] + each[k]);
            }
        }
        return found;
    }

    private static String shown(Object node) {
        return node.getClass().getSimpleName();
    }

    public static class ParserBuilder extends AbstractFunction2 {
        public Object apply(Object session, Object parser) {
            Access.begin((SparkSession) session);
            return new GuardedParser((SparkSession) session, (ParserInterface) parser);
        }
    }

    public static class MaskingBuilder extends AbstractFunction1 {
        public Object apply(Object session) {
            return new Masking((SparkSession) session);
        }
    }

    public static class CheckBuilder extends AbstractFunction1 {
        public Object apply(Object session) {
            return new Check((SparkSession) session);
        }
    }

    /** Refuses the parsed statements of a role that hold something else than what is listed. */
    public static class GuardedParser implements ParserInterface {
        private final SparkSession session;
        private final ParserInterface parser;

        GuardedParser(SparkSession session, ParserInterface parser) {
            this.session = session;
            this.parser = parser;
        }

        public LogicalPlan parsePlan(String text) throws ParseException {
            return statement(parser.parsePlan(text), text);
        }

        public LogicalPlan parsePlanWithParameters(String text, ParameterContext parameters) throws ParseException {
            return statement(parser.parsePlanWithParameters(text, parameters), text);
        }

        /** The query of a view. Its names are resolved in the schema of the view. */
        public LogicalPlan parseQuery(String text) throws ParseException {
            LogicalPlan plan = parser.parseQuery(text);
            Access.User user = restricted();
            if (user != null) {
                new ParsedCheck(parser, user, null).check(plan);
            }
            return plan;
        }

        public Expression parseExpression(String text) throws ParseException {
            Expression found = parser.parseExpression(text);
            Access.User user = restricted();
            if (user != null) {
                new ParsedCheck(parser, user, null).check(found);
            }
            return found;
        }

        public TableIdentifier parseTableIdentifier(String text) throws ParseException {
            return parser.parseTableIdentifier(text);
        }

        public FunctionIdentifier parseFunctionIdentifier(String text) throws ParseException {
            return parser.parseFunctionIdentifier(text);
        }

        public Seq parseMultipartIdentifier(String text) throws ParseException {
            return parser.parseMultipartIdentifier(text);
        }

        public StructType parseRoutineParam(String text) throws ParseException {
            return parser.parseRoutineParam(text);
        }

        public StructType parseTableSchema(String text) throws ParseException {
            return parser.parseTableSchema(text);
        }

        public DataType parseDataType(String text) throws ParseException {
            return parser.parseDataType(text);
        }

        private Access.User restricted() {
            Access.User user = Access.of(session);
            return user == null || user.isOwner() ? null : user;
        }

        private LogicalPlan statement(LogicalPlan plan, String text) {
            Access.User user = restricted();
            if (user == null) {
                return plan;
            }
            if (text.indexOf("${") >= 0) { // would show variables of the environment, with secrets
                throw user.denied("use ${...} in a statement");
            }
            String current = session.catalog().currentDatabase();
            new ParsedCheck(parser, user, current).check(plan);
            return limited(plan, user, current);
        }

        /** Lists only what the user may see, and returns at most the rows that he may get. */
        private static LogicalPlan limited(LogicalPlan plan, Access.User user, String current) {
            String kind = shown(plan);
            if (kind.equals("ShowNamespacesCommand")) {
                return only(plan, "namespace", user.visibleSchemas());
            }
            if (LISTS.contains(kind)) {
                Object namespace = ((Product) plan).productElement(0);
                Seq parts = shown(namespace).equals("UnresolvedNamespace")
                    ? (Seq) ((Product) namespace).productElement(0) : noNames();
                String schema = parts.isEmpty() ? current : (String) parts.last();
                Collection tables = user.tables(Access.lower(schema));
                return tables != null && tables.contains("*") ? plan
                    : only(plan, kind.equals("ShowViews") ? "viewName" : "tableName", tables);
            }
            long most = user.mostRows(1); // how many columns there are is not known yet
            return most == 0 || plan instanceof Command ? plan : atMost(most, plan);
        }

        /** The rows of a command with certain names in a column. */
        private static LogicalPlan only(LogicalPlan command, String column, Collection names) {
            java.util.ArrayList literals = new java.util.ArrayList();
            Iterator all = names == null ? literals.iterator() : names.iterator();
            while (all.hasNext()) {
                literals.add(text((String) all.next()));
            }
            Expression name = UnresolvedAttribute$.MODULE$.quoted(column);
            return new Filter(new In(name, seq(literals)), command);
        }
    }

    /** Walks through a statement with everything that its nodes hold, whether a child or not. */
    static class ParsedCheck {
        private final ParserInterface parser;
        private final Access.User user;
        private final String current;
        private final Set withNames = new HashSet();
        private boolean isFirst = true;

        /** `current`: the schema of names without one; null in views, where the plan tells. */
        ParsedCheck(ParserInterface parser, Access.User user, String current) {
            this.parser = parser;
            this.user = user;
            this.current = current;
        }

        void check(Object part) {
            if (part instanceof LogicalPlan) {
                plan((LogicalPlan) part);
            } else if (part instanceof Expression) {
                expression((Expression) part);
            } else if (part instanceof scala.collection.Iterable) {
                each(((scala.collection.Iterable) part).iterator());
            } else if (part instanceof Product) {
                each(((Product) part).productIterator());
            } else if (part instanceof scala.Function0 || part instanceof scala.Function1
                    || part instanceof scala.Function2) {
                throw user.denied("run a statement with code in it");
            }
        }

        private void each(scala.collection.Iterator parts) {
            while (parts.hasNext()) {
                check(parts.next());
            }
        }

        private void plan(LogicalPlan plan) {
            if (!PARSED_PLANS.contains(plan.getClass().getName())) {
                throw user.denied("run " + shown(plan));
            }
            if (plan instanceof Command && !isFirst) { // whose rows `limited` could not choose
                throw user.denied("run " + shown(plan) + " within a statement");
            }
            isFirst = isFirst && plan instanceof ExplainCommand;
            if (plan instanceof UnresolvedWith) {
                scala.collection.Iterator all = ((UnresolvedWith) plan).cteRelations().iterator();
                while (all.hasNext()) {
                    withNames.add(Access.lower((String) ((Product) all.next()).productElement(0)));
                }
            } else if (plan instanceof UnresolvedRelation) {
                relation((UnresolvedRelation) plan);
            } else if (plan instanceof UnresolvedTableValuedFunction) {
                tableFunction((UnresolvedTableValuedFunction) plan);
            } else if (plan instanceof SetCommand) {
                setting((SetCommand) plan);
            } else {
                command(plan);
            }
            each(((Product) plan).productIterator());
        }

        private void tableFunction(UnresolvedTableValuedFunction function) {
            String name = single(function.name());
            if (name.equals(CHANGES)) {
                changes(function.functionArgs());
            } else if (!TABLE_FUNCTIONS.contains(name)) {
                throw user.denied("use the table function " + name);
            }
        }

        /** Checks the arguments of `table_changes`, of which Delta computes some by itself. */
        private void changes(Seq arguments) {
            for (int i = 0; i < arguments.length(); i++) {
                if (!(arguments.apply(i) instanceof Literal)) {
                    throw user.denied("use table_changes with computed arguments");
                }
            }
            Object table = arguments.isEmpty() ? null : ((Literal) arguments.apply(0)).value();
            if (!(table instanceof UTF8String)) {
                throw user.denied("use table_changes without the name of a table");
            }
            try {
                name(parser.parseMultipartIdentifier(table.toString()), false);
            } catch (ParseException error) {
                throw user.denied("read " + table);
            }
        }

        private void relation(UnresolvedRelation relation) {
            if (relation.isStreaming() || !relation.options().isEmpty()) {
                throw user.denied("read a table with options or as a stream");
            }
            name(relation.multipartIdentifier(), true);
        }

        /** Checks the name of a table before Spark looks it up, be it a path or of a data source. */
        private void name(Seq parts, boolean mayBeInWith) {
            int count = parts.length();
            String table = (String) parts.apply(count - 1);
            if (count == 1) {
                if (current != null && !(mayBeInWith && withNames.contains(Access.lower(table)))) {
                    user.requireTable(current, table);
                }
            } else if (count == 2 || (count == 3 && parts.apply(0).equals(CATALOG))) {
                user.requireTable((String) parts.apply(count - 2), table);
            } else {
                throw user.denied("read " + parts.mkString("."));
            }
        }

        private void command(LogicalPlan plan) {
            String kind = shown(plan);
            if (kind.equals("UnresolvedTableOrView") || kind.equals("UnresolvedTable")) {
                name((Seq) ((Product) plan).productElement(0), false);
            } else if (kind.equals("UnresolvedNamespace")) {
                schema((Seq) ((Product) plan).productElement(0));
            } else if (kind.equals("SetNamespaceCommand")) {
                schema((Seq) ((Product) plan).productElement(0));
            } else if (kind.equals("DescribeDeltaHistory") || kind.equals("ShowPartitions")
                    || kind.equals("DescribeColumn")
                        && ((Product) plan).productElement(2).equals(Boolean.TRUE)) {
                values((LogicalPlan) plan.children().head());
            }
        }

        /** Refuses predicates, partitions and least and greatest values of a masked table. */
        private void values(LogicalPlan named) {
            if (!shown(named).equals("UnresolvedTable")
                    && !shown(named).equals("UnresolvedTableOrView")) {
                return; // a path, which is refused as such
            }
            Seq parts = (Seq) ((Product) named).productElement(0);
            int count = parts.length();
            String schema = count == 1 ? current : (String) parts.apply(count - 2);
            String table = (String) parts.apply(count - 1);
            if (user.masks(schema, table) != null) {
                throw user.denied("see values in the history, partitions or statistics of "
                    + schema + "." + table + ", which has personal fields");
            }
        }

        private void schema(Seq parts) {
            int count = parts.length();
            if (count == 0 || (count == 1 && parts.apply(0).equals(CATALOG))) {
                return;
            }
            if (count > 2 || (count == 2 && !parts.apply(0).equals(CATALOG))) {
                throw user.denied("see the schema " + parts.mkString("."));
            }
            user.requireSchema((String) parts.apply(count - 1));
        }

        private void setting(SetCommand command) {
            Option pair = command.kv();
            String key = pair.isDefined() ? (String) ((Tuple2) pair.get())._1() : "";
            if (!SETTINGS.contains(Access.lower(key))) {
                throw user.denied(key.isEmpty() || key.equals("-v")
                    ? "see all settings" : "see or change the setting " + key);
            }
        }

        private void expression(Expression expression) {
            if (!PARSED_EXPRESSIONS.contains(expression.getClass().getName())) {
                throw user.denied("use the expression " + shown(expression));
            }
            if (expression instanceof UnresolvedFunction) {
                function(((UnresolvedFunction) expression).nameParts());
            }
            each(((Product) expression).productIterator());
        }

        private void function(Seq parts) {
            String name = single(parts);
            if (!FUNCTIONS.contains(name)) {
                Option known = FunctionRegistry$.MODULE$.builtin().lookupFunction(
                    new FunctionIdentifier(name));
                if (known.isEmpty()
                        || !GROUPS.contains(((ExpressionInfo) known.get()).getGroup())) {
                    throw user.denied("use the function " + name);
                }
            }
        }

        private String single(Seq parts) {
            if (parts.length() != 1) {
                throw user.denied("use the function " + parts.mkString("."));
            }
            return Access.lower((String) parts.apply(0));
        }
    }

    /** One row more than the most, so that the excess is noticed. */
    private static GlobalLimit atMost(long most, LogicalPlan plan) {
        Literal rows = new Literal(new Integer((int) most + 1), DataTypes.IntegerType);
        return new GlobalLimit(rows, new LocalLimit(rows, plan));
    }

    /**
     * Puts a projection above each table with personal fields, which everything else reads, and
     * lets results with many columns have fewer rows.
     */
    public static class Masking extends Rule {
        private final SparkSession session;

        Masking(SparkSession session) {
            this.session = session;
        }

        public TreeNode apply(TreeNode plan) {
            Access.User user = Access.of(session);
            if (user == null || user.isOwner()) {
                return plan;
            }
            return narrowed(((LogicalPlan) plan).resolveOperatorsUp(new Replacing(user)), user);
        }

        /** The plan with its limit by `GuardedParser` for the columns that it turns out to have. */
        private static LogicalPlan narrowed(LogicalPlan plan, Access.User user) {
            if (plan instanceof WithCTE) {
                WithCTE with = (WithCTE) plan;
                return with.copy(narrowed(with.plan(), user), with.cteDefs());
            }
            long most = user.mostRows(1);
            if (most == 0 || !plan.resolved() || !(plan instanceof GlobalLimit)
                    || !(((GlobalLimit) plan).child() instanceof LocalLimit)
                    || !((GlobalLimit) plan).limitExpr().semanticEquals(
                        new Literal(new Integer((int) most + 1), DataTypes.IntegerType))) {
                return plan;
            }
            long narrow = user.mostRows(plan.output().length());
            return narrow == most ? plan
                : atMost(narrow, ((LocalLimit) ((GlobalLimit) plan).child()).child());
        }
    }

    private static class Replacing extends AbstractPartialFunction {
        private final Access.User user;

        Replacing(Access.User user) {
            this.user = user;
        }

        public boolean isDefinedAt(Object plan) {
            return masks(user, plan) != null;
        }

        public Object applyOrElse(Object plan, scala.Function1 otherwise) {
            Map masks = masks(user, plan);
            return masks == null ? otherwise.apply(plan) : masked((LogicalRelation) plan, masks);
        }
    }

    /** How the columns of a relation are masked for the user; null if none is. */
    private static Map masks(Access.User user, Object plan) {
        if (!(plan instanceof LogicalRelation)) {
            return null;
        }
        Option table = ((LogicalRelation) plan).catalogTable();
        if (table.isEmpty()) {
            return null;
        }
        TableIdentifier id = ((CatalogTable) table.get()).identifier();
        return id.database().isEmpty() ? null
            : user.masks((String) id.database().get(), id.table());
    }

    private static Project masked(LogicalRelation relation, Map masks) {
        LogicalRelation read = relation.newInstance(); // its columns have other ids
        return new Project(maskedColumns(relation.output(), read.output(), masks), read);
    }

    private static Seq maskedColumns(Seq shown, Seq read, Map masks) {
        java.util.ArrayList columns = new java.util.ArrayList();
        for (int i = 0; i < shown.length(); i++) {
            Attribute old = (Attribute) shown.apply(i);
            Expression value = maskedValue((Attribute) read.apply(i), read, masks);
            columns.add(new Alias(value, old.name(), old.exprId(), old.qualifier(),
                Option.apply(old.metadata()), noNames()));
        }
        return seq(columns);
    }

    private static Expression maskedValue(Attribute column, Seq read, Map masks) {
        String name = Access.lower(column.name());
        String how = (String) masks.get(name);
        if (how == null) {
            return leftOut(column, name, masks);
        }
        if (how.equals("hash")) {
            for (int i = 0; i < read.length(); i++) {
                Attribute each = (Attribute) read.apply(i);
                if (Access.lower(each.name()).equals(name + "_hash")) {
                    return each;
                }
            }
        }
        if (how.equals("mask") && column.dataType().equals(DataTypes.StringType)) {
            return new If(new IsNull(column), nothing(column.dataType()),
                text("***"));
        }
        return nothing(column.dataType());
    }

    /**
     * A column whose fields `COLUMN.FIELD` are empty, if there are such. If the masks hold the key
     * `*`, so are fields with the name of a masked column, and what holds such fields further down.
     */
    private static Expression leftOut(Attribute column, String name, Map masks) {
        boolean isDeep = masks.containsKey("*");
        if (!(column.dataType() instanceof StructType)) {
            return isDeep && holdsMasked(column.dataType(), masks)
                ? (Expression) nothing(column.dataType()) : column;
        }
        StructField[] fields = ((StructType) column.dataType()).fields();
        java.util.ArrayList parts = new java.util.ArrayList();
        boolean changes = false;
        for (int i = 0; i < fields.length; i++) {
            String field = Access.lower(fields[i].name());
            boolean isOut = masks.containsKey(name + "." + field) || isDeep
                && (masks.containsKey(field) || holdsMasked(fields[i].dataType(), masks));
            changes = changes || isOut;
            parts.add(text(fields[i].name()));
            parts.add(isOut ? (Expression) nothing(fields[i].dataType())
                : (Expression) new GetStructField(column, i, Option.apply(fields[i].name())));
        }
        return changes ? (Expression) new If(new IsNull(column), nothing(column.dataType()),
            new CreateNamedStruct(seq(parts))) : column;
    }

    private static boolean holdsMasked(DataType type, Map masks) {
        if (type instanceof ArrayType) {
            return holdsMasked(((ArrayType) type).elementType(), masks);
        }
        if (type instanceof MapType) {
            return holdsMasked(((MapType) type).keyType(), masks)
                || holdsMasked(((MapType) type).valueType(), masks);
        }
        if (type instanceof StructType) {
            StructField[] fields = ((StructType) type).fields();
            for (int i = 0; i < fields.length; i++) {
                if (masks.containsKey(Access.lower(fields[i].name()))
                        || holdsMasked(fields[i].dataType(), masks)) {
                    return true;
                }
            }
        }
        return false;
    }

    private static Literal text(String value) {
        return new Literal(UTF8String.fromString(value), DataTypes.StringType);
    }

    private static Literal nothing(DataType type) {
        return new Literal(null, type);
    }

    private static Seq noNames() {
        return seq(new java.util.ArrayList());
    }

    private static Seq seq(java.util.List list) {
        return scala.jdk.javaapi.CollectionConverters.asScala(list).toSeq();
    }

    /** Refuses resolved plans that read what the role may not, or hold what is not listed. */
    public static class Check extends AbstractFunction1 {
        private final SparkSession session;

        Check(SparkSession session) {
            this.session = session;
        }

        public Object apply(Object plan) {
            Access.User user = Access.of(session);
            if (user != null && !user.isOwner()) {
                new AnalysedCheck(user, isWithinDelta()).check(plan);
            }
            return BoxedUnit.UNIT;
        }

        /** Whether Delta analyses a plan of its own, with which it reads the log of a table. */
        private static boolean isWithinDelta() {
            StackTraceElement[] frames = new Throwable().getStackTrace();
            for (int i = 0; i < frames.length; i++) {
                if (frames[i].getClassName().startsWith(DELTA)) {
                    return true;
                }
            }
            return false;
        }
    }

    private static class AnalysedCheck {
        private final Access.User user;
        private final boolean isDeltas;

        AnalysedCheck(Access.User user, boolean isDeltas) {
            this.user = user;
            this.isDeltas = isDeltas;
        }

        void check(Object part) {
            if (part instanceof LogicalPlan) {
                plan((LogicalPlan) part);
            } else if (part instanceof Expression) {
                expression((Expression) part);
            } else if (part instanceof DataType) {
                return; // a structure is a sequence of fields
            } else if (part instanceof scala.collection.Iterable) {
                each(((scala.collection.Iterable) part).iterator());
            } else if (part instanceof Product) {
                each(((Product) part).productIterator());
            }
        }

        private void each(scala.collection.Iterator parts) {
            while (parts.hasNext()) {
                check(parts.next());
            }
        }

        private void plan(LogicalPlan plan) {
            if (plan instanceof LogicalRelation) {
                relation((LogicalRelation) plan);
                return;
            }
            if (!isDeltas && !ANALYSED_PLANS.contains(plan.getClass().getName())) {
                throw user.denied("run " + shown(plan));
            }
            String kind = shown(plan);
            if (plan instanceof View) {
                View view = (View) plan;
                TableIdentifier id = view.desc().identifier();
                if (view.isTempView() || id.database().isEmpty()) {
                    throw user.denied("read the temporary view " + id.table());
                }
                user.requireTable((String) id.database().get(), id.table());
                check(view.child());
            } else if (plan instanceof Project && isMasked((Project) plan)) {
                return;
            } else if (!(kind.equals("ExplainCommand") || kind.equals("DescribeQueryCommand")
                    || kind.equals("CommandResult"))) { // their queries are analysed on their own
                each(((Product) plan).productIterator());
            }
        }

        private void relation(LogicalRelation relation) {
            Option table = relation.catalogTable();
            if (table.isEmpty()) {
                if (!(isDeltas && isOfDelta(relation))) {
                    throw user.denied("read files, databases or other sources outside the catalog");
                }
                return;
            }
            require(relation);
            if (masks(user, relation) != null) {
                throw user.denied("read a table whose personal fields are not masked here");
            }
        }

        private void require(LogicalRelation relation) {
            TableIdentifier id = ((CatalogTable) relation.catalogTable().get()).identifier();
            user.requireTable(
                id.database().isEmpty() ? "" : (String) id.database().get(), id.table());
        }

        /** Whether this is the projection of `Masking`, and therefore may read its table. */
        private boolean isMasked(Project project) {
            Map masks = masks(user, project.child());
            if (masks == null) {
                return false;
            }
            LogicalRelation relation = (LogicalRelation) project.child();
            require(relation);
            for (int i = 0; i < project.projectList().length(); i++) {
                Object each = project.projectList().apply(i);
                if (!(each instanceof Alias) || i >= relation.output().length()) {
                    return false;
                }
                Attribute column = (Attribute) relation.output().apply(i);
                Expression value = maskedValue(column, relation.output(), masks);
                if (!((Alias) each).child().semanticEquals(value)) {
                    return false;
                }
            }
            return true;
        }

        /** Whether a relation reads the log of a table, or its change feed. */
        private static boolean isOfDelta(LogicalRelation relation) {
            return relation.relation() instanceof HadoopFsRelation && DELTA_FILES.contains(
                ((HadoopFsRelation) relation.relation()).location().getClass().getName());
        }

        private void expression(Expression expression) {
            String name = expression.getClass().getName();
            if (!isDeltas && (!name.startsWith(CATALYST) || CALLS.contains(shown(expression)))) {
                throw user.denied("use the expression " + shown(expression));
            }
            each(((Product) expression).productIterator());
        }
    }
}
