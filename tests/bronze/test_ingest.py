"""Tests that bronze lands each message of a real broker once and detects every loss."""

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from topic import LiveTopic, landed, some

from bronze import landing
from bronze.ingest import ingest, subscription
from lake.streams.checkpoint import checkpoint_id, claim
from lake.streams.job import await_streams
from lake.tables.lake import Lake
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.errors import CheckpointError, LakehouseError
from pulsar_spark.offsets import Position

NAME = "orders"


def test_every_message_lands_once_byte_for_byte_through_restarts(
    topic: LiveTopic, land: Callable[[], None]
) -> None:
    """Invariant 1, for batched and single messages, with a partition added in between."""
    sent = topic.send(some(60), batched=True)
    land()
    assert landed(topic) == sorted(sent, key=lambda row: row[:4])
    assert max(row.batch_index for row in sent) > 0
    topic.create(partitions=3)
    sent += topic.send(some(40, seed=2))
    land()
    land()
    assert landed(topic) == sorted(sent, key=lambda row: row[:4])
    assert {row.partition for row in sent} == {0, 1, 2}


@pytest.mark.parametrize("few", [5, 10_000])
def test_a_batch_whose_commit_was_lost_is_not_landed_twice(
    topic: LiveTopic, land: Callable[[], None], monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """Invariant 6: the driver dies after the table's commit, before the checkpoint's commit."""
    monkeypatch.setattr(landing, "FEW", few)
    sent = topic.send(some(10))
    land()
    checkpoint = Path(topic.settings.checkpoint_path(f"bronze.{NAME}"))
    for file in (checkpoint / "commits").iterdir():
        file.unlink()
    sent += topic.send(some(10, seed=3))
    land()
    assert landed(topic) == sorted(sent, key=lambda row: row[:4])


TEARS = [lambda text: "", lambda text: text[: len(text) // 2], lambda text: text[:-1]]


@pytest.mark.parametrize(
    "tear", [TEARS[0], *(pytest.param(tear, marks=pytest.mark.nightly) for tear in TEARS[1:])]
)
def test_a_torn_checkpoint_file_is_reported_with_a_remedy_that_loses_nothing(
    topic: LiveTopic, land: Callable[[], None], tear: Callable[[str], str]
) -> None:
    """As after a power cut; the batch is either committed, landed, or only planned."""
    sent = topic.send(some(10))
    land()
    checkpoint = Path(topic.settings.checkpoint_path(f"bronze.{NAME}"))
    [commit], [offset] = (
        [file for file in (checkpoint / log).iterdir() if file.name.isdigit()]
        for log in ("commits", "offsets")
    )
    whole = offset.read_text()
    commit.write_text(tear(commit.read_text()))
    with pytest.raises(CheckpointError, match="commits/0 is torn.*Delete it: .*replayed"):
        land()
    commit.unlink()
    offset.write_text(tear(whole))
    with pytest.raises(
        CheckpointError, match="offsets/0 is torn.*tables already contain its batch"
    ):
        land()
    offset.write_text(whole)
    sent += topic.send(some(10, seed=3))
    land()
    planned = offset.with_name("2")
    planned.write_text(tear(offset.with_name("1").read_text()))
    with pytest.raises(CheckpointError, match="offsets/2 is torn.*Delete it: .*planned again"):
        land()
    planned.unlink()
    sent += topic.send(some(10, seed=4))
    land()
    assert landed(topic) == sorted(sent, key=lambda row: row[:4])


def test_a_recreated_topic_stops_the_query(topic: LiveTopic, land: Callable[[], None]) -> None:
    topic.send(some(5))
    land()
    topic.delete()
    topic.create(2)
    topic.send(some(5, seed=4))
    with pytest.raises(LakehouseError, match="deleted and created again.*ACCEPT_DATA_LOSS=true"):
        land()
    assert len(landed(topic)) == 5


def test_an_accepted_loss_is_recorded_once_and_the_rest_lands(
    topic: LiveTopic, land: Callable[[], None]
) -> None:
    first = topic.send(some(5))
    land()
    topic.delete()
    topic.create(2)
    second = topic.send(some(9, seed=4))
    topic.settings = topic.settings.model_copy(update={"accept_data_loss": True})
    land()
    land()
    assert landed(topic) == sorted(first + second, key=lambda row: row[:4])
    losses = DeltaTable(topic.settings.table_path("bronze", "data_loss")).to_pyarrow_table()
    ends = {
        f"{topic.name}-partition-{n}": max(
            Position(m.ledger, m.entry) for m in first if m.partition == n
        )
        for n in {m.partition for m in first}
    }
    assert {r["topic_partition"]: r["behind"] for r in losses.to_pylist()} == {
        name: str(position) for name, position in ends.items()
    }
    assert all("created again" in reason for reason in losses["reason"].to_pylist())


def test_messages_dropped_by_the_broker_stop_the_query(
    topic: LiveTopic, land: Callable[[], None]
) -> None:
    topic.send(some(6))
    land()
    sent = topic.send(some(6, seed=5))
    query = checkpoint_id(topic.settings, f"bronze.{NAME}")
    assert query
    with PulsarAdmin(topic.settings.connection) as admin:
        for number in (0, 1):
            last = max(Position(m.ledger, m.entry) for m in sent if m.partition == number)
            admin.move_subscription(f"{topic.name}-partition-{number}", subscription(query), last)
    with pytest.raises(LakehouseError, match="the broker has dropped them.*TTL"):
        land()


def test_a_missing_topic_is_reported(spark: SparkSession, topic: LiveTopic) -> None:
    gone = topic.settings.model_copy(update={"pulsar_namespace": "public/nowhere"})
    with pytest.raises(
        LakehouseError,
        match=r"no topic persistent://public/nowhere/orders\. Create it.*`lakehouse create-topics`",
    ):
        await_streams(ingest(spark, Lake(gone, topic.topics), available_now=True))


def test_a_new_checkpoint_on_an_old_table_is_refused(
    topic: LiveTopic, land: Callable[[], None]
) -> None:
    """Invariant 6: otherwise, everything would land twice."""
    topic.send(some(3))
    land()
    checkpoint = Path(topic.settings.checkpoint_path(f"bronze.{NAME}"))
    checkpoint.rename(checkpoint.with_name("elsewhere"))
    with pytest.raises(CheckpointError, match="is new, but the table bronze.orders.*twice"):
        land()
    assert len(landed(topic)) == 3


def test_an_old_checkpoint_without_its_table_is_refused(
    topic: LiveTopic, land: Callable[[], None]
) -> None:
    """Invariant 6: otherwise, earlier messages would be missing."""
    topic.send(some(3))
    land()
    table = Path(topic.settings.table_path("bronze", NAME))
    table.rename(table.with_name("elsewhere"))
    with pytest.raises(CheckpointError, match="has written to .*orders, which no longer exists"):
        land()


def test_a_query_that_runs_elsewhere_is_not_started_twice(
    topic: LiveTopic, land: Callable[[], None]
) -> None:
    """Invariant 5: one writer per table."""
    other = claim(topic.settings, f"bronze.{NAME}")
    with pytest.raises(CheckpointError, match="already runs in another process"):
        land()
    other.release()
    land()
