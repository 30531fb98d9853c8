"""A lake without a broker: tests write bronze rows to real Delta tables, which silver reads."""

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from model import Message, Position
from pyspark.sql import DataFrame, SparkSession

from lake.settings.settings import SHOP_TOPICS, LakeSettings, load_settings
from lake.streams.job import await_streams
from lake.tables.lake import Lake
from lake.tables.spec import bronze_table
from lake.tables.storage import storage_options
from lake.topics.topic_file import TopicFile, load_topics
from pulsar_spark.schema import ORDER_FIELDS
from silver.refine import refine

PUBLISHED = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)


class LakeReader:
    """Reads the tables of a lake in the form that the model uses."""

    def __init__(
        self, spark: SparkSession, settings: LakeSettings, topics: TopicFile | None = None
    ) -> None:
        self.spark = spark
        self.settings = settings
        self.topics = topics or load_topics(SHOP_TOPICS)

    @property
    def lake(self) -> Lake:
        """The product's handle of this lake."""
        return Lake(self.settings, self.topics)

    def table(self, name: str, layer: str = "silver") -> DataFrame:
        return self.spark.read.format("delta").load(self.settings.table_path(layer, name))

    def rows(
        self, name: str, condition: str | None = None, layer: str = "silver"
    ) -> list[dict[str, Any]]:
        """Read the rows that meet a condition with another reader than Spark, which is quicker."""
        path, options = self.settings.table_path(layer, name), storage_options(self.settings)
        table = DeltaTable(path, storage_options=options)
        return [_plain(row) for row in pa.table(table.scan(predicate=condition)).to_pylist()]

    def current(self, topic: str) -> dict[int, dict[str, Any]]:
        rows = self.rows(f"{topic}_state", "NOT is_deleted")
        bookkeeping = ("is_deleted", "position", "publish_time", "silver_batch")
        return {row["id"]: _plain(row, without=bookkeeping) for row in rows}

    def enriched(self) -> dict[tuple[int, int], dict[str, Any]]:
        rows = self.rows("enriched_orders")
        bookkeeping = ("missing_lookups", "publish_time", "arrived_batch", "silver_batch")
        keyed = {(r["invoice_id"], r["line_item_id"]): _plain(r, without=bookkeeping) for r in rows}
        assert len(keyed) == len(rows), "an order line is in enriched_orders twice"
        return keyed

    def refused(self) -> list[dict[str, Any]]:
        """The rows of the quarantine in the order of their positions."""
        return sorted(self.rows("quarantine"), key=lambda row: row["position"].order)

    def updated(self, name: str) -> list[int]:
        """How many rows each merge into a table has updated, by Spark or by delta-rs."""
        history = DeltaTable(self.settings.table_path("silver", name)).history()
        merges = [x["operationMetrics"] for x in history if x["operation"] == "MERGE"]
        names = ("num_target_rows_updated", "numTargetRowsUpdated")
        return [int(metrics[each]) for metrics in merges for each in names if each in metrics]

    def audited(self, column: str = "messages_in", condition: str | None = None) -> Counter[str]:
        """Sums of a column of the audit by topic."""
        sums: Counter[str] = Counter()
        for row in self.rows("reconciliation", condition):
            sums[row["topic"]] += row[column]
        return sums

    def quarantined(self) -> set[tuple[str, Position]]:
        rows = self.rows("quarantine")
        found = {(row["topic"], row["position"]) for row in rows}
        assert len(found) == len(rows), "a message is in the quarantine twice"
        return found

    def refine(self) -> None:
        await_streams(refine(self.spark, self.lake, available_now=True))


class SilverLake(LakeReader):
    """A separate lake with the shop's topics or other ones."""

    def __init__(
        self, spark: SparkSession, place: Path | LakeSettings, topics: TopicFile | None = None
    ) -> None:
        settings = load_settings(home=place) if isinstance(place, Path) else place
        super().__init__(spark, settings, topics)
        for name in self.topics.topics:
            self.lake.table(bronze_table(name)).create()

    def put(self, messages: Iterable[Message], published: dt.datetime = PUBLISHED) -> None:
        rows: dict[str, list[dict[str, Any]]] = {}
        for m in messages:
            p = m.position
            envelope = {
                "topic": f"persistent://public/default/{m.topic}",
                **{name: getattr(p, name) for name in ORDER_FIELDS},
                **{"key": m.key, "payload": m.payload, "publish_time": published},
                "properties": [],
            }
            rows.setdefault(m.topic, []).append(envelope)
        for topic, found in rows.items():
            table = self.lake.table(bronze_table(topic))
            table.evolve(self.spark, table.log())
            table.arrow.append(found)


def _plain(row: Mapping[str, Any], without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Convert a row to the model's form: dictionaries, positions, instants in UTC."""
    return {name: _value(row[name]) for name in row if name not in without}


def _value(value: Any) -> Any:
    if isinstance(value, dict) and "ledger" in value:
        return Position(**{name: _value(part) for name, part in value.items()})
    if isinstance(value, dict):
        return _plain(value)
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.timezone.utc)
    return value
