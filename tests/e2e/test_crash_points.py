"""Tests that each command, killed at any durable write and run again, ends as if undisturbed.

`make test` tries a seeded sample of the points of the commands that need no streams, `make nightly`
all points of all commands. Register a new command in `SCENARIOS`, or in `EXEMPT` with the reason.
"""

import contextlib
import datetime as dt
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pulsar
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from crash_points import ALL, SAMPLE, BrokerSide, Point, Recording, Subscriptions, Watcher
from deltalake import DeltaTable, write_deltalake
from live_shop import until
from messages import PEOPLE_AND_VISITS, item, message, order, user
from personal import SECRET
from pyspark.sql import SparkSession
from shop_lake import ShopLake
from silver_lake import SilverLake
from topic import declared

from bronze import upkeep
from bronze.expiry import standing
from bronze.ingest import ingest, subscription
from bronze.replay import replay_topic
from gold.lock import alone
from gold.own import marked
from gold.publish import publish, undo_unpublished
from gold.tables import BUILT, last_published
from gold.tables import CUTS as GOLD_CUTS
from lake.durable import PRIVATE
from lake.settings.settings import SHOP_TOPICS, LakeSettings, load_settings
from lake.streams.checkpoint import interrupted, reader_id
from lake.streams.job import await_streams
from lake.streams.rewind import Place
from lake.tables.lake import Lake
from lake.topics.topic import Topic
from lake.topics.topic_file import TopicFile
from lakehouse.cli import app
from lakehouse.erasure import plan, run
from lakehouse.messages.generate import generate as generate_messages
from lakehouse.messages.publish import create_topics
from lakehouse.messages.publish_table import Form, publish_table
from lakehouse.operate import savepoints
from lakehouse.operate.backup import back_up
from lakehouse.operate.backup_store import BackupStore
from lakehouse.operate.reset import reset, what_goes
from lakehouse.operate.restore import read_backup, restore
from lakehouse.sinks.running import chosen, run_sinks
from lakehouse.sql import users
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.errors import CheckpointError, SettingsError
from shop.generate import generate_shop
from silver import maintenance, quarantine
from silver.part import Part
from silver.quarantine import Selection
from silver.rebuild import rebuild
from silver.refine import refine

pytestmark = pytest.mark.timeout(4 * 3600 if ALL else 900)

EXEMPT = {
    "demo": "starts with an empty lake; its parts are `publish`, `bronze`, `silver` and `gold`",
    "up": "runs `bronze` and `silver`, and serves SQL",
    "publish": "writes only to the broker, each message once per run; silver keeps one row per key",
    "imports": "writes to the broker and a cache of what its topic holds; see "
    "lakehouse/imports/test_importer.py",
    "init": "moves a whole folder to its place; see lakehouse/test_init.py",
    "plan": "writes artifacts of dbt, which nothing else reads and the next run replaces",
    "produce": "writes only to the broker, each message once per run; silver keeps one row per key",
    "consume": "only reads",
    "create-topics": "writes only to the broker: creates missing topics and keeps existing ones",
    "metastore init": "writes only to PostgreSQL; see lakehouse/runtime/test_metastore.py",
    "sql": "runs the user's statement, which Delta commits atomically",
    "console": "serves pages; its actions are `pause`, `resume` and `quarantine`; see "
    "lakehouse/console/test_decisions.py",
    "report": "writes one page, which nothing reads and the next run replaces",
    "gold sources": "replaces one file; the next build writes it again",
    "gold explain": "writes artifacts of dbt, which nothing else reads and the next run replaces",
    "gold evaluate": "builds from scratch in its own schema",
    "status": "only reads",
    "pause": "writes one note whole; see lake/streams/test_pause.py",
    "resume": "deletes one note",
    "backup": "writes to a folder outside the lake; see lakehouse/operate/test_backup_store.py",
    "doctor": "only reads",
    "java-home": "only reads",
    "warm-up": "writes caches, each replaced whole; the next run deletes what a killed one left",
    "quarantine list": "only reads",
    "quarantine show": "only reads",
    "savepoint list": "only reads",
    "sql-user list": "only reads",
}
# Columns that identify the run or its time, and so differ from run to run.
VOLATILE = {
    *("silver_batch", "arrived_batch", "committed_at", "forgotten_at", "recorded_at"),
    *("published_at", "versions", "built_versions", "silver_versions", "silver_position"),
}
TWO_DAYS_AGO = time.time() - 2 * upkeep.DAY

