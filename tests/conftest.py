"""Shared fixtures: one broker and one Spark session for all tests of a process.

Tests that use them are marked `jvm`, those on an S3 server `s3`, those that start other programs
`programs`. `make test` runs the suite in two parallel processes, which take the tests group by
group.
"""

import os
import signal
import sys
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from collector import Collector, collecting
from first_difference import first_difference
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from java_client import JavaClient, java_gateway
from personal import protection
from postgres_server import PostgresServer
from postgres_server import serving as serving_postgres
from pyspark.sql import SparkSession
from s3_server import ADDRESS, BUCKET, CREDENTIALS, S3Server, serving
from shop_lake import ShopLake

from gold.build import build_gold
from gold.catalog import register
from gold.dbt.results import BuildResult
from lake.settings.settings import LakeSettings, load_settings
from lake.tables.lake import Lake
from lake.topics.topic_file import load_topics
from lakehouse.runtime import session as runtime
from lakehouse.runtime.broker import Broker, start_broker
from lakehouse.runtime.ports import free_port
from lakehouse.runtime.session import build_session
from lakehouse.sql.endpoint import start_endpoint
from shop.generate import generate_shop

SHARED = Path(__file__).resolve().parents[2] / "shared"
JVM_FIXTURES = {"spark", "broker", "endpoint"}
ODD = """o'brien "x" ü"""  # a folder name; each odd character must be quoted somewhere
# The files that take longest, in seconds on two idle cores. Others take at most 30 s.
SECONDS = {
    **{"test_materialized": 250, "test_demo": 150, "test_run": 90, "test_refine": 80},
    **{"test_keeper": 80, "test_publish_table": 70, "test_tombstones": 60, "test_joins": 55},
    **{"test_rebuild": 55, "test_ingest": 50, "test_metrics": 45, "test_schemas": 45},
    **{"test_differential": 40, "test_addresses": 40, "test_computed": 40, "test_nested": 35},
    **{"test_maintenance": 35, "test_quarantine": 35, "test_message_fields": 35},
}
SHOP = "shop"  # the group of all tests on the generated shop's lake

# Python would compile each module again in every process that the tests start.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["LAKEHOUSE_RESTARTS"] = "0"  # a failure shows at once, without restarts
# The suite runs most code too seldom for the slower compiler to pay off as early as by default.
os.environ["LAKEHOUSE_JAVA_OPTIONS"] = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
# The tables of most tests have few rows, and each task costs more than its rows do. Processes that
# the tests start have the partitions of users.
FEWER_TASKS = {
    **{"spark.sql.shuffle.partitions": 2, "spark.default.parallelism": 2},
    "spark.databricks.delta.snapshotPartitions": 1,
}
os.environ["LAKEHOUSE_WARM_UP"] = "false"  # it would train beside the tests
os.environ.update(CREDENTIALS)  # before Java starts, which reads them


def pytest_configure(config: pytest.Config) -> None:
    """Let properties be tested with the same few examples each time, and with others at night.

    A machine that is busy fails no test: nothing depends on how long an example takes.
    """
    slow: Any = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
    hypothesis_settings.register_profile("suite", derandomize=True, max_examples=50, **slow)
    hypothesis_settings.register_profile("nightly", **slow)
    hypothesis_settings.load_profile("nightly" if runs_at_night(config) else "suite")


def runs_at_night(config: pytest.Config) -> bool:
    """Whether nightly tests run, too."""
    return "nightly" not in config.option.markexpr


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a file whose tests all run at night, and whose imports take seconds."""
    is_left_out = collection_path.name == "test_dbt_adapter.py" and not runs_at_night(config)
    return True if is_left_out else None  # None: pytest decides


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if JVM_FIXTURES & set(fixtures_of(item)):
            item.add_marker(pytest.mark.jvm)
        if "postgres" in fixtures_of(item):
            item.add_marker(pytest.mark.programs)
        if uses_s3(item):  # building its server takes minutes
            item.add_marker(pytest.mark.s3)
            item.add_marker(pytest.mark.nightly)
        item.add_marker(pytest.mark.xdist_group(group_of(item)))
    # The longest groups first, so that no process is still busy with one when the other is done.
    items.sort(
        key=lambda item: (
            group_of(item) != SHOP,
            -SECONDS.get(item.path.stem, 0),
        )
    )


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Explain a failed comparison of tables by the first key that differs."""
    found = first_difference(left, right) if op == "==" else None
    return found and [f"{type(left).__name__} == {type(right).__name__}", *found]


def group_of(item: pytest.Item) -> str:
    """Return the group of a test; the tests of a group run one after another in one process."""
    return SHOP if "shop_lake" in fixtures_of(item) else str(item.path)


def uses_s3(item: pytest.Item) -> bool:
    """Whether a test asks for the S3 server, by a fixture or because it runs on a bucket."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    return "s3" in fixtures_of(item) or "bucket" in parameters.values()


def fixtures_of(item: pytest.Item) -> Collection[str]:
    return getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def is_nightly(request: pytest.FixtureRequest) -> bool:
    """Whether nightly tests run, too. Some tests go further then, in the same lake."""
    return runs_at_night(request.config)


@pytest.fixture(scope="session")
def suite_settings(tmp_path_factory: pytest.TempPathFactory) -> LakeSettings:
    """Settings of the suite's broker and session; tests use `settings`, which has its own lake."""
    return load_settings(
        home=tmp_path_factory.mktemp("suite"),
        pulsar_url=f"pulsar://127.0.0.1:{free_port()}",
        pulsar_admin_url=f"http://127.0.0.1:{free_port()}",
        sql_port=free_port(),
    )


