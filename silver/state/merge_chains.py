"""Resolves merged keys: `resolved_id` follows `merged_into` along the chain to the canonical key.

In the state, `resolved_id` is the current canonical key. For lookups as of the event time, it is
the canonical key at that time, computed from the merged versions in the history. These versions are
all read, and their chains followed in the driver, whenever the history has changed. The cost
therefore depends on the number of merged versions, which is small, and not on the size of the batch
or the history.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lake.tables.arrow import ArrowTable
from lake.tables.table import Table
from lake.topics.topic import Topic, snake_case
from silver.records.batch_stats import few
from silver.state.merge import Merge, apply_merge

# A version in which a key is merged: the next key, and the validity from and before, in µs.
Span = tuple[Any, int, int]
FOREVER = 2**63 - 1

log = structlog.get_logger()


def survivors(merged_into: Mapping[Any, Any]) -> dict[Any, Any]:
    """The canonical key of each merged key: the end of its chain, or None if the chain is a cycle.

    Args:
        merged_into: the next key of each merged key. A key that is absent ends a chain.
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
    """The canonical key of each merged key as of each instant.

    Args:
        merged: the versions of each key in which it is merged. At other instants, the key ends a
            chain.

    Yields:
        A merged key, the begin and end (exclusive) of a period in µs, and the canonical key in that
        period: the end of the chain, or None if the chain is a cycle.
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
    """Yield each merged key with each other merged key that its chain passes at any instant."""
    for start in merged:
        found, todo = {start}, [start]
        while todo:
            for into, _, _ in merged[todo.pop()]:
                if into in merged and into not in found:
                    found.add(into)
                    todo.append(into)
                    yield start, into


class Chains:
    """The merge chains of a changelog's keys as of each instant. Call `read` before each use."""

    def __init__(self, topic: Topic) -> None:
        self._key, self._into = topic.key_columns[0], snake_case(topic.merged_into or "")
        self._version: int | None = None
        self._ends = self._passed = pa.table({})

    def read(self, history: ArrowTable) -> None:
        """Compute the chains again if the history has changed since the last call."""
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
        kind = pa.string() if pa.types.is_string_view(kind) else kind  # unknown to Spark
        self._ends = _table(
            spans(merged), _key=kind, _begin=pa.int64(), _end=pa.int64(), _into=kind
        )
        self._passed = _table(passed(merged), _key=kind, _passed=kind)
        self._version = history.version

    def ends(self, spark: SparkSession) -> DataFrame | None:
        """The result of `spans`: `_key`, `_begin`, `_end` (in µs), `_into`; None if it is empty."""
        return spark.createDataFrame(self._ends) if self._ends.num_rows else None

    def passed(self, spark: SparkSession) -> DataFrame | None:
        """The result of `passed`: `_key`, `_passed`; None if no chain has two links."""
        return spark.createDataFrame(self._passed) if self._passed.num_rows else None


def _table(rows: Iterable[tuple[Any, ...]], **columns: pa.DataType) -> pa.Table:
    schema = pa.schema(columns)
    return pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], schema)


def resolve(spark: SparkSession, state: Table, topic: Topic) -> None:
    """Update `resolved_id` in a state table to match its rows. A replay changes nothing."""
    key, into = topic.key_columns[0], snake_case(topic.merged_into or "")
    direct = state.arrow
    merged = direct.rows([key, into, "resolved_id"], f"{into} IS NOT NULL")
    ends = survivors({row[key]: row[into] for row in merged})
    wrong = [(row[key], ends[row[key]]) for row in merged if row["resolved_id"] != ends[row[key]]]
    _warn_of_cycles(topic, (k for k, end in wrong if end is None))
    if wrong:
        kind = direct.schema([key]).field(key).type
        source = spark.createDataFrame(_table(wrong, **{key: kind, "resolved_id": kind}))
        merge = Merge(source, [key], (F.lit(True), {"resolved_id": "s.resolved_id"}))
        apply_merge(state, merge, small=few(len(wrong)))


def _warn_of_cycles(topic: Topic, keys: Iterable[Any]) -> None:
    found = sorted(keys)
    if found:
        log.warning(
            "keys are merged in a cycle; their resolved_id is NULL",
            topic=topic.name,
            keys=found[:10],
            count=len(found),
        )