TOPICS = PEOPLE_AND_VISITS.format(people='name = "string"', visits='place = "string"')
SINK = """
[publish.named]
from = "silver.people"
where = "name > 'n1'"
key = ["id"]
"""
KEPT = TOPICS.replace("key =", "keep = '1 day'\nkey =")
LOOSE = TOPICS.replace('name = "string"', 'name = { type = "string", required = false }')


@dataclass
class Case:
    """A command on a lake.

    also: returns further state that must be the same as after an undisturbed run.
    """

    settings: LakeSettings
    run: Callable[[LakeSettings], object]
    broker: BrokerSide | None = None
    also: Callable[[LakeSettings], object] = lambda _: None


class Base(NamedTuple):
    """A lake to copy, with its subscriptions on the broker.

    old: after the messages that silver has read, and before all others.
    """

    settings: LakeSettings
    topics: TopicFile
    broker: BrokerSide
    subscriptions: Subscriptions
    old: dt.datetime

    def copy(self, folder: Path) -> LakeSettings:
        shutil.copytree(self.settings.home_dir, folder)
        self.broker.put_back(self.subscriptions)
        return self.settings.model_copy(update={"home": folder})


class World:
    """The fixtures and folders that scenarios use."""

    def __init__(self, request: pytest.FixtureRequest, spark: SparkSession, folder: Path) -> None:
        self._request = request
        self.spark = spark
        self.folder = folder

    @property
    def base(self) -> Base:
        found: Base = self._request.getfixturevalue("base")
        return found

    def case(self, run: Callable[[LakeSettings], object], **other: Any) -> Case:
        """Return a case that runs a command on a copy of the base lake."""
        copied = self.base.copy(self.folder / "home")
        return Case(copied, run, self.base.broker, **other)


@pytest.fixture(scope="module")
def base(
    spark: SparkSession,
    broker: object,
    suite_settings: LakeSettings,
    tmp_path_factory: pytest.TempPathFactory,
) -> Base:
    """A lake with a savepoint, then messages: some refined, some only landed, some only sent."""
    folder = tmp_path_factory.mktemp("base")
    own = {"home": folder / "home", "pulsar_namespace": f"public/{folder.name}"}
    settings = suite_settings.model_copy(update=own)
    lake = ShopLake(spark, settings, declared(folder, TOPICS))
    create_topics(Lake(settings, lake.topics))
    send(lake, 0)
    lake.catch_up()
    savepoints.create(Lake(settings, lake.topics), "first")
    send(lake, 1)
    lake.catch_up()
    old = dt.datetime.now(dt.timezone.utc)
    send(lake, 2)
    await_streams(ingest(spark, Lake(settings, lake.topics), available_now=True))
    send(lake, 3)
    for checkpoint in settings.checkpoints_dir.iterdir():
        os.utime(checkpoint / upkeep.DONE, (TWO_DAYS_AGO, TWO_DAYS_AGO))
    side = BrokerSide(settings, [*lake.topics.topics])
    return Base(settings, lake.topics, side, side.subscriptions(), old)


def send(lake: ShopLake, turn: int) -> None:
    """Send new and changed people, one without a name, and visits of known and unknown people."""
    people = [{"id": turn, "name": f"n{turn}"}, {"id": 0, "name": f"v{turn}"}, {"id": 50 + turn}]
    visits = [{"id": 10 * turn + n, "person": turn + n, "place": f"p{n}"} for n in range(2)]
    for topic, sent in (("people", people), ("visits", visits)):
        lake.send(topic, [(each["id"], json.dumps(each).encode()) for each in sent])


def bronze(world: World) -> Case:
    base = world.base

    def run(settings: LakeSettings) -> None:
        await_streams(ingest(world.spark, Lake(settings, base.topics), available_now=True))

    return world.case(run)


def silver(world: World) -> Case:
    base = world.base

    def run(settings: LakeSettings) -> None:
        await_streams(refine(world.spark, Lake(settings, base.topics), available_now=True))

    return world.case(run)


