"""Tests roles on the SQL endpoint: what readers and analysts see, and that they can do no more.

All tests share one endpoint with passwords on the generated shop's lake, whose users are masked.
"""

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyspark
import pytest
from deltalake import DeltaTable
from guarded import PASSWORD, asked_by_owner
from personal import as_gold_sees
from py4j.protocol import Py4JJavaError
from pyhive import hive
from shop_lake import ShopLake
from spark_inputs import spark_inputs
from sql_attacks import ALL, GRAMMAR, OF_ANALYSTS, random_statement
from TCLIService import ttypes
from tenacity import Retrying, stop_after_delay, wait_fixed
from thrift.transport.TTransport import TTransportException

from gold.dbt.results import BuildResult
from gold.sql_client import SqlError, query_endpoint
from lake.settings.settings import LakeSettings, load_settings
from lake.topics.topic_file import load_topics
from lakehouse.runtime.java import find_java
from lakehouse.runtime.ports import free_port
from lakehouse.sql.access import masks, policy
from lakehouse.sql.connect import spark_connect
from lakehouse.sql.endpoint import start_endpoint
from lakehouse.sql.reader import Answer, Refusal
from lakehouse.sql.users import add_user, change_role, remove_user
from pulsar_spark.errors import SettingsError

WITHOUT_SPACES = PASSWORD.replace(" ", "-")
ROLES = {"olga": "owner", "rita": "reader", "ana": "analyst"}
FUNCTIONS = 564  # how many Spark 4.2.0 has
SPARK_INPUTS = int(os.environ.get("TEST_SPARK_INPUTS", "2000"))  # statements of its own tests
SECRET = "the content of a file"  # noqa: S105 - which nobody may read  # pragma: allowlist secret

Connect = Callable[..., Any]


@pytest.fixture(scope="module")
def guarded(
    shop_lake: ShopLake, gold: BuildResult, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LakeSettings]:
    """The settings of the owner Olga at an endpoint with roles."""
    settings = asked_by_owner(shop_lake.settings, tmp_path_factory.mktemp("guarded"))
    for name, role in ROLES.items():
        add_user(settings, name, PASSWORD, role)  # type: ignore[arg-type]
    serving = start_endpoint(shop_lake.spark, settings)
    yield settings
    serving.stop()


@pytest.fixture
def connect(guarded: LakeSettings) -> Iterator[Connect]:
    """A function that connects a user, until the end of the test."""
    opened = []

    def connecting(user: str, port: int = guarded.sql_port, **options: Any) -> Any:
        connection = hive.connect(
            "127.0.0.1", port, username=user, password=PASSWORD, auth="LDAP", **options
        )
        opened.append(connection)
        return connection

    yield connecting
    for each in opened:
        with suppress(hive.Error, TTransportException):  # its session has been closed
            each.close()


