"""Runs dbt's public tests for adapters (`dbt-tests-adapter`) at the SQL endpoint, as an owner.

The cases are those that dbt-spark runs, in its variants for Delta. They run with `type: spark`, and
with our own adapter, `type: lakehouse`. Set LAKEHOUSE_TEST_PLAIN_SPARK=true to run them at a plain
Thrift server of Spark as well: one without our extensions, started from the same jars. A test that
is known to fail is listed with the reason, and must go on failing.
"""

import copy
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
from dbt_common.exceptions import DbtRuntimeError
from guarded import PASSWORD, asked_by_owner
from shop_lake import ShopLake
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from gold.sql_client import SqlError, query_endpoint
from lake.settings.settings import LakeSettings
from lakehouse.runtime.jars import fetch_jars
from lakehouse.runtime.java import find_java
from lakehouse.runtime.ports import free_port
from lakehouse.sql.endpoint import start_endpoint
from lakehouse.sql.users import add_user

REASON = "needs dbt-tests-adapter, of the extra `dev`"
pytest.importorskip("dbt.tests.adapter", reason=REASON)
from dbt.tests import util

run_with_hook = util.run_dbt


def run_dbt(*arguments: Any, **named: Any) -> Any:
    """Run dbt, and leave the hook of our adapter out of the results, which the cases count."""
    ended = run_with_hook(*arguments, **named)
    if hasattr(ended, "results"):
        ended.results = [each for each in ended.results if not is_hook(each)]
    return ended


def is_hook(result: Any) -> bool:
    return getattr(result.node, "package_name", "") == "dbt_lakehouse"


util.run_dbt = run_dbt  # before the cases import it

from dbt.tests.adapter.basic import (
    test_adapter_methods,
    test_base,
    test_empty,
    test_ephemeral,
    test_generic_tests,
    test_incremental,
    test_singular_tests,
    test_singular_tests_ephemeral,
    test_snapshot_check_cols,
    test_snapshot_timestamp,
)
from dbt.tests.adapter.constraints import fixtures as constrained
from dbt.tests.adapter.constraints import test_constraints
from dbt.tests.adapter.dbt_clone import test_dbt_clone
from dbt.tests.adapter.dbt_debug import test_dbt_debug
from dbt.tests.adapter.dbt_show import test_dbt_show
from dbt.tests.adapter.empty import test_empty as test_empty_flag
from dbt.tests.adapter.grants import (
    test_incremental_grants,
    test_invalid_grants,
    test_model_grants,
    test_seed_grants,
    test_snapshot_grants,
)
from dbt.tests.adapter.incremental import (
    test_incremental_merge_exclude_columns,
    test_incremental_microbatch,
    test_incremental_on_schema_change,
    test_incremental_predicates,
    test_incremental_unique_id,
)
from dbt.tests.adapter.persist_docs import test_persist_docs
from dbt.tests.adapter.simple_seed import test_seed
from dbt.tests.adapter.store_test_failures_tests import basic as stored_failures
from dbt.tests.adapter.store_test_failures_tests import test_store_test_failures
from dbt.tests.adapter.unit_testing import (
    test_case_insensitivity,
    test_invalid_input,
    test_types,
)
from dbt.tests.adapter.utils import (
    fixture_listagg,
    test_any_value,
    test_array_append,
    test_array_concat,
    test_array_construct,
    test_bool_or,
    test_cast,
    test_cast_bool_to_text,
    test_concat,
    test_current_timestamp,
    test_date,
    test_date_trunc,
    test_dateadd,
    test_datediff,
    test_equals,
    test_escape_single_quotes,
    test_except,
    test_hash,
    test_intersect,
    test_last_day,
    test_length,
    test_listagg,
    test_position,
    test_replace,
    test_right,
    test_safe_cast,
    test_split_part,
    test_string_literal,
    test_timestamps,
)
from dbt.tests.adapter.utils.data_types import (
    test_type_bigint,
    test_type_boolean,
    test_type_float,
    test_type_int,
    test_type_numeric,
    test_type_string,
    test_type_timestamp,
)
from dbt.tests.fixtures.project import *  # noqa: F403 - the fixtures of its projects
from dbt.tests.util import run_dbt_and_capture

TestProcessingException.__test__ = False  # noqa: F405 - it is an error, not a test

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.programs,
    pytest.mark.filterwarnings("ignore"),  # dbt's own code has many
]