@contextlib.contextmanager
def nothing_kept_before(instant: dt.datetime) -> Iterator[None]:
    """Take what was published before an instant for too old, as upkeep would after some days."""
    with mock.patch.object(Topic, "kept_since", lambda self, _: self.keep and instant):
        yield


def bronze_that_expires(world: World) -> Case:
    base, topics = world.base, declared(world.folder, KEPT)

    def run(settings: LakeSettings) -> None:
        with nothing_kept_before(base.old):
            await_streams(ingest(world.spark, Lake(settings, topics), available_now=True))

    case = world.case(run)
    with nothing_kept_before(base.old):
        lake, now = Lake(case.settings, topics), dt.datetime.now(dt.timezone.utc)
        found = [standing(lake, topic, now) for topic in topics.topics.values()]
    assert all(each and each.old > each.needed for each in found), found
    return case


def silver_that_expires(world: World) -> Case:
    base, topics = world.base, declared(world.folder, KEPT)

    def run(settings: LakeSettings) -> None:
        with nothing_kept_before(base.old):
            await_streams(refine(world.spark, Lake(settings, topics), available_now=True))

    return world.case(run)


def savepoint_create(world: World) -> Case:
    topics = world.base.topics

    def run(settings: LakeSettings) -> None:
        if "second" not in {each.name for each in savepoints.savepoints(settings)}:
            savepoints.create(Lake(settings, topics), "second")

    return world.case(run, also=named)


def savepoint_drop(world: World) -> Case:
    topics = world.base.topics

    def run(settings: LakeSettings) -> None:
        if savepoints.savepoints(settings):
            savepoints.drop(Lake(settings, topics), "first")

    return world.case(run, also=named)


def named(settings: LakeSettings) -> object:
    return [(each.name, each.versions, each.places) for each in savepoints.savepoints(settings)]


def savepoint_restore(world: World) -> Case:
    topics = world.base.topics
    return world.case(
        lambda s: savepoints.restore(world.spark, Lake(s, topics), "first"), also=named
    )


def restore_backup(world: World) -> Case:
    """A backup of the base lake in an empty home. Its streams are given ids at random."""
    base, store = world.base, BackupStore(world.folder / "backup")
    base.broker.put_back(base.subscriptions)
    back_up(Lake(base.settings, base.topics), store.folder, world.folder)
    settings = base.settings.model_copy(update={"home": world.folder / "home"})
    settings.home_dir.mkdir()

    def run(settings: LakeSettings) -> None:
        if not settings.lake_dir.exists():
            restore(Lake(settings, base.topics), store, read_backup(store))

    def kept(settings: LakeSettings) -> object:
        readers = {t: str(reader_id(settings, f"bronze.{t}")) for t in base.topics.topics}
        with PulsarAdmin(settings.connection) as admin:
            return {
                partition: admin.state(partition).cursors.get(subscription(reader))
                for topic, reader in readers.items()
                for partition in admin.partitions(settings.full_topic(topic))
            }

    return Case(settings, run, also=kept)


def replay_bronze(world: World) -> Case:
    topics = world.base.topics
    topic = topics.topics["visits"]
    case = world.case(lambda settings: replay_topic(world.spark, Lake(settings, topics), topic, 0))
    DeltaTable(case.settings.table_path("bronze", "visits")).restore(1)
    return case


def replay_silver(world: World) -> Case:
    return world.case(lambda settings: rebuild(world.spark, Lake(settings, world.base.topics)))


def replay_table(world: World) -> Case:
    topics = world.base.topics

    def run(settings: LakeSettings) -> None:
        lake = Lake(settings, topics)
        rebuild(world.spark, lake, part=Part.of(lake, "enriched_visits"))

    return world.case(run)


def quarantine_replay(world: World) -> Case:
    topics = declared(world.folder, LOOSE)
    return world.case(lambda s: quarantine.replay(world.spark, Lake(s, topics), Selection()))


def quarantine_discard(world: World) -> Case:
    topics = world.base.topics
    return world.case(lambda s: quarantine.discard(None, Lake(s, topics), Selection("people")))


