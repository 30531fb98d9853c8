"""Tests that this code continues with the tables and checkpoints of earlier releases.

The lakes of earlier releases are in tests/releases. `make keep-release` adds the lake that this
code leaves.
"""

import itertools
import os
import random
import shutil
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest
from deltalake import DeltaTable
from messages import item, message, order, user
from model import LakeModel, Message
from pyspark.sql import SparkSession
from silver_lake import SilverLake
from topic import LiveTopic, Outgoing, Sent

from bronze.ingest import ingest
from lake.settings.settings import LakeSettings, load_settings
from lake.streams.checkpoint import newest_file
from lake.streams.job import await_streams
from lake.tables.lake import Lake
from lakehouse.runtime.broker import Broker
from silver.refine import QUERY

FOLDER = Path(__file__).parents[1] / "releases"
RELEASES = sorted(FOLDER.glob("*.tar.xz"))
NAMESPACE = "public/kept"  # bronze's checkpoint stores positions by full topic name
each_release = pytest.mark.parametrize(
    "release", RELEASES, ids=lambda file: file.name.removesuffix(".tar.xz")
)
LEDGERS = 20  # a new broker's first ledgers; kept positions are in these, a new topic is after them


def first() -> list[Message]:
    return [
        *(message("users", n, n, user(n)) for n in range(1, 5)),
        *(message("items", n, n, item(n, price=n)) for n in range(1, 4)),
        *(message("orders", n, n, order(n, 1, n, 1 + n % 3)) for n in range(1, 10)),
        message("orders", 10, 10, b'{"broken": '),
    ]


def second() -> list[Message]:
    return [
        message("users", 10, 2, user(2, lastName="Changed")),
        message("users", 11, 3, None),
        message("users", 12, 9, user(9)),
        message("orders", 11, 2, order(2, 1, 2, 3, price=1.25)),
        message("orders", 12, 11, order(11, 1, 3, 1)),
    ]


def later() -> list[Message]:
    return [
        message("users", 20, 1, user(1, lastName="Later")),
        message("users", 21, 4, None),
        message("users", 22, 8, user(8)),
        message("users", 9, 2, user(2, lastName="Late and superseded")),
        message("items", 20, 5, item(5)),
        message("orders", 20, 1, order(1, 1, 1, 5)),
        message("orders", 21, 21, order(21, 1, 4, 2)),
        message("orders", 22, 22, b"[]"),
    ]


def events(seed: int) -> list[Outgoing]:
    rng = random.Random(seed)
    return [Outgoing(rng.randbytes(20), rng.choice([None, f"key-{n}"])) for n in range(25)]


@pytest.fixture
def topic(broker: Broker, suite_settings: LakeSettings, tmp_path: Path) -> LiveTopic:
    own = {"home": tmp_path / "bronze", "pulsar_namespace": NAMESPACE, "accept_data_loss": True}
    return LiveTopic(suite_settings.model_copy(update=own), "events", 2)


def land(spark: SparkSession, topic: LiveTopic) -> list[tuple[str | None, bytes]]:
    """Land all messages; returns key and payload of every row of the table, sorted by payload."""
    await_streams(ingest(spark, Lake(topic.settings, topic.topics), available_now=True))
    table = DeltaTable(topic.settings.table_path("bronze", "events")).to_pyarrow_table()
    return sorted(
        ((row["key"], row["payload"]) for row in table.to_pylist()), key=lambda pair: pair[1]
    )


def sent(*messages: Outgoing | Sent) -> list[tuple[str | None, bytes | None]]:
    return sorted(((m.key, m.payload) for m in messages), key=lambda pair: pair[1] or b"")


@pytest.mark.nightly
@each_release
def test_silver_repeats_the_interrupted_batch_and_continues(
    release: Path, spark: SparkSession, tmp_path: Path
) -> None:
    unpack(release, tmp_path)
    lake = SilverLake(spark, load_settings(home=tmp_path / "silver"))
    model = LakeModel()
    for batch in (first(), second(), later()):
        model.batch(batch)
    lake.refine()  # the interrupted batch, on unchanged bronze
    lake.put(later())
    lake.refine()
    assert lake.current("users") == model.current("users")
    assert lake.current("items") == model.current("items")
    assert lake.enriched() == model.enriched
    assert lake.quarantined() == model.quarantined
    assert lake.audited().total() == len([*first(), *second(), *later()])
    for table in ("users_state", "enriched_orders", "quarantine"):
        assert "order_time" in lake.table(table).select("position.*").columns


@each_release
def test_bronze_remembers_its_positions(
    release: Path, spark: SparkSession, topic: LiveTopic, tmp_path: Path
) -> None:
    """The new broker has none of the old messages.

    So bronze records a data loss after the positions in the kept checkpoint, and lands the new
    messages, whose ledgers are later.
    """
    unpack(release, tmp_path)
    others = (LiveTopic(topic.settings, f"others_{n}", 4) for n in itertools.count())
    while min(sent.ledger for sent in next(others).send(events(4))) < LEDGERS:
        pass
    topic.delete()
    topic.create(2)
    begun = newest_file(Path(topic.settings.checkpoint_path("bronze.events")) / "offsets")
    assert begun is not None
    known = begun.read_text()
    more = topic.send(events(3))
    assert min(m.ledger for m in more) >= LEDGERS
    assert land(spark, topic) == sent(*events(1), *events(2), *more)
    table = DeltaTable(topic.settings.table_path("bronze", "events"))
    assert "order_time" in table.schema().to_json()
    lost = DeltaTable(topic.settings.table_path("bronze", "data_loss")).to_pyarrow_table()
    behind = [text.split(":") for text in lost["behind"].to_pylist()]
    assert behind
    for ledger, entry in behind:
        assert f'"ledger": {ledger}, "entry": {entry}' in known


def unpack(release: Path, folder: Path) -> None:
    with tarfile.open(release) as archive:
        archive.extractall(folder, filter="data")


@pytest.mark.skipif("TEST_KEEP_RELEASE" not in os.environ, reason="run `make keep-release`")
def test_the_current_lake_is_kept(spark: SparkSession, topic: LiveTopic, tmp_path: Path) -> None:
    for seed in (1, 2):
        for each in topic.send(events(seed)):
            assert each.ledger < LEDGERS, "run this test alone, with a new broker"
        land(spark, topic)
    lake = SilverLake(spark, load_settings(home=tmp_path / "silver"))
    for batch in (first(), second()):
        lake.put(batch)
        lake.refine()
    commit = newest_file(Path(lake.settings.checkpoint_path(QUERY)) / "commits")
    assert commit is not None
    commit.unlink()  # as if killed after the tables had the batch, before its commit
    FOLDER.mkdir(exist_ok=True)
    with tarfile.open(FOLDER / f"{version('orders-lakehouse')}.tar.xz", "w:xz") as archive:
        for name in ("bronze", "silver"):
            shutil.rmtree(tmp_path / name / "spark", ignore_errors=True)
            archive.add(tmp_path / name, name)