IS_PLAIN_WANTED = os.environ.get("LAKEHOUSE_TEST_PLAIN_SPARK") == "true"
SCHEMA_OF_TESTS = "gold_build_of_"
START_SECONDS = 120
OPENED = ("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "util", "util.concurrent")
HIDDEN = ("sun.nio.ch", "sun.nio.cs", "sun.util.calendar", "java.util.concurrent.atomic")
DELTA = {"+file_format": "delta"}

NO_GRANT = "Spark knows no GRANT"
NO_NOT_NULL = "Delta makes no column NOT NULL that could be NULL, except on Databricks"
SEED_EMPTY = "dbt seed --empty needs a later version of dbt-core"
# The tests that fail at Spark's own server and at ours alike, by class or by class and test.
AT_SPARK = {
    "TestClone.test_can_clone_true": "only Databricks clones into tables that have rows",
    "TestEmptyFlagSeeds.test_seed_empty_creates_table_with_zero_rows": SEED_EMPTY,
    "TestEmptyFlagSeeds.test_seed_empty_preserves_column_types": SEED_EMPTY,
    "TestEmptyFlagSeeds.test_build_empty_with_seed": SEED_EMPTY,
    "TestModelGrants": NO_GRANT,
    "TestIncrementalGrants": NO_GRANT,
    "TestSeedGrants": NO_GRANT,
    "TestSnapshotGrants": NO_GRANT,
    "TestInvalidGrants": NO_GRANT,
    "TestContractOfTable.test__constraints_wrong_column_order": NO_NOT_NULL,
    "TestContractOfIncremental.test__constraints_wrong_column_order": NO_NOT_NULL,
    "TestConstraintsOfTable": NO_NOT_NULL,
    "TestConstraintsOfIncremental": NO_NOT_NULL,
    "TestConstraintsOfModel": NO_NOT_NULL,
    "TestConstraintOfQuotedColumn": NO_NOT_NULL,
    "TestViolationInTable": NO_NOT_NULL,
    "TestViolationInIncremental": NO_NOT_NULL,
}
# Those that fail at Spark's own server alone.
AT_PLAIN_SPARK = {"TestDateDiff": "Derby, Hive's own database, holds no view that is so long"}
# Those that fail with `type: lakehouse`, on purpose.
ON_PURPOSE = {"TestEphemeral": "the hook of the adapter is one more node"}
# Those that it cannot pass, because it builds in another way. They are not run.
FROM_SCRATCH = "in a schema other than gold_build, the adapter builds models from scratch"
ONE_SCHEMA = "a run of the adapter has a single schema, and this uses a second one"
INCREMENTAL = ("Strategies", "UniqueKey", "MergeExcludeColumns", "Predicates", "SchemaChangeAppend")
INCREMENTAL += ("SchemaChangeOverwrite", "SchemaChangeMerge", "Microbatch")
NOT_FOR_OURS = {
    **{f"Test{each}": FROM_SCRATCH for each in INCREMENTAL},
    "TestStoredFailures": ONE_SCHEMA,
}


@contextmanager
def plain_spark(settings: LakeSettings, folder: Path) -> Iterator[int]:
    """Serve SQL with Spark's own program, which knows Delta and nothing of ours."""
    port = free_port()
    opened = [f"--add-opens=java.base/java.{each}=ALL-UNNAMED" for each in OPENED]
    opened += [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in HIDDEN]
    jars = [Path(pyspark.__file__).parent / "jars", fetch_jars(settings, "spark")]
    configuration = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.sql.shuffle.partitions": 2,
        "spark.databricks.delta.snapshotPartitions": 1,
        "spark.sql.codegen.wholeStage": "false",
        "spark.ui.enabled": "false",
    }
    command = [str(find_java()), "-Xmx2g", *opened, "-cp", ":".join(f"{each}/*" for each in jars)]
    command += ["org.apache.spark.deploy.SparkSubmit", "--master", "local[*]"]
    for name, value in configuration.items():
        command += ["--conf", f"{name}={value}"]
    command += ["--class", "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"]
    command += ["spark-internal", "--hiveconf", f"hive.server2.thrift.port={port}"]
    command += ["--hiveconf", "hive.server2.thrift.bind.host=127.0.0.1"]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        asking = settings.model_copy(update={"sql_port": port})
        Retrying(
            retry=retry_if_exception_type(SqlError),
            stop=stop_after_delay(START_SECONDS),
            wait=wait_fixed(1),
            reraise=True,
        )(query_endpoint, asking, "select 1")
        yield port
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="module")
def plain_port(
    suite_settings: LakeSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[int]:
    with plain_spark(suite_settings, tmp_path_factory.mktemp("plain")) as port:
        yield port


@pytest.fixture(scope="module")
def guarded_port(shop_lake: ShopLake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of an endpoint with roles, at which Olga is an owner."""
    settings = asked_by_owner(shop_lake.settings, tmp_path_factory.mktemp("guarded"))
    add_user(settings, "olga", PASSWORD, "owner")
    serving = start_endpoint(shop_lake.spark, settings)
    yield settings.sql_port
    serving.stop()
    for (schema,) in shop_lake.spark.sql("show schemas").collect():
        if SCHEMA_OF_TESTS in schema:  # also those of the snapshots that runs read
            shop_lake.spark.sql(f"drop schema {schema} cascade")


SERVERS = ["spark", "lakehouse", *(["plain"] if IS_PLAIN_WANTED else [])]


@pytest.fixture(scope="class", params=SERVERS)
def server(request: pytest.FixtureRequest) -> str:
    """The type of a profile for our endpoint, or `plain`."""
    if request.param == "lakehouse" and request.cls.__name__ in NOT_FOR_OURS:
        pytest.skip(NOT_FOR_OURS[request.cls.__name__])
    return str(request.param)


@pytest.fixture(scope="class")
def dbt_profile_target(request: pytest.FixtureRequest, server: str) -> dict[str, Any]:
    """The profile. dbt's tests ask for it by this name."""
    common = {"method": "thrift", "host": "127.0.0.1", "threads": 2, "poll_interval": 0}
    if server == "plain":
        port = request.getfixturevalue("plain_port")
        return {**common, "type": "spark", "user": "dbt", "port": port}
    login = {"auth": "LDAP", "user": "olga", "password": PASSWORD}
    return {**common, **login, "type": server, "port": request.getfixturevalue("guarded_port")}


@pytest.fixture(scope="class")
def project_root(tmpdir_factory: pytest.TempdirFactory, server: str) -> Any:
    """A folder for each server. dbt's own fixture gives one to a class, whose servers share it."""
    return tmpdir_factory.mktemp(f"project-{server}")


@pytest.fixture(scope="class")
def unique_schema(prefix: str) -> str:
    """A schema in which the adapter `lakehouse` agrees to work."""
    return f"{SCHEMA_OF_TESTS}{prefix}"


@pytest.fixture(scope="class")
def logs_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """dbt's tests would write into the folder of the project."""
    with pytest.MonkeyPatch.context() as patch:
        folder = str(tmp_path_factory.mktemp("logs"))
        patch.setenv("DBT_LOG_PATH", folder)
        yield folder


@pytest.fixture(autouse=True)
def known_failure(request: pytest.FixtureRequest, server: str) -> None:
    """Expect that a listed test fails, and fail if it passes."""
    known = AT_SPARK | {"plain": AT_PLAIN_SPARK, "lakehouse": ON_PURPOSE}.get(server, {})
    names = (request.node.cls.__name__, request.node.originalname)
    if reason := known.get(names[0]) or known.get(".".join(names)):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))