def publish_table_(world: World) -> Case:
    """Publish the changes since the last run; the broker drops a message that is sent twice."""

    def run(settings: LakeSettings) -> None:
        lake, name = Lake(settings), "silver.people_state"
        await_streams(
            [publish_table(world.spark, lake, name, "o", Form(["id"]), available_now=True)]
        )

    case = world.case(run, also=lambda settings: sent(settings, "o"))
    run(case.settings)
    await_streams(refine(world.spark, Lake(case.settings, world.base.topics), available_now=True))
    return case


def sent(settings: LakeSettings, topic: str) -> list[tuple[str, bytes]]:
    """Return the messages of a topic, with duplicates that the broker has let through."""
    client = settings.connection.client()
    reader = client.create_reader(settings.full_topic(topic), pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        each = reader.read_next()
        found.append((each.partition_key(), each.data()))
    client.close()
    return sorted(found)


def sinks(world: World) -> Case:
    """Run a sink to a topic. What a sink to a database writes is in lakehouse/sinks."""
    topics = declared(world.folder, TOPICS + SINK)

    def run(settings: LakeSettings) -> None:
        lake = Lake(settings, topics)
        await_streams(run_sinks(world.spark, lake, chosen(topics), available_now=True))

    case = world.case(run, also=lambda settings: sent(settings, "named"))
    run(case.settings)
    await_streams(refine(world.spark, Lake(case.settings, world.base.topics), available_now=True))
    return case


def gold(world: World) -> Case:
    """Build a model and an increment; dbt itself is killed in gold/test_build.py instead."""
    settings = load_settings(home=world.folder / "home")

    def run(settings: LakeSettings, batch: int = 1) -> None:
        with alone(settings):
            if before := last_published(Lake(settings)):
                undo_unpublished(Lake(settings), before)
            begun = {
                name: DeltaTable(settings.table_path(BUILT, name)).version() if before else -1
                for name in ("whole", "lines")
            }
            new = [] if before and before.silver_batch == batch else [10 * batch, 10 * batch + 1]
            for name, mode in (("whole", "overwrite"), ("lines", "append")):
                rows = pa.table({"n": pa.array(new if mode == "append" else [batch], pa.int64())})
                table = settings.table_path(BUILT, name)
                write_deltalake(table, rows, mode=mode, commit_properties=marked("build"))
            publish(
                Lake(settings), list(begun), list(begun), (batch, {}), "project", ("build", begun)
            )

    Lake(settings).table(GOLD_CUTS).create()
    run(settings, 0)
    return Case(settings, run)


def reset_(world: World) -> Case:
    topics = world.base.topics

    def run(settings: LakeSettings) -> None:
        if what_goes(settings):
            reset(Lake(settings, topics))

    return world.case(run)


def sql_user_add(world: World) -> Case:
    def run(settings: LakeSettings) -> None:
        users.add_user(settings, "ada", "of the tests and of no use")

    settings = load_settings(home=world.folder / "home")
    users.add_user(settings, "bob", "of the tests and of no use")
    return Case(settings, run, also=lambda s: [*users.read_users(s)])


def sql_user_role(world: World) -> Case:
    def run(settings: LakeSettings) -> None:
        users.change_role(settings, "bob", "reader")

    case = sql_user_add(world)
    return Case(case.settings, run, also=lambda s: [*users.read_users(s).items()])


def sql_user_remove(world: World) -> Case:
    def run(settings: LakeSettings) -> None:
        if users.read_users(settings):
            users.remove_user(settings, "bob")

    case = sql_user_add(world)
    return Case(case.settings, run, also=case.also)


def generate(world: World) -> Case:
    """Generate files of the application and, beside them, files of topics without one."""
    topics = declared(world.folder, TOPICS)

    def run(settings: LakeSettings) -> None:
        generate_shop(settings.home_dir / "files", 0.001, 1)
        generate_messages(topics, settings.home_dir / "files", 0.001)

    def files(settings: LakeSettings) -> object:
        return {file.name: file.read_text() for file in (settings.home_dir / "files").iterdir()}

    return Case(load_settings(home=world.folder / "home"), run, also=files)


CANARY, MERGED = 987_654_321_987, 987_654_321_986
VIEW = """
[views.spent]
description = "What each user has spent. Grain: one user with orders"
key = ["user_id"]
columns = { user_id = "bigint", email_address = "string" }
sources = { enriched_orders = ["user_id"] }
sql = '''
SELECT user_id, max(user.email_address) AS email_address FROM enriched_orders GROUP BY user_id
'''
"""


def forget(world: World) -> Case:
    """Forget a person with two merged accounts."""
    lake = lake_of_people(world.spark, world.folder)
    StandInForDbt(lake.settings).run()
    return Case(lake.settings, lambda settings: forget_her(lake, settings), also=traces)


def lake_of_people(spark: SparkSession, folder: Path) -> SilverLake:
    (folder / "secret").write_text(SECRET)
    text = SHOP_TOPICS.read_text().replace("merged_into", "history = true\nmerged_into", 1)
    settings = load_settings(home=folder / "home", pseudonym_secret_file=folder / "secret")
    lake = SilverLake(spark, settings, declared(folder, text + VIEW))
    hers = {"firstName": "Canaryfirst", "emailAddress": "canary@example.org"}
    lake.put(
        [
            message("users", 1, 1, user(1)),
            message("users", 2, CANARY, user(CANARY, **hers)),
            message("users", 3, MERGED, user(MERGED, **hers, mergedAt=5, parentUserId=CANARY)),
            message("users", 4, CANARY, b'{"broken": "canary@example.org"'),
            message("items", 1, 7, item(7)),
            *(message("orders", n, n, order(n, 1, n, 7)) for n in (1, 2)),
            message("orders", 3, 3, order(3, 1, CANARY, 7)),
            message("orders", 4, 4, order(4, 1, MERGED, 7)),
        ]
    )
    lake.refine()
    return lake


def forget_her(lake: SilverLake, settings: LakeSettings) -> None:
    proof = run.forget(
        lake.spark, Lake(settings, lake.topics), str(CANARY), lambda *_: True, reason="asked for"
    )
    assert proof is not None
    assert [each for part in proof.search() for each in part.found] == []


class StandInForDbt:
    """Writes a gold model from the current silver, as dbt would; dbt itself would take too long."""

    def __init__(self, settings: LakeSettings) -> None:
        self._settings = settings

    def run(self) -> None:
        users = pa.table(DeltaTable(self._settings.table_path("silver", "users_state")).scan())
        for layer in (BUILT, "gold"):
            path = self._settings.table_path(layer, "customers")
            names = users.select(["first_name", "email_address"])
            write_deltalake(path, names, mode="overwrite")
        Lake(self._settings).table(GOLD_CUTS).create()
        now = dt.datetime.now(dt.timezone.utc)
        row = {"published_at": now, "silver_batch": 0, "silver_versions": [], "project": ""}
        versions = {name: [("customers", 0)] for name in ("versions", "built_versions")}
        Lake(self._settings).table(GOLD_CUTS).arrow.append([{**row, **versions}])


@contextlib.contextmanager
def stand_in(lake: Lake, **_: object) -> Iterator[StandInForDbt]:
    yield StandInForDbt(lake.settings)


def traces(settings: LakeSettings) -> list[str]:
    """Return the files that contain data of the person, raw or decoded."""
    found = []
    for file in settings.home_dir.rglob("*"):
        if file.is_file():
            texts = [file.read_bytes()]
            if file.suffix == ".parquet":
                texts.append(str(pq.read_table(file).to_pylist()).encode())
            hers = ("canary", str(CANARY), str(MERGED))
            if any(each.encode() in text.lower() for each in hers for text in texts):
                found.append(str(file.relative_to(settings.home_dir)))
    return found


SCENARIOS: dict[str, Callable[[World], Case]] = {
    "forget": forget,
    "bronze": bronze,
    "silver": silver,
    "bronze --topics of which not all is kept": bronze_that_expires,
    "silver --topics of which not all is kept": silver_that_expires,
    "savepoint create": savepoint_create,
    "savepoint drop": savepoint_drop,
    "savepoint restore": savepoint_restore,
    "restore": restore_backup,
    "replay --table bronze": replay_bronze,
    "replay --table silver": replay_silver,
    "replay --table silver.enriched_visits": replay_table,
    "quarantine replay": quarantine_replay,
    "quarantine discard": quarantine_discard,
    "publish-table": publish_table_,
    "sinks": sinks,
    "gold": gold,
    "reset": reset_,
    "sql-user add": sql_user_add,
    "sql-user role": sql_user_role,
    "sql-user remove": sql_user_remove,
    "generate": generate,
}
QUICK = {"gold", "sql-user add", "sql-user role", "sql-user remove", "generate"}


@pytest.fixture(autouse=True)
def upkeep_at_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "EVERY_BATCHES", 1)
    monkeypatch.setattr(maintenance, "EVERY_BATCHES", 1)
    monkeypatch.setattr(upkeep, "MANY_SMALL_FILES", 2)


