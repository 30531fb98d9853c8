"""A lake without a broker: tests write bronze rows to real Delta tables, which silver reads."""

import datetime as dt
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from model import Message, Position
from pyspark.sql import DataFrame, Row, SparkSession

from lake.settings.settings import SHOP_TOPICS, LakeSettings, load_settings
from lake.streams.job import await_streams
from lake.tables.storage import open_table
from lake.tables.table import bronze_table
from lake.topics.topic_file import TopicFile, load_topics
from pulsar_spark.schema import ENVELOPE_DDL
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

    def table(self, name: str, layer: str = "silver") -> DataFrame:
        return self.spark.read.format("delta").load(self.settings.table_path(layer, name))

    def current(self, topic: str) -> dict[int, dict[str, Any]]:
        rows = self.table(f"{topic}_state").where("NOT is_deleted").collect()
        bookkeeping = ("is_deleted", "position", "publish_time", "silver_batch")
        return {row["id"]: _plain(row, without=bookkeeping) for row in rows}

    def enriched(self) -> dict[tuple[int, int], dict[str, Any]]:
        rows = self.table("enriched_orders").collect()
        bookkeeping = ("missing_lookups", "publish_time", "arrived_batch", "silver_batch")
        keyed = {(r["invoice_id"], r["line_item_id"]): _plain(r, without=bookkeeping) for r in rows}
        assert len(keyed) == len(rows), "an order line is in enriched_orders twice"
        return keyed

    def quarantined(self) -> set[tuple[str, Position]]:
        rows = self.table("quarantine").collect()
        found = {(row["topic"], _value(row["position"])) for row in rows}
        assert len(found) == len(rows), "a message is in the quarantine twice"
        return found

    def refine(self) -> None:
        await_streams(refine(self.spark, self.settings, self.topics, available_now=True))


class SilverLake(LakeReader):
    """A separate lake with the shop's topics or other ones."""

    def __init__(
        self, spark: SparkSession, place: Path | LakeSettings, topics: TopicFile | None = None
    ) -> None:
        settings = load_settings(home=place) if isinstance(place, Path) else place
        super().__init__(spark, settings, topics)
        for name in self.topics.topics:
            bronze_table(name).create(self.settings)

    def put(self, messages: Iterable[Message]) -> None:
        rows: dict[str, list[tuple[Any, ...]]] = {}
        for m in messages:
            p = m.position
            place = (f"persistent://public/default/{m.topic}", p.partition, p.ledger, p.entry)
            envelope = (
                *place,
                p.batch_index,
                m.key,
                m.payload,
                None,
                PUBLISHED,
                p.order_time,
                {},
                None,
            )
            envelope += (None,) * 3  # raw columns: all metadata is UTF-8
            rows.setdefault(m.topic, []).append(envelope)
        for topic, found in rows.items():
            frame = self.spark.createDataFrame(found, ENVELOPE_DDL)
            path = self.settings.table_path("bronze", topic)
            bronze_table(topic).evolve(self.spark, self.settings, open_table(self.settings, path))
            frame.write.format("delta").mode("append").save(path)


def _plain(row: Row, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Convert a row to the model's form: dictionaries, positions, instants in UTC."""
    return {name: _value(row[name]) for name in row.asDict() if name not in without}


def _value(value: Any) -> Any:
    if isinstance(value, Row) and "ledger" in value.asDict():
        return Position(**{name: _value(part) for name, part in value.asDict().items()})
    if isinstance(value, Row):
        return _plain(value)
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.timezone.utc)
    return value