def given(value: object) -> Callable[..., object]:
    """A fixture of a class, which replaces that of its base."""

    @pytest.fixture(scope="class")
    def fixture(self: object) -> object:
        return copy.deepcopy(value)

    return fixture


def rows_of(project: Any, model: str) -> list[tuple[Any, ...]]:
    """The rows of a model, sorted."""
    found = project.run_sql(f"select * from {project.test_schema}.{model}", fetch="all")
    return sorted(tuple(row) for row in found)


# The basic cases, which each adapter must pass.


class TestSimpleMaterializations(test_base.BaseSimpleMaterializations): ...


class TestSingularTests(test_singular_tests.BaseSingularTests): ...


class TestSingularTestsEphemeral(test_singular_tests_ephemeral.BaseSingularTestsEphemeral): ...


class TestEmpty(test_empty.BaseEmpty): ...


class TestEphemeral(test_ephemeral.BaseEphemeral): ...


class TestIncremental(test_incremental.BaseIncremental): ...


class TestGenericTests(test_generic_tests.BaseGenericTests): ...


class TestSnapshotCheckCols(test_snapshot_check_cols.BaseSnapshotCheckCols):
    project_config_update = given({"seeds": DELTA, "snapshots": DELTA})


class TestSnapshotTimestamp(test_snapshot_timestamp.BaseSnapshotTimestamp):
    project_config_update = given({"seeds": DELTA, "snapshots": DELTA})


class TestAdapterMethod(test_adapter_methods.BaseAdapterMethod): ...


# Commands.


class TestDebug(test_dbt_debug.BaseDebug):
    def test_connection(self, project: Any) -> None:
        run_dbt(["debug"])
        assert "ERROR" not in self.capsys.readouterr().out


class TestShowLimit(test_dbt_show.BaseShowLimit): ...


class TestShowSqlHeader(test_dbt_show.BaseShowSqlHeader): ...


class TestShowDoubleLimit:
    """The case of dbt-tests-adapter looks only at the beginning of the error."""

    def test_is_an_error(self, project: Any) -> None:
        with pytest.raises(DbtRuntimeError, match="Syntax error at or near 'limit'"):
            run_dbt(["show", "--limit", "1", "--inline", "select 1 limit 1"])


class TestEmptyFlag(test_empty_flag.BaseTestEmpty): ...