@pytest.fixture(autouse=True)
def no_dbt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "prepare_build", stand_in)
    monkeypatch.setattr("gold.publish.query_endpoint", lambda *_: None)


@pytest.fixture
def watcher(spark: SparkSession, suite_settings: LakeSettings) -> Watcher:
    return Watcher(spark, suite_settings)


@pytest.mark.parametrize(
    "command", [pytest.param(c, marks=() if c in QUICK else pytest.mark.nightly) for c in SCENARIOS]
)
def test_a_command_killed_at_any_write_is_finished_by_running_it_again(
    command: str,
    request: pytest.FixtureRequest,
    spark: SparkSession,
    watcher: Watcher,
    tmp_path: Path,
) -> None:
    case = SCENARIOS[command](World(request, spark, tmp_path))
    recording = Recording(case.settings.home_dir, tmp_path / "kills", SAMPLE, case.broker)
    with watcher.recording(recording):
        case.run(case.settings)
    assert recording.unseen == [], "the harness did not see some writes"
    assert recording.count > 1, "the command makes no durable writes"
    right = state(case, case.settings)
    there = case.broker.subscriptions() if case.broker else {}
    wrong = []
    for point in recording.points:
        wrong += differences(case, point, right, there)
        # Delta caches the logs of all copies, and a hundred copies would fill the heap.
        spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]  # noqa: SLF001
    assert not wrong, "\n".join([f"wrong results among {recording.count} points:", *wrong])


