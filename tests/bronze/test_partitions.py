"""Tests topics with added partitions, where keys also move between the old partitions."""

import json
from typing import Any

import pytest
from model import Position
from pyspark.sql.streaming.datasource import ReadAllAvailable
from topic import LiveTopic, Outgoing

from lake.settings.settings import LakeSettings
from lakehouse.runtime.broker import Broker
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.offsets import OffsetJson
from pulsar_spark.options import PulsarOptions
from pulsar_spark.source import PulsarBatchReader, PulsarStreamReader

KEYS = range(60)
NOTHING = range(0)


class Changelog:
    """A topic whose producer writes each key repeatedly; `latest` has the last values."""

    def __init__(self, settings: LakeSettings) -> None:
        self.topic = LiveTopic(settings, "things", 2)
        self.latest: dict[int, str] = {}

    def write(self, value: str, *, deleted: range = NOTHING) -> None:
        """Write each key with a new client, which asks for the current partitions."""
        self.latest |= dict.fromkeys(KEYS, value)
        for key in deleted:
            del self.latest[key]
        self.topic.send(
            Outgoing(
                json.dumps({"id": key, "value": value}).encode() if key in self.latest else b"",
                key=str(key),
            )
            for key in KEYS
        )

    def begin_ledger(self, partition: int) -> None:
        """Begin a new ledger in a partition, later than those of the other partitions."""
        with PulsarAdmin(self.topic.settings.connection) as admin:
            admin.unload(f"{self.topic.name}-partition-{partition}")


class Reading:
    """Reads the topic as a query does, but in this process."""

    def __init__(self, topic: LiveTopic, name: str) -> None:
        self._source = {**topic.settings.connection.options(), "topic": topic.name}
        self._options = PulsarOptions.parse({**self._source, "subscription": name})
        self._stood: OffsetJson | None = None
        self.rows: list[dict[str, Any]] = []

    def land(self) -> None:
        """Land all messages in one batch, with a new reader."""
        reader = PulsarStreamReader(self._options)
        begin = reader.initialOffset() if self._stood is None else self._stood
        end = reader.latestOffset(begin, ReadAllAvailable())
        self._stood = json.loads(json.dumps(end))
        for task in reader.partitions(begin, end):
            for batch in reader.read(task):
                self.rows += batch.to_pylist()
        reader.stop()

    def replayed(self) -> list[dict[str, Any]]:
        """Return the same messages as `lakehouse replay` reads them again."""
        end = {"endingPosition": json.dumps(self._stood)}
        reader = PulsarBatchReader(PulsarOptions.parse({**self._source, **end}))
        tasks = reader.partitions()
        return [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]

    def current(self) -> dict[int, str]:
        """Return the content of each key's last message, in the order of bronze."""
        last: dict[str, dict[str, Any]] = {}
        for row in sorted(self.rows, key=order):
            last[row["key"]] = row
        contents = [json.loads(row["payload"]) for row in last.values() if row["payload"]]
        return {content["id"]: content["value"] for content in contents}


def order(row: dict[str, Any]) -> tuple[Any, ...]:
    position = Position(row["ledger"], row["entry"], row["batch_index"], row["partition"])
    return position._replace(order_time=row["order_time"]).order


@pytest.mark.parametrize("added", ["slowly", "at once"])  # at once: all code is loaded by then
def test_a_producers_later_message_wins_wherever_its_key_moves(
    broker: Broker, settings: LakeSettings, added: str
) -> None:
    changelog = Changelog(settings)
    always, now_and_then, afterwards = (
        Reading(changelog.topic, name) for name in ("always", "now_and_then", "afterwards")
    )
    changelog.write("first")
    always.land()
    now_and_then.land()
    changelog.begin_ledger(0)
    changelog.write("with two partitions", deleted=range(5))
    for partitions in (3, 4):
        changelog.topic.create(partitions)
        changelog.write(f"with {partitions}", deleted=range(10 * partitions, 10 * partitions + 9))
        always.land()
        changelog.begin_ledger(partitions - 3)
        changelog.write(f"again with {partitions}", deleted=range(5, 10))
    for each in (always, now_and_then, afterwards):
        each.land()
        assert len(each.rows) == 6 * len(KEYS)
        assert each.current() == changelog.latest
        assert sorted(each.replayed(), key=order) == sorted(each.rows, key=order)