class TestEmptyFlagInlineSource(test_empty_flag.BaseTestEmptyInlineSourceRef): ...


class TestEmptyFlagSeeds(test_empty_flag.BaseTestEmptySeedFlag): ...


class TestClone(test_dbt_clone.BaseClonePossible):
    project_config_update = given(
        {
            "models": DELTA,
            "seeds": {"test": {"quote_columns": False}, **DELTA},
            "snapshots": DELTA,
        }
    )


class TestEmptySeed(test_seed.BaseTestEmptySeed): ...


SEED_OF_TYPES = """
id,amount,price,created
1,1000,10.00,2018-01-01
"""
TYPES = {"id": "string", "amount": "int", "price": "decimal(20,2)", "created": "timestamp"}


class TestSeedTypes:
    seeds = given({"payments.csv": SEED_OF_TYPES.lstrip()})
    project_config_update = given({"seeds": {"+column_types": TYPES}})

    def test_types(self, project: Any) -> None:
        run_dbt(["seed"])
        described = project.run_sql(f"describe {project.test_schema}.payments", fetch="all")
        assert {name: kind for name, kind, _ in described} == TYPES


class TestColumnsInRelation:
    models = given(
        {
            "child.sql": "select 1",
            "parent.sql": """
                select {% for each in adapter.get_columns_in_relation(ref('child')) %}
                    {{ adapter.quote(each.column) }}{{ "," if not loop.last }}
                {% endfor %} from {{ ref('child') }}""",
        }
    )

    def test_columns(self, project: Any) -> None:
        run_dbt(["run"])
        assert rows_of(project, "parent") == [(1,)]


# It takes some seconds. Spark does not interrupt a task that has begun.
NUMBERS = "select explode(sequence(1, 15000)) as n"
LONG = f"select count(*) as total from ({NUMBERS}) cross join ({NUMBERS}) as other"


class TestQueryTimeout:
    models = given({"long.sql": "{{ config(materialized='table') }} " + LONG})

    @pytest.fixture(scope="class")
    def dbt_profile_target(self, dbt_profile_target: dict[str, Any]) -> dict[str, Any]:
        return {**dbt_profile_target, "query_timeout": 1, "poll_interval": 1, "query_retries": 0}

    def test_ends_a_statement(self, project: Any) -> None:
        _, output = run_dbt_and_capture(["run"], expect_pass=False)
        assert "exceeded timeout" in output.lower()


# Incremental models.

FIRST = "select cast(1 as bigint) as id, 'hello' as msg, 'blue' as color" + (
    " union all select cast(2 as bigint), 'goodbye', 'red'"
)
LATER = "select cast(2 as bigint) as id, 'yo' as msg, 'green' as color" + (
    " union all select cast(3 as bigint), 'anyway', 'purple'"
)
HELLO, GOODBYE = (1, "hello", "blue"), (2, "goodbye", "red")
YO, ANYWAY = (2, "yo", "green"), (3, "anyway", "purple")


def incremental(**options: object) -> str:
    """A model that returns other rows after its first run."""
    listed = ", ".join(f"{name}={value!r}" for name, value in options.items())
    return (
        "{{ config(materialized='incremental', " + listed + ") }}"
        "{% if is_incremental() %}" + LATER + "{% else %}" + FIRST + "{% endif %}"
    )


class TestStrategies:
    models = given(
        {
            "appended.sql": incremental(),
            "appended_delta.sql": incremental(incremental_strategy="append", file_format="delta"),
            "merged_without_key.sql": incremental(
                incremental_strategy="merge", file_format="delta"
            ),
            "merged.sql": incremental(
                incremental_strategy="merge", file_format="delta", unique_key="id"
            ),
            "merged_columns.sql": incremental(
                incremental_strategy="merge",
                file_format="delta",
                unique_key="id",
                merge_update_columns=["msg"],
            ),
            "overwritten.sql": incremental(
                incremental_strategy="insert_overwrite", file_format="parquet"
            ),
        }
    )

    def test_rows(self, project: Any) -> None:
        run_dbt(["run"])
        run_dbt(["run"])
        for name in ("appended", "appended_delta", "merged_without_key"):
            assert rows_of(project, name) == [HELLO, GOODBYE, YO, ANYWAY], name
        assert rows_of(project, "merged") == [HELLO, YO, ANYWAY]
        assert rows_of(project, "merged_columns") == [HELLO, (2, "yo", "red"), ANYWAY]
        assert rows_of(project, "overwritten") == [YO, ANYWAY]


class TestBadStrategies:
    models = given(
        {
            "bad_format.sql": incremental(file_format="something_else"),
            "bad_merge.sql": incremental(incremental_strategy="merge"),
            "bad_strategy.sql": incremental(incremental_strategy="something_else"),
        }
    )

    def test_are_refused(self, project: Any) -> None:
        for result in run_dbt(["run"], expect_pass=False):
            assert result.status == "error"
            assert "Compilation Error in model" in result.message