def differences(
    case: Case, point: Point, right: dict[str, object], subscriptions: Subscriptions
) -> Iterator[str]:
    """Run the command on a killed lake and yield the differences from an undisturbed run."""
    settings = case.settings.model_copy(update={"home": point.home})
    where = f"killed at point {point.number}, before: {point.before}:"
    if case.broker:
        case.broker.put_back(point.subscriptions)
    try:
        case.run(settings)
    except Exception as error:  # noqa: BLE001 - reported with the point
        last = traceback.extract_tb(error.__traceback__)[-1]
        yield f"{where} {type(error).__name__} at {last.filename}:{last.lineno}: {error}"[:2000]
        return
    found = state(case, settings)
    for name in sorted({*right, *found}):
        is_same = found.get(name) == right.get(name)
        if name == "subscriptions" and case.broker:
            is_same = stand_no_later(case.broker.subscriptions(), subscriptions)
        if not is_same:
            yield f"{where} {name} is {found.get(name)}, not {right.get(name)}"[:2000]
    shutil.rmtree(point.home, ignore_errors=True)


def stand_no_later(found: Subscriptions, right: Subscriptions) -> bool:
    """Return whether the subscriptions keep all messages they should.

    A stream moves its subscription after the batch, or with the next batch if it was killed before.
    """
    return all(
        found[partition].keys() == wanted.keys()
        and all(found[partition][name] <= position for name, position in wanted.items())
        for partition, wanted in right.items()
    )


def state(case: Case, settings: LakeSettings) -> dict[str, object]:
    """Return the state after a command: rows, stream positions, subscriptions and other files."""
    found: dict[str, object] = {"also": case.also(settings), "files": files_beside(settings)}
    for layer in ("bronze", "silver", BUILT, "gold"):
        for name, table in Lake(settings).tables(layer).items():
            found[f"{layer}.{name}"] = rows(table.path)
    for checkpoint in settings.checkpoints_dir.glob("*"):
        found[f"interrupted {checkpoint.name}"] = interrupted(checkpoint)
        place = Place.newest(settings, checkpoint.name)
        found[f"place of {checkpoint.name}"] = place and {
            name: unread(settings, end) for name, end in place.ends.items()
        }
    if case.broker:
        found["subscriptions"] = case.broker.subscriptions()
    return found


