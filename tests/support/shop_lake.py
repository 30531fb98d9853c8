"""A lake filled through the broker from CSV files, and the same files read in plain Python."""

import csv
import datetime as dt
from collections.abc import Iterable, Mapping
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from silver_lake import LakeReader

from bronze.ingest import ingest
from lake.streams.job import await_streams
from lakehouse.messages.publish import create_topics, publish

Row = dict[str, Any]


class ShopLake(LakeReader):
    """A lake and a namespace that use the suite's Spark and broker."""

    def fill(self, folder: Path) -> dict[str, int]:
        """Publish the files of a folder and bring bronze and silver up to date.

        Returns:
            The number of messages sent by topic.
        """
        create_topics(self.lake)
        sent = publish(self.lake, folder)
        self.catch_up()
        return sent

    def send(self, topic: str, messages: Iterable[tuple[object, bytes]]) -> None:
        """Publish messages, each with its key."""
        client = self.settings.connection.client()
        producer = client.create_producer(self.settings.full_topic(topic))
        for key, payload in messages:
            producer.send(payload, partition_key=str(key))
        client.close()

    def mart(self, name: str) -> list[Row]:
        """Return the rows of a gold table as readers see them."""
        path = self.settings.table_path("gold", name)
        rows: list[Row] = DeltaTable(path).to_pyarrow_table().to_pylist()
        return rows

    def newest_version(self, layer: str, name: str) -> int:
        """Return the newest version of a table; older ones may have been deleted by other tests."""
        return DeltaTable(self.settings.table_path(layer, name)).version()

    def catch_up(self) -> None:
        """Bring bronze and silver up to date with the messages sent."""
        await_streams(ingest(self.spark, self.lake, available_now=True))
        self.refine()


def read_shop(folder: Path) -> dict[str, list[Row]]:
    """Read the files into silver's columns; the last row of an id is its state."""
    return {name: _read(folder / f"{name}.csv", cells) for name, cells in COLUMNS.items()}


def joined(shop: Mapping[str, list[Row]]) -> dict[tuple[int, int], Row]:
    """Return every order line with its user and item, None if unknown."""
    users = {user["id"]: user for user in shop["users"]}
    items = {item["id"]: item for item in shop["items"]}
    return {
        (line["invoice_id"], line["line_item_id"]): {
            **line,
            "user": users.get(line["user_id"]),
            "item": items.get(line["item_id"]),
        }
        for line in shop["orders"]
    }


def _integer(cell: str) -> int | None:
    return int(cell) if cell else None


def _time(cell: str) -> dt.datetime | None:
    return dt.datetime.fromisoformat(f"{cell}+00:00") if cell else None


def _money(cell: str) -> Decimal:
    return Decimal(cell).quantize(Decimal("0.01"), rounding=ROUND_HALF_UP)


COLUMNS: dict[str, dict[str, Any]] = {
    "users": {
        "id": int,
        "first_name": str,
        "last_name": str,
        "email_address": str,
        "created_at": _time,
        "deleted_at": _time,
        "merged_at": _time,
        "parent_user_id": _integer,
    },
    "items": {
        "id": int,
        "created_at": _time,
        "adjective": str,
        "category": str,
        "modifier": str,
        "name": str,
        "price": _money,
    },
    "orders": {
        "invoice_id": int,
        "line_item_id": int,
        "user_id": int,
        "item_id": int,
        "item_name": str,
        "item_category": str,
        "price": _money,
        "created_at": _time,
        "paid_at": _time,
    },
}


def _read(file: Path, cells: Mapping[str, Any]) -> list[Row]:
    with file.open(encoding="utf-8", newline="") as lines:
        return [{n: read(row[n]) for n, read in cells.items()} for row in csv.DictReader(lines)]