MERGE = {**DELTA, "+incremental_strategy": "merge"}


class TestUniqueKey(test_incremental_unique_id.BaseIncrementalUniqueKey):
    # The cases insert texts, which Spark does not take for dates.
    project_config_update = given(
        {"models": MERGE, "seeds": {"+column_types": {"last_visit_date": "string"}}}
    )


class TestMergeExcludeColumns(test_incremental_merge_exclude_columns.BaseMergeExcludeColumns):
    project_config_update = given({"models": DELTA})


PREDICATES = (
    """
{{ config(materialized='incremental', unique_key='id') }}
{% if is_incremental() %}
select cast(1 as bigint) as id, 'hey' as msg, 'blue' as color
union all select cast(2 as bigint), 'yo', 'green'
union all select cast(3 as bigint), 'anyway', 'purple'
{% else %}"""
    + FIRST
    + "{% endif %}"
)


class TestPredicates(test_incremental_predicates.BaseIncrementalPredicates):
    models = given({"delete_insert_incremental_predicates.sql": PREDICATES})
    project_config_update = given(
        {"models": {**MERGE, "+incremental_predicates": ["dbt_internal_dest.id != 2"]}}
    )


OnSchemaChange = test_incremental_on_schema_change.BaseIncrementalOnSchemaChangeSetup


class TestSchemaChangeAppend(OnSchemaChange):
    project_config_update = given({"models": {"+incremental_strategy": "append"}})

    def test_ignored(self, project: Any) -> None:
        models = "model_a incremental_ignore incremental_ignore_target"
        self.run_twice_and_assert(
            models, "incremental_ignore", "incremental_ignore_target", project
        )

    def test_refused(self, project: Any) -> None:
        refused_at_second_run(project, "incremental_fail")


class TestSchemaChangeOverwrite(TestSchemaChangeAppend):
    project_config_update = given(
        {
            "models": {
                "+file_format": "parquet",
                "+partition_by": "id",
                "+incremental_strategy": "insert_overwrite",
            }
        }
    )


class TestSchemaChangeMerge(OnSchemaChange):
    project_config_update = given({"models": {**MERGE, "+unique_key": "id"}})

    def test_new_columns(self, project: Any) -> None:
        self.run_incremental_append_new_columns(project)

    def test_removed_columns(self, project: Any) -> None:
        refused_at_second_run(project, "incremental_sync_all_columns")
        refused_at_second_run(project, "incremental_sync_remove_only")


def refused_at_second_run(project: Any, model: str) -> None:
    """dbt-spark removes no columns."""
    run_dbt(["run", "--select", f"model_a {model}", "--full-refresh"])
    results = run_dbt(["run", "--select", f"model_a {model}"], expect_pass=False)
    assert "Compilation Error" in results[1].message


MICROBATCH = """
{{ config(
    materialized='incremental', incremental_strategy='microbatch', event_time='event_time',
    batch_size='day', begin=modules.datetime.datetime(2020, 1, 1, 0, 0, 0),
    partition_by=['date_day'], file_format='parquet'
) }}
select *, cast(event_time as date) as date_day from {{ ref('input_model') }}
"""


class TestMicrobatch(test_incremental_microbatch.BaseMicrobatch):
    microbatch_model_sql = given(MICROBATCH)


# Stored failures of tests.


class TestStoredFailures(test_store_test_failures.StoreTestFailuresBase):
    SCHEMA = test_store_test_failures.TEST_AUDIT_SCHEMA_SUFFIX
    project_config_update = given(
        {
            "seeds": {"quote_columns": False, "test": {}, **DELTA},
            "tests": {"+schema": SCHEMA, "+store_failures": True, **DELTA},
        }
    )

    def test_are_those_expected(self, project: Any) -> None:
        self.run_tests_store_one_failure(project)
        self.run_tests_store_failures_and_assert(project)


class TestStoredFailuresAs(stored_failures.StoreTestFailuresAsInteractions): ...


class TestStoredFailuresOff(stored_failures.StoreTestFailuresAsProjectLevelOff): ...


class TestStoredFailuresView(stored_failures.StoreTestFailuresAsProjectLevelView): ...


class TestStoredFailuresGeneric(stored_failures.StoreTestFailuresAsGeneric): ...


class TestStoredFailuresEphemeral(stored_failures.StoreTestFailuresAsProjectLevelEphemeral): ...


class TestStoredFailuresExceptions(stored_failures.StoreTestFailuresAsExceptions): ...


# Comments and grants.

ODD = """{what} "with double quotes" and 'single quotes'; '''abc123''' -- /* comment */ $lbl$"""
TABLE_ODD, COLUMN_ODD = ODD.format(what="Table"), ODD.format(what="Column")


