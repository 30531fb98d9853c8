"""Merged keys: `resolved_id` follows `merged_into` through chains to the key that survives.

In the state it is the key of today. For lookups as of the event time it is that of then, by the
versions of the history that were merged. These are read whole, and their chains are followed in the
driver, whenever the history has changed: so that costs what the number of merged versions is, a
few of the users of a shop, and not what the batch or the history is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import structlog
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from bronze.declarations import Topic, snake_case
from bronze.direct import DirectTable
from bronze.settings import LakeSettings
from bronze.tables import match
from silver.tables import state_table

Span = tuple[Any, int, int]  # of a merged version: the next key, valid from and before, in µs
FOREVER = 2**63 - 1

log = structlog.get_logger()


def survivors(merged_into: Mapping[Any, Any]) -> dict[Any, Any]:
    """Of each merged key the one at the end of its chain, None if the chain is a cycle.

    Args:
        merged_into: the next key of each merged key; a key that is not among them survives.
    """
    found: dict[Any, Any] = {}
    for start in merged_into:
        chain, key = [], start
        on_chain = set()
        while key in merged_into and key not in found and key not in on_chain:
            chain.append(key)
            on_chain.add(key)
            key = merged_into[key]
        end = None if key in on_chain else found.get(key, key)
        found.update(dict.fromkeys(chain, end))
    return found


def spans(merged: Mapping[Any, Sequence[Span]]) -> Iterator[tuple[Any, int, int, Any]]:
    """As `survivors`, as of each instant: a merged key, from and before when, and the key that then
    is at the end of its chain, None if the chain is a cycle.

    Args:
        merged: the versions of each key in which it is merged; a key survives at other instants.
    """
    for start in merged:
        todo = [(start, -FOREVER, FOREVER, frozenset[Any]())]
        while todo:
            key, begin, end, chain = todo.pop()
            if key in chain:
                yield start, begin, end, None
                continue
            for into, valid_from, valid_to in sorted(merged.get(key, ()), key=lambda x: x[1]):
                low, high = max(valid_from, begin), min(valid_to, end)
                if low < high:
                    if begin < low and chain:
                        yield start, begin, low, key
                    todo.append((into, low, high, chain | {key}))
                    begin = high
            if begin < end and chain:
                yield start, begin, end, key


def passed(merged: Mapping[Any, Sequence[Span]]) -> Iterator[tuple[Any, Any]]:
    """Each merged key with the other merged keys that its chain passes at any instant."""
    for start in merged:
        found, todo = {start}, [start]
        while todo:
            for into, _, _ in merged[todo.pop()]:
                if into in merged and into not in found:
                    found.add(into)
                    todo.append(into)
                    yield start, into


class Chains:
    """The chains of a changelog's keys as of each instant."""

    def __init__(self, topic: Topic) -> None:
        self._key, self._into = topic.key_columns[0], snake_case(topic.merged_into or "")
        self._version: int | None = None
        self._ends = self._passed = pa.table({})

    def read(self, history: DirectTable) -> None:
        """Follow the chains, if the history is in another version than when it was read."""
        if self._version == history.version:
            return
        names = [self._key, self._into, "valid_from", "valid_to"]
        rows = history.table(names, f"{self._into} IS NOT NULL")
        begin, end = (pc.cast(rows[name], pa.int64()) for name in ("valid_from", "valid_to"))
        columns = (rows[self._key], rows[self._into], begin, pc.fill_null(end, FOREVER))
        merged: dict[Any, list[Span]] = {}
        for key, *span in zip(*(column.to_pylist() for column in columns), strict=True):
            merged.setdefault(key, []).append((span[0], span[1], span[2]))
        kind = rows.schema.field(self._key).type
        kind = pa.string() if pa.types.is_string_view(kind) else kind  # which Spark does not know
        self._ends = _table(
            spans(merged), _key=kind, _begin=pa.int64(), _end=pa.int64(), _into=kind
        )
        self._passed = _table(passed(merged), _key=kind, _passed=kind)
        self._version = history.version

    def ends(self, spark: SparkSession) -> DataFrame | None:
        """As `spans`: `_key`, `_begin`, `_end` (in µs), `_into`; None if no key is merged."""
        return spark.createDataFrame(self._ends) if self._ends.num_rows else None

    def passed(self, spark: SparkSession) -> DataFrame | None:
        """As `passed`: `_key`, `_passed`; None if no chain has two links."""
        return spark.createDataFrame(self._passed) if self._passed.num_rows else None


def _table(rows: Iterable[tuple[Any, ...]], **columns: pa.DataType) -> pa.Table:
    schema = pa.schema(columns)
    return pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], schema)


def resolve(spark: SparkSession, state: DeltaTable, settings: LakeSettings, topic: Topic) -> None:
    """Bring `resolved_id` of a state table up to date with its rows; replay-safe."""
    key, into = topic.key_columns[0], snake_case(topic.merged_into or "")
    table = DirectTable(state_table(topic), settings)
    merged = table.rows([key, into, "resolved_id"], f"{into} IS NOT NULL")
    ends = survivors({row[key]: row[into] for row in merged})
    wrong = [(row[key], ends[row[key]]) for row in merged if row["resolved_id"] != ends[row[key]]]
    _warn_of_cycles(topic, (k for k, end in wrong if end is None))
    if wrong:
        schema = state.toDF().select(key, "resolved_id").schema
        source = spark.createDataFrame(wrong, schema)
        merge = state.alias("t").merge(source.alias("s"), match([key]))
        merge.whenMatchedUpdate(set={"resolved_id": "s.resolved_id"}).execute()


def _warn_of_cycles(topic: Topic, keys: Iterable[Any]) -> None:
    found = sorted(keys)
    if found:
        log.warning(
            "merged in a cycle: no key survives, resolved_id is NULL",
            topic=topic.name,
            keys=found[:10],
            count=len(found),
        )