@pytest.fixture(scope="session")
def broker(suite_settings: LakeSettings) -> Iterator[Broker]:
    often = {"backlogQuotaCheckIntervalInSeconds": "1"}
    extra = {"transactionCoordinatorEnabled": "true", **often}
    running = start_broker(suite_settings, extra=extra)
    yield running
    os.kill(running.pid, signal.SIGKILL)  # with so many topics, it takes 20 seconds to stop


@pytest.fixture(scope="session")
def java(suite_settings: LakeSettings, broker: Broker) -> Iterator[JavaClient]:
    """A client of the suite's broker for features that the Python client lacks."""
    with java_gateway(suite_settings) as gateway:
        client = JavaClient(gateway, suite_settings.pulsar_url)
        yield client
        client.close()


@pytest.fixture(scope="session")
def spark(
    suite_settings: LakeSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    bucket = {"lake": f"s3://{BUCKET}", "s3_endpoint": ADDRESS}  # it reads folders, too
    # Most plans of the suite run once, on few rows: to compile them costs a tenth of its time. The
    # tests that start processes of their own compile them, as users do.
    interpreted = f"{suite_settings.java_options} -Dspark.sql.codegen.wholeStage=false"
    # Its endpoints may check passwords.
    able = {**bucket, "sql_authentication": "password", "java_options": interpreted}
    defaults = tmp_path_factory.mktemp("conf") / "spark-defaults.conf"
    lines = [f"{name} {number}\n" for name, number in FEWER_TASKS.items()]
    defaults.write_text(Path(runtime.DEFAULTS).read_text() + "".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "DEFAULTS", str(defaults))
        session = build_session(suite_settings.model_copy(update=able), "tests")
    for name, number in FEWER_TASKS.items():
        assert session.conf.get(name, None) == str(number), name
    yield session
    session.stop()


@pytest.fixture
def settings(suite_settings: LakeSettings, tmp_path: Path) -> LakeSettings:
    """Settings with the suite's broker and ports, and a home, lake and namespace of their own."""
    own = {"home": tmp_path / "home", "pulsar_namespace": f"public/{uuid.uuid4().hex}"}
    return suite_settings.model_copy(update=own)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The S3 server whose bucket the suite's Spark is configured for."""
    with serving(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server. Each test creates its own database, and may restart the server."""
    with serving_postgres() as server:
        yield server


@pytest.fixture
def bucket(settings: LakeSettings, s3: S3Server) -> LakeSettings:
    """Settings whose tables are in the bucket, below a prefix of their own."""
    own = {"lake": f"s3://{BUCKET}/{uuid.uuid4().hex}", "s3_endpoint": s3.address}
    return settings.model_copy(update=own)


@pytest.fixture(scope="session")
def shop_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small generated shop."""
    folder = tmp_path_factory.mktemp("shop")
    generate_shop(folder, scale=0.03, seed=7)
    return folder


@pytest.fixture(scope="session")
def collector() -> Iterator[Collector]:
    """The collector of the generated shop's lineage events."""
    with collecting() as running:
        yield running


@pytest.fixture(scope="session")
def shop_lake(
    spark: SparkSession,
    broker: Broker,
    suite_settings: LakeSettings,
    shop_files: Path,
    collector: Collector,
) -> ShopLake:
    """The generated shop, landed and refined, with bronze and silver registered in SQL.

    Gold reads users with masked and hashed fields, and the lake's folder has an odd name. So all
    tests of gold cover both. A lineage event is sent for every batch.
    """
    own = {
        "lake": suite_settings.home_dir / ODD,
        "pulsar_namespace": f"public/{uuid.uuid4().hex}",
        "lineage": True,
        "lineage_seconds": 0,
        **protection(suite_settings.home_dir),
    }
    settings = suite_settings.model_copy(update=own)
    lake = ShopLake(spark, settings, load_topics(settings.topics))
    lake.fill(shop_files)
    # The remains of a model that was being created when dbt was killed.
    begun = Path(settings.table_path("gold_build", "stg_users"))
    (begun / "_delta_log" / "_staged_commits").mkdir(parents=True)
    pq.write_table(pa.table({"user_id": [1]}), begun / "part-00000-begun.snappy.parquet")
    register(spark, lake.lake)
    return lake


@pytest.fixture(scope="session")
def endpoint(shop_lake: ShopLake) -> Iterator[LakeSettings]:
    """The SQL endpoint on the generated shop's lake."""
    serving = start_endpoint(shop_lake.spark, shop_lake.settings)
    yield shop_lake.settings
    serving.stop()


@pytest.fixture(scope="session")
def gold(endpoint: LakeSettings) -> BuildResult:
    """Gold, built for the first time from the generated shop."""
    return build_gold(Lake(endpoint))


@pytest.fixture(autouse=True)
def no_query_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "spark" in request.fixturenames:
        left = request.getfixturevalue("spark").streams.active
        for query in left:
            query.stop()
        assert not left, f"queries left running: {[query.name for query in left]}"


@pytest.fixture(scope="session")
def shop_data() -> Path:
    folder = SHARED / "data" / "shop"
    if not folder.is_dir():
        pytest.skip("needs ../shared/data/shop")
    return folder