def described(name: str, **columns: str) -> str:
    """The properties of a model and its columns, with descriptions."""
    listed = [{"name": each, "description": text} for each, text in columns.items()]
    models = [{"name": name, "description": TABLE_ODD, "columns": listed}]
    return json.dumps({"version": 2, "models": models})  # which is YAML


class TestPersistDocs:
    models = given(
        {
            "documented.sql": "{{ config(materialized='table', file_format='delta') }} "
            "select 1 as id, 'Joe' as name",
            "schema.yml": described("documented", id=COLUMN_ODD, missing="Not there"),
        }
    )
    project_config_update = given(
        {"models": {"test": {"+persist_docs": {"relation": True, "columns": True}}}}
    )

    def test_comments(self, project: Any) -> None:
        _, output = run_dbt_and_capture(["run"])
        assert "not present in the database: missing" in output
        extended = f"describe extended {project.test_schema}.documented"
        found = [tuple(row) for row in project.run_sql(extended, fetch="all")]
        assert ("id", "int", COLUMN_ODD) in found
        assert ("name", "string", None) in found
        assert ("Comment", TABLE_ODD, "") in found


class TestPersistDocsOfView:
    models = given(
        {
            "documented.sql": "select 1 as id, 'Joe' as name",
            "schema.yml": described("documented", id=COLUMN_ODD),
        }
    )
    project_config_update = TestPersistDocs.project_config_update

    def test_comments(self, project: Any) -> None:
        run_dbt(["run"])
        extended = f"describe extended {project.test_schema}.documented"
        found = [tuple(row) for row in project.run_sql(extended, fetch="all")]
        assert ("id", "int", COLUMN_ODD) in found
        assert ("Comment", TABLE_ODD, "") in found


class TestPersistDocsAllMissing(test_persist_docs.BasePersistDocsAllColumnsMissing): ...


class TestPersistDocsQuoted(test_persist_docs.BasePersistDocsQuotedColumnCaseSensitive): ...


class TestModelGrants(test_model_grants.BaseModelGrants):
    def privilege_grantee_name_overrides(self) -> dict[str, str]:
        return {**super().privilege_grantee_name_overrides(), "insert": "modify"}


class TestIncrementalGrants(test_incremental_grants.BaseIncrementalGrants):
    project_config_update = given({"models": MERGE})


class TestSeedGrants(test_seed_grants.BaseSeedGrants):
    def seeds_support_partial_refresh(self) -> bool:
        return False


class TestSnapshotGrants(test_snapshot_grants.BaseSnapshotGrants):
    project_config_update = given({"snapshots": MERGE})


class TestInvalidGrants(test_invalid_grants.BaseInvalidGrants):
    def grantee_does_not_exist_error(self) -> str:
        return "RESOURCE_DOES_NOT_EXIST"

    def privilege_does_not_exist_error(self) -> str:
        return "Action Unknown"


# Contracts and constraints.


class TableOfOrders:
    """dbt's types for the columns of its models, as Spark names them."""

    project_config_update = given({"models": DELTA})

    @pytest.fixture
    def string_type(self) -> str:
        return "STRING_TYPE"

    @pytest.fixture
    def int_type(self) -> str:
        return "INT_TYPE"

    @pytest.fixture
    def schema_string_type(self) -> str:
        return "STRING"

    @pytest.fixture
    def schema_int_type(self) -> str:
        return "INT"

    @pytest.fixture
    def data_types(self) -> list[list[str]]:
        """The value in SQL, the declared type, and the type in errors."""
        return [
            ["1", "INT", "INT_TYPE"],
            ['"1"', "STRING", "STRING_TYPE"],
            ["true", "boolean", "BOOLEAN_TYPE"],
            ['array("1","2","3")', "array<string>", "ARRAY_TYPE"],
            ["array(1,2,3)", "array<int>", "ARRAY_TYPE"],
            ["cast('2019-01-01' as date)", "date", "DATE_TYPE"],
            ["cast('2019-01-01' as timestamp)", "timestamp", "TIMESTAMP_TYPE"],
            ["cast(1.0 AS DECIMAL(4, 2))", "decimal", "DECIMAL_TYPE"],
        ]


SCHEMA = constrained.model_schema_yml.replace("text", "string").replace("primary key", "")
SCHEMA_OF_KEYS = constrained.model_fk_constraint_schema_yml.replace("text", "string").replace(
    "primary key", ""
)
SCHEMA_OF_QUOTED = constrained.model_quoted_column_schema_yml.replace("text", "string").replace(
    '"from"', "`from`"
)


