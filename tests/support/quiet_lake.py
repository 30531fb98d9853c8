"""A lake that looks as if streams and builds had run, written without Spark and a broker."""

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import deltalake
import pyarrow as pa
from deltalake import write_deltalake

from gold.tables import CUTS as GOLD_CUTS
from gold.tables import RUNS
from lake.settings.settings import LakeSettings
from lake.tables.lake import Lake
from lake.tables.spec import SQL_NAMES, TableSpec, bronze_table
from silver.contract.tables import (
    CUTS,
    QUARANTINE,
    RECONCILIATION,
    enriched_table,
    state_table,
)

UTC = dt.timezone.utc
SIMPLE = {sql: delta for delta, sql in SQL_NAMES.items()}
Row = dict[str, Any]


def delta_type(text: str) -> Any:
    """A type in Spark's DDL, in the form of Delta's schema."""
    text = text.strip()
    name, _, inner = text.partition("<")
    if not inner:
        return SIMPLE.get(text, text)
    parts = [*_split(inner.removesuffix(">"))]
    if name == "struct":
        members = [part.split(":", 1) for part in parts]
        return {"type": "struct", "fields": [_field(n, delta_type(t)) for n, t in members]}
    if name == "array":
        return {"type": "array", "elementType": delta_type(parts[0]), "containsNull": True}
    key, value = map(delta_type, parts)
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


def _split(text: str) -> Iterator[str]:
    """The parts of a list that are not within brackets."""
    depth, start = 0, 0
    for place, sign in enumerate(text):
        depth += (sign in "<(") - (sign in ">)")
        if sign == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    yield text[start:]


def _field(name: str, kind: Any, nullable: bool = True, comment: str = "") -> Row:
    metadata = {"comment": comment} if comment else {}
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def create(lake: Lake, spec: TableSpec) -> deltalake.DeltaTable:
    """Create a table of a contract."""
    fields = [_field(c.name, delta_type(c.type), c.nullable, c.comment) for c in spec.columns]
    supported = {k: v for k, v in spec.properties.items() if "Vectors" not in k}
    return deltalake.DeltaTable.create(
        lake.table(spec).path,
        schema=deltalake.Schema.from_json(json.dumps({"type": "struct", "fields": fields})),
        mode="ignore",
        description=spec.comment,
        configuration=supported,
        raise_if_key_not_exists=False,
    )


def append(lake: Lake, spec: TableSpec, rows: Sequence[Row]) -> None:
    """Append rows; columns that they lack are NULL, or zero if they must not be."""
    table = create(lake, spec)
    zero = {"bigint": 0, "int": 0, "boolean": False, "string": ""}
    fill = {c.name: zero[c.type] for c in spec.columns if not c.nullable and c.type in zero}
    schema = pa.schema(table.schema().to_arrow())
    write_deltalake(
        table, pa.Table.from_pylist([{**fill, **row} for row in rows], schema), mode="append"
    )


def position(number: int) -> Row:
    return {
        "order_time": None,
        "ledger": 1,
        "entry": number,
        "batch_index": 0,
        "partition": -1,
    }


class QuietLake:
    """A lake with the shop's topics, in which each row is written by a test."""

    def __init__(self, settings: LakeSettings) -> None:
        self.lake = Lake(settings)
        self.settings = settings

    def land(self, topic: str, payloads: Sequence[bytes], at: dt.datetime, key: str = "k") -> None:
        """Append messages to a table of bronze."""
        rows = [
            {
                "topic": f"persistent://public/default/{topic}",
                "key": key,
                "payload": payload,
                "publish_time": at,
                **{n: v for n, v in position(number).items() if n != "order_time"},
            }
            for number, payload in enumerate(payloads)
        ]
        append(self.lake, bronze_table(topic), rows)

    def keep(self, topic: str, rows: Sequence[Row], at: dt.datetime) -> None:
        """Append rows to the state of a changelog."""
        made_from = {"position": position(0), "publish_time": at, "silver_batch": 0}
        spec = state_table(self.lake.topics.topics[topic])
        append(self.lake, spec, [{**made_from, **row} for row in rows])

    def enrich(self, topic: str, rows: Sequence[Row], at: dt.datetime) -> None:
        """Append rows to the enriched events of a topic."""
        made_from = {"position": position(0), "publish_time": at, "silver_batch": 0}
        spec = enriched_table(self.lake.topics.topics[topic], self.lake.topics)
        append(self.lake, spec, [{**made_from, **row} for row in rows])

    def refuse(self, *records: Row) -> None:
        """Append records to the quarantine: topic, reason, payload, and possibly more."""
        rows = [
            {
                "position": position(number),
                "status": "open",
                "publish_time": dt.datetime(2026, 1, 1, tzinfo=UTC),
                **record,
            }
            for number, record in enumerate(records)
        ]
        append(self.lake, QUARANTINE, rows)

    def audit(
        self,
        batch: int,
        at: dt.datetime,
        refused: Mapping[str, int] = MappingProxyType({}),
        **messages: int,
    ) -> None:
        """Note that a batch of silver has read these numbers of messages, and refused some."""
        rows = [
            {
                **{"silver_batch": batch, "topic": topic, "messages_in": count},
                "quarantined": refused.get(topic, 0),
                "applied": count - refused.get(topic, 0),
            }
            for topic, count in messages.items()
        ]
        append(self.lake, RECONCILIATION, rows)
        cut = {"silver_batch": batch, "committed_at": at, "versions": {}, "positions": {}}
        append(self.lake, CUTS, [cut])

    def publish(self, batch: int, at: dt.datetime, **marts: Sequence[Row]) -> None:
        """Publish marts from a batch of silver."""
        for name, rows in marts.items():
            write_deltalake(
                self.settings.table_path("gold", name),
                pa.Table.from_pylist(list(rows)),
                mode="overwrite",
            )
        versions = dict.fromkeys(marts, 0)
        maps = dict.fromkeys(("versions", "built_versions", "silver_versions"), versions)
        cut = {"published_at": at, "silver_batch": batch, **maps, "project": "p"}
        append(self.lake, GOLD_CUTS, [cut])
        runs = [
            {
                "started_at": at - dt.timedelta(seconds=9),
                "outcome": "published",
                "kind": "model",
                "name": name,
                "status": "success",
                "seconds": 1.25,
            }
            for name in marts
        ]
        append(self.lake, RUNS, runs)

    def run(self, query: str, batch: int) -> Path:
        """Write a checkpoint whose query has finished batches; returns its folder."""
        folder = Path(self.settings.checkpoint_path(query))
        for log, content in (("offsets", "v1\n{}\n{}"), ("commits", "v1\n{}")):
            (folder / log).mkdir(parents=True, exist_ok=True)
            (folder / log / str(batch)).write_text(content)
        return folder