def rows(path: str) -> list[str]:
    """Return the rows of a table as text.

    For the audit table these are the sums, because an interrupted batch may be booked in two parts.
    """
    table = pa.table(DeltaTable(path).scan())
    kept = [name for name in table.column_names if name not in VOLATILE]
    if path.endswith("/reconciliation"):
        counts = ("messages_in", "applied", "superseded", "quarantined", "discarded")
        table = table.group_by("topic").aggregate([(name, "sum") for name in counts])
        kept = table.column_names
    if path.endswith("/cuts"):
        return []
    return sorted(map(str, table.select(kept).to_pylist()))


def unread(settings: LakeSettings, end: Any) -> object:
    """Return a stream's position in its source; for a table, whether it has unread versions."""
    if "reservoirId" not in end:
        return end
    for each in Lake(settings).tables("bronze").values():
        table = each.log()
        if str(table.metadata().id) == end["reservoirId"]:
            return table.version() >= end["reservoirVersion"]
    return "gone"


def files_beside(settings: LakeSettings) -> list[str]:
    """Return the files that belong neither to a table nor to Spark."""
    home = settings.home_dir
    paths = (file.relative_to(home) for file in home.rglob("*") if file.is_file())
    theirs = {"spark", "logs", "offsets", "commits", "bronze", "silver", "gold", BUILT}
    return sorted(
        str(path)
        for path in paths
        if theirs.isdisjoint(path.parts) and not path.name.startswith((".metadata", "..metadata"))
    )


@pytest.mark.nightly
@pytest.mark.parametrize("commits", range(1, 22, 4))
def test_a_forget_killed_by_the_system_is_finished_by_running_it_again(
    commits: int, spark: SparkSession, tmp_path: Path
) -> None:
    """The real command gets `kill -9` after it has written its plan and made some commits."""
    lake = lake_of_people(spark, tmp_path)
    environment = {
        **os.environ,
        "LAKEHOUSE_HOME": str(lake.settings.home),
        "LAKEHOUSE_TOPICS": str(tmp_path / "topics.toml"),
        "LAKEHOUSE_PSEUDONYM_SECRET_FILE": str(tmp_path / "secret"),
    }
    command = [Path(sys.executable).with_name("lakehouse"), "forget", str(CANARY), "--yes"]
    home, plan_file = lake.settings.home_dir, lake.settings.lake_dir / plan.NAME
    with (tmp_path / "log").open("wb") as log:
        running = subprocess.Popen(
            [*command, "--reason", "asked for"],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def has_come(point: Callable[[], bool]) -> bool:
        assert running.poll() is None, (tmp_path / "log").read_text()[-2000:]
        return point()

    until(lambda: has_come(plan_file.exists), "the plan")
    begun = len([*home.rglob("_delta_log/*.json")])
    enough = begun + commits
    until(lambda: has_come(lambda: len([*home.rglob("_delta_log/*.json")]) >= enough), "commits")
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    assert stat.S_IMODE(plan_file.stat().st_mode) == PRIVATE
    assert traces(lake.settings)
    with pytest.raises(CheckpointError, match="`lakehouse forget` was interrupted"):
        lake.refine()
    with pytest.raises(SettingsError, match="`lakehouse forget` was interrupted"):
        savepoints.create(lake.lake, "torn")
    forget_her(lake, lake.settings)
    assert traces(lake.settings) == []


def commands() -> Iterator[str]:
    def walk(command: Any, name: str) -> Iterator[str]:
        below = getattr(command, "commands", {})
        if not below or getattr(command, "invoke_without_command", False):
            yield name
        for each, child in below.items():
            yield from walk(child, f"{name} {each}".strip())

    yield from walk(typer.main.get_command(app), "")


def test_each_command_is_registered_or_exempted_with_a_reason() -> None:
    registered = Counter(name.partition(" --")[0] for name in SCENARIOS) + Counter([*EXEMPT])
    assert {*registered} == {*commands()}
    assert EXEMPT.keys().isdisjoint(SCENARIOS)