def rows(connection: Any, sql: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found


def refusal(connection: Any, sql: str) -> str:
    """The error that a statement causes. Fails if it causes none."""
    with connection.cursor() as cursor:
        try:
            cursor.execute(sql)
        except hive.OperationalError as error:
            return str(error.args[0].status.errorMessage)
        return f"was let through: {cursor.fetchall()[:3]}"


def state(settings: LakeSettings, connection: Any) -> dict[str, Any]:
    """The tables, files and settings that an attack could have changed."""
    lake = settings.lake_dir
    files = (str(file.relative_to(lake)) for file in lake.rglob("*") if file.is_file())
    found: dict[str, Any] = {
        "files": sorted(file for file in files if "sql_statements" not in file),  # of the audit
        # The server itself sets one in each session, when it has run a statement.
        "settings": {k: v for k, v in rows(connection, "set") if "binaryOutputStyle" not in k},
        "functions": sorted(map(str, rows(connection, "show user functions"))),
    }
    for (schema,) in rows(connection, "show schemas"):
        found[f"tables of {schema}"] = sorted(rows(connection, f"show tables in `{schema}`"))
    return found


def is_refused(said: str) -> bool:
    """Whether an error is a refusal of the role, or Spark does not know the statement at all."""
    return "AccessDenied" in said or "ParseException" in said


def attacks_of(user: str, settings: LakeSettings, folder: Path) -> list[str]:
    """Return the statements of a user, and create a file and a folder that they name."""
    (folder / "secret").write_text(SECRET)
    (folder / "out").mkdir()
    places = {
        "file": folder / "secret",
        "out": folder / "out",
        "lake": str(settings.lake_dir).replace("`", "``"),
        "quoted": str(settings.lake_dir).replace("'", "\\'"),
    }
    found = [each.format(**places) for each in ALL + (OF_ANALYSTS if user == "rita" else [])]
    assert len(found) > 250
    return found


@pytest.mark.parametrize("user", ["rita", "ana"])
def test_no_attack_changes_or_reads_anything(
    guarded: LakeSettings, connect: Connect, tmp_path: Path, user: str
) -> None:
    owner, attacker = connect("olga"), connect(user)
    before = state(guarded, owner)
    attacks = attacks_of(user, guarded, tmp_path)
    said = {attack: refusal(attacker, attack) for attack in attacks}
    passed = {attack: words for attack, words in said.items() if not is_refused(words)}
    assert not passed
    named = [words for words in said.values() if f"The role '{ROLES[user]}' may not" in words]
    assert len(named) > 230  # the others are not SQL of Spark
    assert not any(SECRET in words for words in said.values())
    after = state(guarded, owner)
    settings = before["settings"].items() ^ after["settings"].items()
    assert not settings
    assert after == before
    assert not list((tmp_path / "out").iterdir())
    assert rows(attacker, "select count(*) from gold.reward_points")[0][0] > 0  # still usable


def beeline(settings: LakeSettings, user: str, script: Path) -> str:
    """Run a file of statements with Spark's own command line for JDBC; return what it prints."""
    jars = Path(pyspark.__file__).with_name("jars")
    address = f"jdbc:hive2://127.0.0.1:{settings.sql_port}/default"
    done = subprocess.run(
        [
            *(find_java(), "-cp", f"{jars}/*", "org.apache.hive.beeline.BeeLine"),
            *("-u", address, "-n", user, "-p", WITHOUT_SPACES, "-f", script),
            *("--force=true", "--outputformat=tsv2", "--showHeader=false", "--color=false"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    return done.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("user", ["rita", "ana"])
def test_no_attack_by_beeline_changes_or_reads_anything(
    guarded: LakeSettings, connect: Connect, tmp_path: Path, user: str
) -> None:
    """Beeline divides a file at semicolons, and has commands of its own, which begin with `!`."""
    owner, name = connect("olga"), f"beeline-{user}"
    add_user(guarded, name, WITHOUT_SPACES, ROLES[user])  # type: ignore[arg-type]
    before = state(guarded, owner)
    attacks = [
        each.replace("\n", " ")
        for each in attacks_of(user, guarded, tmp_path)
        if ";" not in each and not each.startswith("!") and "--" not in each
    ]
    assert len(attacks) > 220
    script = tmp_path / "attacks.sql"
    script.write_text("".join(f"{each};\nselect 'after', {n};\n" for n, each in enumerate(attacks)))
    parts = re.split(r"^after\t\d+$", beeline(guarded, name, script), flags=re.MULTILINE)
    assert len(parts) == len(attacks) + 1
    said = dict(zip(attacks, parts, strict=False))
    assert not {each: words for each, words in said.items() if not is_refused(words)}
    assert not any(SECRET in words for words in parts)
    assert state(guarded, owner) == before
    assert not list((tmp_path / "out").iterdir())


READS = [
    "select count(*), sum(points) from gold.reward_points where points > 0",
    "select tier, max(points) as most from reward_points group by tier having most > 5 order by 2",
    "with p as (select * from reward_points), q as (select account_id from p) "
    "select count(*) from q join p using (account_id)",
    "select * from gold.reward_points version as of {version} limit 1",
    "select account_id, x from reward_points lateral view explode(array(1, 2)) t as x limit 2",
    "select q.s from reward_points p, lateral (select p.points + 1 as s) q limit 1",
    "select count(*) from reward_points where account_id in (select account_id from reward_points)",
    "select (select max(points) from reward_points), exists(select 1 from reward_points)",
    "select row_number() over (partition by tier order by points) from reward_points limit 1",
    "select sum(points) over w from reward_points window w as (partition by tier) limit 1",
    "select * from reward_points pivot (count(account_id) for tier in ('base', 'premium')) limit 1",
    "select transform(array(1, 2), x -> x + 1), map('a', 1), named_struct('a', 1).a",
    "select count(distinct tier), approx_percentile(points, 0.5), count(*) filter (where true), "
    "percentile_cont(0.5) within group (order by points) from reward_points",
    "select tier, grouping(tier), sum(points) from reward_points group by rollup(tier)",
    "select 1 union all select 2 except select 3 intersect select 4",
    "select cast('1' as int), '1'::int, try_cast('x' as int), 'a' || 'b', -points, points % 2 "
    "from reward_points limit 1",
    "select date '2026-01-01', current_date(), now(), extract(year from current_date), "
    "date_trunc('month', current_date), interval 1 day, timestampadd(day, 1, current_date)",
    "select trim(both ' ' from ' x '), substring('abc' from 2 for 1), position('a' in 'ba')",
    "select case when tier like 'p%' then 1 else 0 end from reward_points limit 1",
    "select json_tuple('{\"a\": 1}', 'a'), from_json('{\"a\": 1}', 'a int')",
    "from reward_points |> where points > 1 |> aggregate count(*) group by tier",
    "with recursive r(n) as (select 1 union all select n + 1 from r where n < 5) select * from r",
    "values (1, 2), (3, 4)",
    "table reward_points",
    "select * from range(3)",
    "explain select * from reward_points",
    "explain extended select * from reward_points where points > 1",
    "describe reward_points",
    "describe extended gold.reward_points",
    "describe gold.reward_points points",
    "describe extended gold.reward_points points",
    "describe history gold.reward_points",
    "describe history reward_points limit 1",
    "describe detail gold.reward_points",
    "select _change_type, count(*) from table_changes('gold.reward_points', {version}) "
    "group by _change_type",
    "select * from table_changes('reward_points', {version}, {version}) limit 1",
    "show tblproperties gold.reward_points",
    "show table extended in gold like 'reward*'",
    "describe query select * from reward_points",
    "show columns in gold.reward_points",
    "show tables",
    "show tables in gold like 'reward*'",
    "show views in gold",
    "show current namespace",
    "set time zone 'UTC'",
    "set spark.sql.session.timeZone",
    "use default",
    "use spark_catalog.gold",
]


def test_a_reader_can_query_gold_with_all_of_sql(connect: Connect, shop_lake: ShopLake) -> None:
    mine, owners = connect("rita", database="gold"), connect("olga", database="gold")
    version = str(shop_lake.newest_version("gold", "reward_points"))
    found = {sql: rows(mine, sql.replace("{version}", version)) for sql in READS}
    for sql in READS[:3]:
        assert found[sql] == rows(owners, sql)


def test_an_analyst_sees_silver_as_gold_does(connect: Connect, shop_lake: ShopLake) -> None:
    ana = connect("ana")
    columns = ["id", "first_name", "last_name", "email_address"]
    selected = f"select {', '.join(columns)} from silver.users"
    seen = {row[0]: dict(zip(columns, row, strict=True)) for row in rows(ana, selected)}
    current = shop_lake.current("users")
    expected = {
        id: as_gold_sees({name: row[name] for name in columns}) for id, row in current.items()
    }
    assert seen == expected
    some = next(row for row in current.values() if row["first_name"])
    name, mail = some["first_name"], some["email_address"]
    then = f"silver.users_state version as of {shop_lake.newest_version('silver', 'users_state')}"
    for sql in (
        f"select count(*) from silver.users where first_name = '{name}'",
        f"select count(*) from silver.users_state where email_address = '{mail}'",
        "select count(*) from silver.users_state where length(first_name) <> 3",
        f"select count(*) from {then} where first_name = '{name}'",
        f"select count(*) from silver.enriched_orders where `user`.first_name = '{name}'",
        f"select count(*) from silver.users u join (values ('{name}')) v(n) on u.first_name = n",
        "select count(*) from silver.users having max(first_name) <> '***'",
        "select count(*) from silver.users where first_name not in ('***')",
    ):
        assert rows(ana, sql) == ([] if "having" in sql else [(0,)]), sql
    assert rows(ana, "select min(first_name), max(first_name) from silver.users_state") == [
        ("***", "***")
    ]
    assert rows(ana, "select distinct first_name from silver.users") == [("***",)]
    looked_up = "`user`.id, `user`.last_name, `user`.first_name, `user`.email_address"
    for id, last, first, mail in rows(
        ana, f"select {looked_up} from silver.enriched_orders where `user` is not null limit 100"
    ):
        assert (last, first, mail) == (current[id]["last_name"], None, None)
    feed = rows(ana, "select first_name, _change_type from table_changes('silver.users_state', 0)")
    assert "***" in {name for name, _ in feed} <= {"***", None}
    assert {kind for _, kind in feed} >= {"insert"}
    assert rows(ana, "describe history silver.reconciliation limit 1")
    assert "from" in rows(ana, "show create table silver.users")[0][0].lower()
    # Spark computes this one while it resolves the names of the statement around it.
    hidden = "select max(first_name) from silver.users_state"
    with pytest.raises(hive.OperationalError) as refused:
        rows(ana, f"select 1 from silver.users_state timestamp as of ({hidden})")
    assert "TIME_TRAVEL" in str(refused.value)
    assert max(row["first_name"] or "" for row in current.values()) not in str(refused.value)
    plan = rows(ana, "explain extended select id from silver.users where first_name = 'x'")[0][0]
    assert "***" in plan


def test_lists_show_only_what_a_role_may_see(connect: Connect) -> None:
    rita, ana = connect("rita"), connect("ana")
    assert rows(rita, "show schemas") == [("default",), ("gold",)]
    assert {name for (name,) in rows(ana, "show schemas")} == {"default", "gold", "silver"}
    shown = {row[1] for row in rows(ana, "show tables in silver")}
    assert {"users", "users_state", "enriched_orders", "missing_user"} <= shown
    assert "quarantine" not in shown
    assert {row[1] for row in rows(ana, "show table extended in silver like '*'")} == shown
    assert {row[1] for row in rows(rita, "show tables in gold")} >= {"reward_points", "runs"}


def calls(connection: Any) -> tuple[Any, Any]:
    """The raw client of a connection and the handle of its session."""
    return connection.client, connection.sessionHandle


def fetched(connection: Any, response: Any, column: int) -> set[str]:
    """The distinct values of a text column in the result of a call."""
    assert response.status.statusCode == ttypes.TStatusCode.SUCCESS_STATUS, response
    request = ttypes.TFetchResultsReq(
        response.operationHandle, ttypes.TFetchOrientation.FETCH_NEXT, 10_000
    )
    results = connection.client.FetchResults(request).results
    lengths = {len(next(v for v in vars(c).values() if v).values) for c in results.columns}
    assert len(lengths) == 1
    return set(results.columns[column].stringVal.values)


@pytest.mark.parametrize(
    ("user", "schemas", "hidden"),
    [("rita", {"gold"}, "users"), ("ana", {"gold", "silver"}, "quarantine")],
)
def test_the_metadata_calls_of_jdbc_tools_show_only_what_a_role_may_see(
    connect: Connect, user: str, schemas: set[str], hidden: str
) -> None:
    connection = connect(user)
    client, session = calls(connection)
    found = client.GetSchemas(ttypes.TGetSchemasReq(session))
    assert fetched(connection, found, 0) == {*schemas, "default"}
    found = client.GetTables(ttypes.TGetTablesReq(session, None, "%", "%"))
    assert fetched(connection, found, 1) == schemas
    found = client.GetTables(ttypes.TGetTablesReq(session, None, "%", "%"))
    assert hidden not in fetched(connection, found, 2)
    found = client.GetTables(
        ttypes.TGetTablesReq(session, None, "gold", "reward_points", ["TABLE"])
    )
    assert fetched(connection, found, 2) == {"reward_points"}
    found = client.GetColumns(ttypes.TGetColumnsReq(session, None, "%", "%", "%"))
    assert fetched(connection, found, 1) == schemas
    found = client.GetColumns(ttypes.TGetColumnsReq(session, None, "%", "%", "%"))
    assert hidden not in fetched(connection, found, 2)
    found = client.GetColumns(ttypes.TGetColumnsReq(session, None, "bronze", "%", "%"))
    assert fetched(connection, found, 2) == set()
    found = client.GetFunctions(ttypes.TGetFunctionsReq(session, None, "%", "%"))
    assert fetched(connection, found, 1) <= {*schemas, "default", ""}
    for call, request in (
        (client.GetCatalogs, ttypes.TGetCatalogsReq(session)),
        (client.GetTableTypes, ttypes.TGetTableTypesReq(session)),
        (client.GetTypeInfo, ttypes.TGetTypeInfoReq(session)),
        (client.GetInfo, ttypes.TGetInfoReq(session, ttypes.TGetInfoType.CLI_DBMS_NAME)),
    ):
        assert call(request).status.statusCode == ttypes.TStatusCode.SUCCESS_STATUS
    for call, request in (
        (client.GetDelegationToken, ttypes.TGetDelegationTokenReq(session, "olga", "olga")),
        (client.GetDelegationToken, ttypes.TGetDelegationTokenReq(session, user, user)),
        (client.RenewDelegationToken, ttypes.TRenewDelegationTokenReq(session, "x")),
        (client.CancelDelegationToken, ttypes.TCancelDelegationTokenReq(session, "x")),
    ):
        assert "may not call" in call(request).status.errorMessage


# By Delta's names of types: Spark's, and the number of `java.sql.Types`.
TYPES = {
    "string": ("STRING", 12),
    "long": ("BIGINT", -5),
    "integer": ("INT", 4),
    "double": ("DOUBLE", 8),
    "boolean": ("BOOLEAN", 16),
    "date": ("DATE", 91),
    "timestamp": ("TIMESTAMP", 93),
    "decimal(10,2)": ("DECIMAL(10,2)", 3),
}


def listed(result: Any, *columns: str) -> list[tuple[Any, ...]]:
    """The values of some columns of a JDBC result."""
    found = []
    while result.next():
        found.append(tuple(result.getObject(column) for column in columns))
    return found


@pytest.mark.parametrize("user", ROLES)
def test_the_calls_of_a_database_tool_are_answered_with_the_columns_of_tables(
    guarded: LakeSettings, shop_lake: ShopLake, user: str
) -> None:
    """The calls are those of DBeaver when a user opens its tree, by Hive's JDBC driver."""
    jvm: Any = shop_lake.spark._jvm  # noqa: SLF001
    login = jvm.java.util.Properties()
    login.setProperty("user", user)
    login.setProperty("password", PASSWORD)
    address = f"jdbc:hive2://127.0.0.1:{guarded.sql_port}/gold"
    connection = jvm.org.apache.hive.jdbc.HiveDriver().connect(address, login)
    try:
        about = connection.getMetaData()
        assert about.getDatabaseProductName() == "Spark SQL"
        assert about.getDatabaseProductVersion() == "4.2.0"
        assert about.getDriverName() == "Hive JDBC"
        listed(about.getCatalogs(), "TABLE_CAT")
        schemas = {name for (name,) in listed(about.getSchemas(), "TABLE_SCHEM")}
        may_see = {"rita": {"default", "gold"}, "ana": {"default", "gold", "silver"}}
        assert schemas == may_see.get(user, schemas)
        assert {"gold", "silver", "bronze"} <= schemas or user != "olga"
        assert {"TABLE", "VIEW"} <= {t for (t,) in listed(about.getTableTypes(), "TABLE_TYPE")}
        assert ("BIGINT", -5) in listed(about.getTypeInfo(), "TYPE_NAME", "DATA_TYPE")
        compared = 0
        for schema in sorted(schemas & {"gold", "silver", "bronze"}):
            tables = listed(about.getTables(None, schema, "%", None), "TABLE_NAME", "TABLE_TYPE")
            columns = listed(
                about.getColumns(None, schema, "%", "%"),
                *("TABLE_NAME", "COLUMN_NAME", "TYPE_NAME", "DATA_TYPE"),
            )
            assert {name for name, *_ in columns} == {name for name, _ in tables}
            for table, kind in tables:
                if kind == "VIEW":
                    continue
                fields = DeltaTable(guarded.table_path(schema, table)).schema().fields
                shown = [(name, *type) for each, name, *type in columns if each == table]
                assert [name for name, *_ in shown] == [field.name for field in fields]
                for (_, *type), field in zip(shown, fields, strict=True):
                    if getattr(field.type, "type", None) in TYPES:
                        assert tuple(type) == TYPES[field.type.type], field
                        compared += 1
        assert compared > 10
        one = about.getColumns(None, "gold", "reward\\_points", "p%")
        assert listed(one, "TABLE_NAME", "COLUMN_NAME") == [("reward_points", "points")]
        for keys in (
            about.getPrimaryKeys(None, "gold", "reward_points"),
            about.getImportedKeys(None, "gold", "reward_points"),
            about.getIndexInfo(None, "gold", "reward_points", False, True),
            about.getCrossReference(None, "gold", "reward_points", None, "gold", "cuts"),
            about.getProcedures(None, "gold", "%"),
            about.getUDTs(None, "gold", "%", None),
        ):
            assert not keys.next()
        for schema, table in (("bronze", "users"), ("silver", "quarantine"), (None, "users")):
            if user == "olga":
                continue
            with pytest.raises(Py4JJavaError, match=f"The role '{ROLES[user]}' may not read"):
                about.getPrimaryKeys(None, schema, table)
            with pytest.raises(Py4JJavaError, match=f"The role '{ROLES[user]}' may not read"):
                about.getCrossReference(None, "gold", "reward_points", None, schema, table)
        named = listed(about.getFunctions(None, None, "upper"), "FUNCTION_NAME")
        assert set(named) == {("upper",)}  # for each schema
    finally:
        connection.close()


ADDRESSES = [  # of beeline and other clients of Hive's driver
    "gold;hive.server2.proxy.user=olga",
    "gold?hive.exec.pre.hooks=x",
    "gold?spark.sql.variable.substitute=true",
    "gold?system:lakehouse.sql.users=/tmp/x",
    "gold#spark.sql.extensions=x",
    "gold#system:user.name=olga",
    "bronze",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_of_jdbc_brings_no_settings_and_no_other_user(
    guarded: LakeSettings, shop_lake: ShopLake, address: str
) -> None:
    jvm: Any = shop_lake.spark._jvm  # noqa: SLF001
    login = jvm.java.util.Properties()
    login.setProperty("user", "rita")
    login.setProperty("password", PASSWORD)
    whole = f"jdbc:hive2://127.0.0.1:{guarded.sql_port}/{address}"
    with pytest.raises(Py4JJavaError, match="The role 'reader' may not"):
        jvm.org.apache.hive.jdbc.HiveDriver().connect(whole, login)


PROBES = [  # of Tableau, which tries out whether it can create temporary tables
    "create temporary table `#Tableau_1_Connect` (col int)",
    "create global temporary table tableau_1_connect (col int)",
    "create temporary table tableau_1 as select 1 as a",
    "create local temporary table tableau_1 (col int)",
    "drop table if exists `#Tableau_1_Connect`",
    "select top 1 * from gold.reward_points into temp",
]


@pytest.mark.parametrize("user", ["rita", "ana"])
def test_temporary_tables_are_refused_and_the_connection_stays_usable(
    connect: Connect, user: str
) -> None:
    connection = connect(user, database="gold")
    for probe in PROBES:
        said = refusal(connection, probe)
        assert is_refused(said), said
        assert "Traceback" not in said
    assert rows(connection, "select 1") == [(1,)]


REFUSED_SESSIONS = [
    {"hive.server2.proxy.user": "olga"},
    {"set:system:lakehouse.sql.users": "/x"},
    {"set:system:user.name": "olga"},
    {"set:hivevar:spark.sql.variable.substitute": "true"},
    {"set:hiveconf:spark.sql.variable.substitute": "true"},
    {"set:hiveconf:hive.exec.pre.hooks": "x"},
    {"set:metaconf:hive.metastore.try.direct.sql": "true"},
    {"spark.sql.extensions": "x"},
    {"use:database": "silver.quarantine"},
    {"use:database": "bronze"},
    {"use:database": "identifier(reflect('java.lang.System', 'exit', 1))"},
    {"use:database": "gold; drop table gold.reward_points"},
]


@pytest.mark.parametrize("configuration", REFUSED_SESSIONS, ids=str)
def test_a_session_opens_only_for_its_user_and_without_settings(
    connect: Connect, configuration: dict[str, str]
) -> None:
    client, _ = calls(connect("rita"))
    request = ttypes.TOpenSessionReq(
        client_protocol=ttypes.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V6,
        configuration=configuration,
        username="olga",
    )
    assert "The role 'reader' may not" in client.OpenSession(request).status.errorMessage


def test_the_name_in_the_request_for_a_session_does_not_count(connect: Connect) -> None:
    client, _ = calls(connect("rita"))
    request = ttypes.TOpenSessionReq(
        client_protocol=ttypes.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V6,
        configuration={"use:database": "gold"},
        username="olga",
        password=PASSWORD,
    )
    opened = client.OpenSession(request)
    assert opened.status.statusCode == ttypes.TStatusCode.SUCCESS_STATUS
    session = opened.sessionHandle
    asked = client.ExecuteStatement(
        ttypes.TExecuteStatementReq(session, "select * from bronze.users")
    )
    assert "The role 'reader' may not read bronze.users" in asked.status.errorMessage
    client.CloseSession(ttypes.TCloseSessionReq(session))


def test_handles_of_others_cannot_be_used(connect: Connect) -> None:
    olga, rita = connect("olga"), connect("rita")
    client, session = calls(olga)
    running = client.ExecuteStatement(
        ttypes.TExecuteStatementReq(session, "select 'of Olga'", runAsync=True)
    ).operationHandle
    attacker, _ = calls(rita)
    on_session = [
        (attacker.ExecuteStatement, ttypes.TExecuteStatementReq(session, "select 1")),
        (attacker.CloseSession, ttypes.TCloseSessionReq(session)),
        (attacker.GetTables, ttypes.TGetTablesReq(session, None, "%", "%")),
        (attacker.GetInfo, ttypes.TGetInfoReq(session, ttypes.TGetInfoType.CLI_DBMS_NAME)),
    ]
    on_operation = [
        (attacker.GetOperationStatus, ttypes.TGetOperationStatusReq(running)),
        (attacker.CancelOperation, ttypes.TCancelOperationReq(running)),
        (attacker.CloseOperation, ttypes.TCloseOperationReq(running)),
        (attacker.GetResultSetMetadata, ttypes.TGetResultSetMetadataReq(running)),
        (
            attacker.FetchResults,
            ttypes.TFetchResultsReq(running, ttypes.TFetchOrientation.FETCH_NEXT, 1),
        ),
    ]
    for call, request in on_session + on_operation:
        assert "a session that is not his own" in call(request).status.errorMessage
    until(lambda: is_finished(client, running))
    fetch = ttypes.TFetchResultsReq(running, ttypes.TFetchOrientation.FETCH_NEXT, 1)
    assert client.FetchResults(fetch).results.columns[0].stringVal.values == ["of Olga"]


def is_finished(client: Any, operation: Any) -> bool:
    status = client.GetOperationStatus(ttypes.TGetOperationStatusReq(operation))
    return bool(status.operationState == ttypes.TOperationState.FINISHED_STATE)


def until(condition: Callable[[], object]) -> None:
    """Wait until the condition holds."""

    def holds() -> None:
        assert condition()

    Retrying(stop=stop_after_delay(20), wait=wait_fixed(0.05), reraise=True)(holds)


def test_statements_that_are_too_long_or_bring_settings_are_refused(connect: Connect) -> None:
    client, session = calls(connect("rita"))
    long = f"select '{'x' * 1_000_001}'"
    for request, says in (
        (ttypes.TExecuteStatementReq(session, long), "of more than 1000000 characters"),
        (ttypes.TExecuteStatementReq(session, "select 1", {"a": "b"}), "settings of its own"),
    ):
        assert says in client.ExecuteStatement(request).status.errorMessage


@pytest.mark.parametrize("end", ["removed", "lowered"])
def test_open_connections_and_statements_end_with_the_rights_of_their_user(
    guarded: LakeSettings, connect: Connect, end: str
) -> None:
    add_user(guarded, "leo", PASSWORD, "owner")
    idle, busy = connect("leo"), connect("leo")
    assert rows(idle, "select count(*) from bronze.users")
    client, session = calls(busy)
    slow = "select count(*) from range(1000000000000) where hash(id) = 7"
    running = client.ExecuteStatement(ttypes.TExecuteStatementReq(session, slow, runAsync=True))
    assert running.status.statusCode == ttypes.TStatusCode.SUCCESS_STATUS
    if end == "removed":
        remove_user(guarded, "leo")
        with pytest.raises((hive.OperationalError, TTransportException)):
            connect("leo")
    else:
        change_role(guarded, "leo", "reader")
    said = refusal(idle, "select 1")  # at once
    assert ("may no longer log in" if end == "removed" else "has changed. Connect again") in said
    if end == "lowered":
        again = connect("leo")
        assert "The role 'reader' may not" in refusal(again, "select count(*) from bronze.users")
        until(lambda: gone(calls(again)[0], running.operationHandle))
        remove_user(guarded, "leo")


def gone(client: Any, operation: Any) -> bool:
    """Whether an operation no longer exists."""
    status = client.GetOperationStatus(ttypes.TGetOperationStatusReq(operation)).status
    return "Invalid OperationHandle" in str(status.errorMessage)


def test_limits_of_rows_time_and_statements_are_kept(
    guarded: LakeSettings, connect: Connect, shop_lake: ShopLake
) -> None:
    few = {"reader": {"rows": 10, "values": 40, "seconds": 8, "statements": 1}}
    own = {"sql_port": free_port(), "sql_roles": load_settings(sql_roles=few).sql_roles}
    settings = guarded.model_copy(update=own)
    serving = start_endpoint(shop_lake.spark, settings)
    try:
        rita = settings.model_copy(update={"sql_user": "rita"})
        assert len(query_endpoint(rita, "select * from range(10)")[1]) == 10
        with pytest.raises(SqlError, match="may not read more than 10 rows of a result with 1 col"):
            query_endpoint(rita, "select * from range(11)")
        # A row that is not read is not computed either, and takes no memory.
        seventh = "if(id > 6, raise_error('computed'), id)"
        wide = f"select id, id, id, id, id, id, id, {seventh} as last from range"
        assert len(query_endpoint(rita, f"{wide}(5)")[1]) == 5
        for sql in (f"{wide}(99)", f"with w as (from range(99)) {wide.replace('range', 'w')}"):
            with pytest.raises(SqlError, match="may not read more than 5 rows of a result with 8"):
                query_endpoint(rita, sql)
        reader = serving.reader  # of the console
        assert (reader.most_rows, reader.most_seconds) == (10, 8)
        found = reader.run(shop_lake.topics, [], "a", "select 'x' as audited", "10.1.2.3")
        assert isinstance(found, Answer)
        assert found.rows == [["x"]]
        cut = reader.run(shop_lake.topics, [], "c", f"{wide}(99)", "")
        assert isinstance(cut, Answer)
        assert (len(cut.rows), cut.is_cut) == (5, True)
        refused = reader.run(shop_lake.topics, [], "b", "drop table gold.reward_points", "")
        assert isinstance(refused, Refusal)
        assert "The role 'reader' may not run DropTable" in refused.why
        slow = "select count(*) from range(1000000000000) where hash(id) = 7"
        with pytest.raises(SqlError, match=r"(?i)time|cancel"):
            query_endpoint(rita, slow)
        connections = [connect("rita", settings.sql_port) for _ in range(18)]
        client, session = calls(connections[0])
        asked = client.ExecuteStatement(ttypes.TExecuteStatementReq(session, slow, runAsync=True))
        assert asked.status.statusCode == ttypes.TStatusCode.SUCCESS_STATUS
        with ThreadPoolExecutor(17) as pool:  # sixteen of hers wait until the first has ended
            waiting = [pool.submit(rows, each, "select 1") for each in connections[1:]]
            [refused] = wait(waiting, return_when=FIRST_COMPLETED).done
            assert "than 1 statements at a time, while 16 others wait" in str(refused.exception())
            assert query_endpoint(settings, "select 2")[1] == [(2,)]
            client.CancelOperation(ttypes.TCancelOperationReq(asked.operationHandle))
            assert not wait(waiting, 60).not_done
            assert [each.result() for each in waiting if each is not refused] == [[(1,)]] * 16
        tracker = shop_lake.spark.sparkContext.statusTracker()
        until(lambda: not tracker.getActiveJobsIds())
    finally:
        serving.stop()
    audited = query_endpoint(
        guarded,
        "select outcome, role, address, statement, rows from bronze.sql_statements "
        "where `user` = 'console' order by begun_at",
    )[1]
    assert audited == [
        ("done", "reader", "10.1.2.3", "select ? as audited", 1),
        ("done", "reader", "", re.sub(r"\b\d+\b|'\w+'", "?", f"{wide}(99)"), 5),
        ("refused", "reader", "", "drop table gold.reward_points", 0),
    ]


def test_statements_of_readers_and_analysts_wait_until_others_have_ended(
    guarded: LakeSettings, connect: Connect, shop_lake: ShopLake
) -> None:
    slow = "select count(*) from range(1000000000000) where hash(id) = 7"
    most = max(1, (os.cpu_count() or 1) // 2)
    users = [f"busy{n // 4}" for n in range(most)]  # each may run four
    for user in {*users}:
        add_user(guarded, user, PASSWORD, "analyst")
    busy = [calls(connect(user)) for user in users]
    asked = [
        client.ExecuteStatement(ttypes.TExecuteStatementReq(session, slow, runAsync=True))
        for client, session in busy
    ]
    assert {each.status.statusCode for each in asked} == {ttypes.TStatusCode.SUCCESS_STATUS}
    olga, rita = connect("olga"), connect("rita")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(rows, rita, "select 1")
        for _ in range(5):
            assert rows(olga, "select count(*) from gold.reward_points")
        assert not waiting.done()
        busy[0][0].CancelOperation(ttypes.TCancelOperationReq(asked[0].operationHandle))
        assert waiting.result(60) == [(1,)]
    for (client, _), each in zip(busy, asked, strict=True):
        client.CancelOperation(ttypes.TCancelOperationReq(each.operationHandle))
    tracker = shop_lake.spark.sparkContext.statusTracker()
    until(lambda: not tracker.getActiveJobsIds())


def test_the_product_works_as_its_owner(guarded: LakeSettings) -> None:
    assert query_endpoint(guarded, "select reflect('java.lang.Math', 'abs', -2)")[1] == [("2",)]
    query_endpoint(guarded, "create table gold.of_olga using delta as select 1 as a")
    assert query_endpoint(guarded, "select * from gold.of_olga")[1] == [(1,)]
    query_endpoint(guarded, "drop table gold.of_olga")
    some = query_endpoint(guarded, "select max(first_name) from silver.users")[1]
    assert some != [("***",)]
    with pytest.raises(SqlError, match="^The role 'reader' may not run DropTable"):
        query_endpoint(
            guarded.model_copy(update={"sql_user": "rita"}), "drop table gold.reward_points"
        )


def test_the_lists_are_those_of_this_release_of_spark(
    guarded: LakeSettings, shop_lake: ShopLake
) -> None:
    """The lists must be reviewed with each release, which may add to the groups of functions."""
    jvm: Any = shop_lake.spark._jvm  # noqa: SLF001
    assert (shop_lake.spark.version, FUNCTIONS) == ("4.2.0", functions(jvm))
    unknown = [name for name in jvm.lakehouse.PlanGuard.listed() if not exists(jvm, name)]
    assert unknown == []


def functions(jvm: Any) -> int:
    """The number of functions that Spark has."""
    builtin = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
    return int(builtin.listFunction().size())


def exists(jvm: Any, name: str) -> bool:
    try:
        jvm.Class.forName(name)
    except Py4JJavaError:
        return False
    return True


def test_the_audit_shows_who_has_run_what_without_values(
    guarded: LakeSettings, connect: Connect, shop_lake: ShopLake
) -> None:
    name = next(row["first_name"] for row in shop_lake.current("users").values())
    ana, olga = connect("ana"), connect("olga")
    rows(ana, f"select id as audited from silver.users where first_name <> '{name}' limit 3")
    refusal(ana, f"select '{name}' as audited from bronze.users")
    refusal(ana, f"select cast('{name}' as int) as audited")

    def records() -> list[tuple[Any, ...]]:
        return rows(
            olga,
            "select outcome, `user`, role, address, statement, rows, error "
            "from bronze.sql_statements where statement like '%audited%' and `user` = 'ana' "
            "order by begun_at",
        )

    until(lambda: len(records()) == 3)
    who = ("ana", "analyst", "127.0.0.1")
    first = "select id as audited from silver.users where first_name <> ? limit ?"
    assert records() == [
        ("done", *who, first, 3, None),
        ("refused", *who, "select ? as audited from bronze.users", 0, None),
        ("failed", *who, "select cast(? as int) as audited", 0, "CAST_INVALID_INPUT"),
    ]
    assert "The role 'analyst' may not read" in refusal(ana, "select * from bronze.sql_statements")


def test_spark_connect_lets_in_only_who_has_the_token(
    guarded: LakeSettings, shop_lake: ShopLake, tmp_path: Path
) -> None:
    pytest.importorskip("grpc", reason="the Spark Connect client is not installed")
    (tmp_path / "token").touch(mode=0o600)
    (tmp_path / "token").write_text("of-the-owners")
    own = {"connect_port": free_port(), "connect_token_file": tmp_path / "token"}
    served = guarded.model_copy(update=own)

    def runs(token: str) -> subprocess.CompletedProcess[str]:
        address = f"sc://localhost:{served.connect_port}/{token}"  # as the client demands
        code = (
            "from pyspark.sql import SparkSession\n"
            f"spark = SparkSession.builder.remote('{address}').getOrCreate()\n"
            "print(spark.sql('select 40 + 2').collect()[0][0])"
        )
        command = [sys.executable, "-c", code]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    with spark_connect(shop_lake.spark, served):
        assert runs(";token=of-the-owners").stdout == "42\n"
        for token in ("", ";token=guessed", ";user_id=olga"):
            refused = runs(token)
            assert refused.returncode != 0
            assert "42" not in refused.stdout
        settings = query_endpoint(guarded, "set -v")[1]
        assert not any("of-the-owners" in str(row) for row in settings)


def harmless(sql: str, connection: Any) -> list[tuple[Any, ...]]:
    """Run a random statement; errors are as good as rows."""
    try:
        return rows(connection, sql)
    except hive.OperationalError:
        return []
    except Exception as error:
        if "Cannot convert" not in str(error):  # for which PyHive has no class of its own
            raise
        return [(str(error),)]


@pytest.fixture
def first_names(shop_lake: ShopLake) -> re.Pattern[str]:
    """What finds a first name of a user, which nobody but owners may see."""
    users = shop_lake.current("users").values()
    secret = {row["first_name"] for row in users} - {row["last_name"] for row in users} - {None}
    long = sorted(name for name in secret if len(name) > 1)  # a letter may be in an error
    return re.compile("|".join(rf"\b{re.escape(name)}\b" for name in long))


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(each, marks=pytest.mark.nightly) for each in range(2, 20))]
)
def test_random_statements_never_show_or_change_what_is_forbidden(
    guarded: LakeSettings, connect: Connect, first_names: re.Pattern[str], seed: int
) -> None:
    """Statements from a grammar mix what is allowed with what is not.

    What is forbidden to both holds the first names of users, which must appear in no result.
    """
    draw = random.Random(seed)
    owner = connect("olga")
    before = state(guarded, owner)
    ran = 0
    for user in ("rita", "ana"):
        attacker = connect(user, database="gold")
        for _ in range(20):
            sql = random_statement(draw, GRAMMAR)
            found = harmless(sql, attacker)
            ran += bool(found)
            assert not first_names.search(str(found)), sql
    assert ran  # the grammar does not only make what is refused
    assert state(guarded, owner) == before


NAMED_TABLE = re.compile(r"\b(from|join|into|table|view|using)\s+[a-z_][\w.]*", re.IGNORECASE)


@pytest.mark.nightly
@pytest.mark.parametrize("user", ["rita", "ana"])
def test_the_statements_of_sparks_own_tests_show_and_change_nothing_forbidden(
    guarded: LakeSettings,
    connect: Connect,
    shop_lake: ShopLake,
    first_names: re.Pattern[str],
    user: str,
) -> None:
    """Half of the statements name tables of the lake instead of those of Spark's tests."""
    draw = random.Random(7)

    def renamed(named: re.Match[str]) -> str:
        return f"{named[1]} {draw.choice(GRAMMAR['table'])}"

    brief = load_settings(sql_roles={role: {"seconds": 10} for role in ("reader", "analyst")})
    own = {"sql_port": free_port(), "sql_roles": brief.sql_roles}
    settings = guarded.model_copy(update=own)
    owner, ran = connect("olga"), 0
    before = state(guarded, owner)
    serving = start_endpoint(shop_lake.spark, settings)
    try:
        attacker = connect(user, settings.sql_port, database="gold")
        for sql in draw.sample(spark_inputs(), SPARK_INPUTS):
            tried = NAMED_TABLE.sub(renamed, sql) if draw.random() < 0.5 else sql
            found = harmless(tried, attacker)
            ran += bool(found)
            assert not {*first_names.findall(str(found))} - {*first_names.findall(tried)}, tried
        assert rows(attacker, "select count(*) from gold.reward_points")[0][0] > 0
    finally:
        serving.stop()
    assert ran > SPARK_INPUTS / 10
    assert state(guarded, owner) == before


@pytest.mark.nightly
def test_deep_nesting_ends_only_its_own_statement(connect: Connect) -> None:
    rita = connect("rita")
    for deep in ("(" * 10_000 + "1" + ")" * 10_000, "-" * 9_999 + " 1", "not " * 10_000 + "true"):
        refusal(rita, f"select {deep}")
        assert rows(rita, "select 1") == [(1,)]


def test_a_policy_names_tables_roles_and_masks(tmp_path: Path) -> None:
    given = {"reader": {"tables": ["gold", "silver.items", "Marts"], "rows": 5}}
    settings = load_settings(home=tmp_path, sql_roles=given)
    topics = load_topics(settings.topics)
    found = json.loads(policy(settings, topics))["roles"]
    assert found["reader"]["tables"] == {"gold": ["*"], "silver": ["items"], "marts": ["*"]}
    assert found["reader"]["rows"] == 5
    assert "users" in found["analyst"]["tables"]["silver"]
    assert "quarantine" not in found["analyst"]["tables"]["silver"]
    assert masks(topics) == {}  # the shop keeps its fields
    with pytest.raises(SettingsError, match="not the name of a schema"):
        load_settings(home=tmp_path, sql_roles={"reader": {"tables": ["a.b.c"]}})
    with pytest.raises(SettingsError, match="sql_roles"):
        load_settings(home=tmp_path, sql_roles={"owner": {"tables": ["gold"]}})