class TestContractOfTable(TableOfOrders, test_constraints.BaseTableConstraintsColumnsEqual):
    models = given(
        {
            "my_model_wrong_order.sql": constrained.my_model_wrong_order_sql,
            "my_model_wrong_name.sql": constrained.my_model_wrong_name_sql,
            "constraints_schema.yml": SCHEMA,
        }
    )


class TestContractOfView(TableOfOrders, test_constraints.BaseViewConstraintsColumnsEqual):
    models = given(
        {
            "my_model_wrong_order.sql": constrained.my_model_view_wrong_order_sql,
            "my_model_wrong_name.sql": constrained.my_model_view_wrong_name_sql,
            "constraints_schema.yml": SCHEMA,
        }
    )


class TestContractOfIncremental(
    TableOfOrders, test_constraints.BaseIncrementalConstraintsColumnsEqual
):
    models = given(
        {
            "my_model_wrong_order.sql": constrained.my_model_incremental_wrong_order_sql,
            "my_model_wrong_name.sql": constrained.my_model_incremental_wrong_name_sql,
            "constraints_schema.yml": SCHEMA,
        }
    )


def created(columns: str, rows: str, server: str) -> str:
    """The statement that creates a model with a contract."""
    feed = "tblproperties ('delta.enableChangeDataFeed' = 'true')" if server == "lakehouse" else ""
    return (
        f"create or replace table <model_identifier> using delta {feed} as "
        f"select {columns} from ( {rows} ) as model_subq"
    )


class KeysOfOrders:
    """The statements that dbt-spark makes from constraints. It enforces them by ALTER TABLE."""

    project_config_update = given({"models": DELTA})

    @pytest.fixture(scope="class")
    def expected_sql(self, server: str) -> str:
        rows = (
            "-- depends_on: <foreign_key_model_identifier>\n"
            "select 'blue' as color, 1 as id, '2019-01-01' as date_day"
        )
        return created("id, color, date_day", rows, server)


OF_KEYS = {
    "my_model.sql": constrained.my_model_wrong_order_depends_on_fk_sql,
    "foreign_key_model.sql": constrained.foreign_key_model_sql,
    "constraints_schema.yml": SCHEMA_OF_KEYS,
}


class TestConstraintsOfTable(KeysOfOrders, test_constraints.BaseConstraintsRuntimeDdlEnforcement):
    models = given(OF_KEYS)


class TestConstraintsOfIncremental(
    KeysOfOrders, test_constraints.BaseIncrementalConstraintsRuntimeDdlEnforcement
):
    models = given(
        {**OF_KEYS, "my_model.sql": constrained.my_model_incremental_wrong_order_depends_on_fk_sql}
    )


class TestConstraintsOfModel(KeysOfOrders, test_constraints.BaseModelConstraintsRuntimeEnforcement):
    models = given(OF_KEYS)


class TestConstraintOfQuotedColumn(TableOfOrders, test_constraints.BaseConstraintQuotedColumn):
    models = given(
        {
            "my_model.sql": constrained.my_model_with_quoted_column_name_sql,
            "constraints_schema.yml": SCHEMA_OF_QUOTED,
        }
    )

    @pytest.fixture(scope="class")
    def expected_sql(self, server: str) -> str:
        rows = "select 'blue' as `from`, 1 as id, '2019-01-01' as date_day"
        return created("id, `from`, date_day", rows, server)


class Violations:
    project_config_update = given({"models": DELTA})
    expected_error_messages = given(
        [
            "DELTA_NEW_CHECK_CONSTRAINT_VIOLATION",
            "DELTA_NEW_NOT_NULL_VIOLATION",
            "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
            "DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
        ]
    )

    def assert_expected_error_messages(self, error_message: str, expected: list[str]) -> None:
        assert any(each in error_message for each in expected), error_message


class TestViolationInTable(Violations, test_constraints.BaseConstraintsRollback):
    models = given({"my_model.sql": constrained.my_model_sql, "constraints_schema.yml": SCHEMA})
    expected_color = given("red")  # dbt-spark adds constraints after it has replaced the table


class TestViolationInIncremental(Violations, test_constraints.BaseIncrementalConstraintsRollback):
    models = given(
        {"my_model.sql": constrained.my_incremental_model_sql, "constraints_schema.yml": SCHEMA}
    )


# Unit tests.


class TestUnitTestsTypes(test_types.BaseUnitTestingTypes):
    @pytest.fixture
    def data_types(self) -> list[list[str]]:
        """Values in SQL and in YAML."""
        as_text = ("1", "2.0", "true")
        of_text = {
            "'12345'": "12345",
            "'string'": "string",
            "date '2011-11-11'": "2011-11-11",
            "timestamp '2013-11-03 00:00:00-0'": "2013-11-03 00:00:00-0",
            "array(1, 2, 3)": "'array(1, 2, 3)'",
            "map('10', 't', '15', 'f', '20', NULL)": """'map("10", "t", "15", "f", "20", NULL)'""",
            'named_struct("a", 1, "b", 2)': """'named_struct("a", 1, "b", 2)'""",
        }
        return [*([each, each] for each in as_text), *([k, v] for k, v in of_text.items())]


class TestUnitTestsCase(test_case_insensitivity.BaseUnitTestCaseInsensivity): ...


class TestUnitTestsInvalidInput(test_invalid_input.BaseUnitTestInvalidInput): ...


# Macros that each adapter has.


class TestAnyValue(test_any_value.BaseAnyValue): ...


class TestArrayAppend(test_array_append.BaseArrayAppend): ...


class TestArrayConcat(test_array_concat.BaseArrayConcat): ...


class TestArrayConstruct(test_array_construct.BaseArrayConstruct): ...


class TestBoolOr(test_bool_or.BaseBoolOr): ...


class TestCast(test_cast.BaseCast): ...


class TestCastBoolToText(test_cast_bool_to_text.BaseCastBoolToText): ...


class TestConcat(test_concat.BaseConcat): ...


class TestCurrentTimestampNaive(test_current_timestamp.BaseCurrentTimestampNaive): ...


class TestDate(test_date.BaseDate): ...


class TestDateAdd(test_dateadd.BaseDateAdd): ...


class TestDateDiff(test_datediff.BaseDateDiff): ...


class TestDateTrunc(test_date_trunc.BaseDateTrunc): ...


class TestEquals(test_equals.BaseEquals): ...


class TestEscapeQuotes(test_escape_single_quotes.BaseEscapeSingleQuotesBackslash): ...


class TestExcept(test_except.BaseExcept): ...


class TestHash(test_hash.BaseHash): ...


class TestIntersect(test_intersect.BaseIntersect): ...


LAST_DAYS = """
date_day,date_part,result
2018-01-02,month,2018-01-31
2018-01-02,quarter,2018-03-31
2018-01-02,year,2018-12-31
"""


class TestLastDay(test_last_day.BaseLastDay):
    seeds = given({"data_last_day.csv": LAST_DAYS.lstrip()})  # without a row that lacks a part


class TestLength(test_length.BaseLength): ...


class TestListagg(test_listagg.BaseListagg):
    """Spark does not order the values, so the branches that ask for an order are left out."""

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        begin, *branches = fixture_listagg.models__test_listagg_sql.split("union all")
        head = begin[: begin.index("    select\n        group_col")]
        kept = "union all".join(each for each in branches if "order by" not in each)
        sql = self.interpolate_macro_namespace(head + kept, "listagg")
        return {
            "test_listagg.yml": fixture_listagg.models__test_listagg_yml,
            "test_listagg.sql": sql,
        }


class TestPosition(test_position.BasePosition): ...


class TestReplace(test_replace.BaseReplace): ...


class TestRight(test_right.BaseRight): ...


class TestSafeCast(test_safe_cast.BaseSafeCast): ...


PARTS = """
parts,split_on,result_1,result_2,result_3,result_4
a|b|c,|,a,b,c,c
1|2|3,|,1,2,3,3
EMPTY|EMPTY|EMPTY,|,EMPTY,EMPTY,EMPTY,EMPTY
"""


class TestSplitPart(test_split_part.BaseSplitPart):
    seeds = given({"data_split_part.csv": PARTS.lstrip()})


class TestStringLiteral(test_string_literal.BaseStringLiteral): ...


class TestCurrentTimestamp(test_timestamps.BaseCurrentTimestamps):
    models = given({"get_current_timestamp.sql": "select {{ current_timestamp() }} as at"})
    expected_schema = given({"at": "timestamp"})
    expected_sql = given("select current_timestamp() as at")


class TestTypeBigInt(test_type_bigint.BaseTypeBigInt): ...


class TestTypeBoolean(test_type_boolean.BaseTypeBoolean): ...


def typed(content: str, column: str, kind: str) -> Callable[..., object]:
    """A seed whose column has a type, which Spark would infer wider."""
    config = {"column_types": {column: kind}}
    properties = {"version": 2, "seeds": [{"name": "expected", "config": config}]}
    return given({"expected.csv": content, "expected.yml": json.dumps(properties)})


class TestTypeFloat(test_type_float.BaseTypeFloat):
    seeds = typed(test_type_float.seeds__expected_csv, "float_col", "float")


class TestTypeInt(test_type_int.BaseTypeInt):
    seeds = typed(test_type_int.seeds__expected_csv, "int_col", "int")


class TestTypeNumeric(test_type_numeric.BaseTypeNumeric):
    def numeric_fixture_type(self) -> str:
        return "decimal(28,6)"


class TestTypeString(test_type_string.BaseTypeString): ...


class TestTypeTimestamp(test_type_timestamp.BaseTypeTimestamp): ...
