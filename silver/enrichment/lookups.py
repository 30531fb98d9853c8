"""The lookups of events in a batch: states and histories of changelogs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark import SparkFiles
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lake.tables.arrow import ArrowTable
from lake.tables.lake import Lake
from lake.topics.topic import Topic, snake_case
from lake.topics.topic_file import TopicFile
from silver.contract.tables import history_table, lookup_columns, state_table
from silver.enrichment.state_cache import StateCache
from silver.records.batch import Decoded
from silver.state.merge import Find
from silver.state.merge_chains import Chains

FEW_ROWS = 200_000  # rows of a state that is broadcast: they take about 100 MB on each receiver


@dataclass(frozen=True)
class LookupState:
    """One lookup of a topic in a batch.

    name: the struct column that the lookup fills.
    on: the record's columns that hold the key to look up. `<lookup>.<column>` is one of a row that
        was looked up before.
    key: the key columns of the state, in the same order.
    columns: the columns of the state that go into the struct.
    state: reads the state after this batch, or the history.
    find: finds the state's rows of some keys without Spark; used if `is_direct`. None if the key
        has several columns.
    changed: rows of the keys that this batch has touched; None if it has touched none.
    is_comparable: whether `on` and `key` can be compared without Spark.
    at: for a lookup in the history, the record's column with its event time.
    chains: for a lookup in the history, the merge chains as of each instant, if keys are merged.
    moves: whether the row of a version may change while the message that it comes from does not.
    is_small: whether the state is small enough to be broadcast.
    """

    name: str
    on: list[str]
    key: list[str]
    columns: list[str]
    state: Callable[[], DataFrame]
    find: Find | None
    changed: DataFrame | None
    is_comparable: bool
    at: str | None = None
    chains: Chains | None = None
    moves: bool = False
    is_small: bool = False

    @property
    def is_direct(self) -> bool:
        """Whether `find` can be used, without Spark."""
        return self.at is None and self.is_comparable and self.find is not None

    @property
    def is_chained(self) -> bool:
        """Whether the key is in a row that was looked up before."""
        return any("." in name for name in self.on)

    @property
    def wanted(self) -> list[str]:
        """Names for the key columns of the state beside the columns of records."""
        return [f"_key_{number}" for number in range(len(self.key))]

    @property
    def version(self) -> str:
        """The column with the position of the looked-up row, which identifies its version."""
        return f"{self.name}_position"


class Lookups:
    """The lookups of all topics, with the caches that are kept between batches."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._chains: dict[str, Chains] = {}
        self._caches: dict[str, StateCache] = {}

    def states(
        self, spark: SparkSession, topic: Topic, rows: Mapping[str, Decoded], batch_id: int
    ) -> list[LookupState]:
        """The lookups of a topic. Called after the batch's changelogs have been applied.

        Args:
            spark: the session of the batch.
            topic: a topic of events.
            rows: the decoded rows of the batch, by topic.
            batch_id: id of the batch.
        """
        found = []
        for name, lookup in topic.lookups_in_order.items():
            target = self._lake.topics.topics[lookup.topic]
            is_single = len(lookup.on) == 1
            kinds = [_kind(*_field(self._lake.topics, topic, on)) for on in lookup.on]
            spec = history_table(target) if lookup.mode == "as_of" else state_table(target)
            table = self._lake.table(spec)
            at = snake_case(topic.event_time or "") if lookup.mode == "as_of" else None
            direct, chains = table.arrow, None
            changed = rows[lookup.topic].good if lookup.topic in rows else None
            if changed is not None and at and target.keeps_changes:
                changed = _versions(table.rows(spark), changed, target, batch_id)
            if at and target.merged_into:
                chains = self._chains.setdefault(target.name, Chains(target))
                chains.read(direct)
            found.append(
                LookupState(
                    name=name,
                    on=[".".join(_columns(on)) for on in lookup.on],
                    key=target.key_columns,
                    columns=[c.name for c in lookup_columns(target)],
                    state=partial(table.rows, spark),
                    find=partial(self._cache(target).find, direct) if is_single else None,
                    changed=changed,
                    is_comparable=kinds[0] is not None
                    and kinds == [_kind(target, key) for key in target.key],
                    at=at,
                    chains=chains,
                    moves=bool(chains) or (at is not None and target.merges_fields),
                    is_small=at is None and direct.count_rows() <= FEW_ROWS,
                )
            )
        return found

    def find(self, topic: Topic, state: ArrowTable) -> Find:
        """A function that finds rows of a changelog's state by their single key.

        Args:
            topic: the changelog.
            state: its state, opened at the current version.
        """
        if topic.name in self._caches:
            return partial(self._caches[topic.name].find, state)
        return partial(state.find, topic.key_columns[0], columns=topic.key_columns)

    def _cache(self, topic: Topic) -> StateCache:
        known = self._caches.get(topic.name)
        if known is None:
            columns = [*(column.name for column in lookup_columns(topic)), "position"]
            scratch = Path(SparkFiles.getRootDirectory())  # on the driver
            known = self._caches[topic.name] = StateCache(topic.key_columns[0], columns, scratch)
        return known


def _versions(history: DataFrame, rows: DataFrame, topic: Topic, batch_id: int) -> DataFrame:
    """The versions that a batch has changed, and its truncations.

    A message may change versions that begin earlier, whose values come from several messages.
    """
    names = [*topic.key_columns, "valid_from"]
    found = history.where(F.col("silver_batch") == batch_id).select(*names)
    if not topic.truncates:
        return found
    marks = rows.where("mark IS NOT NULL").select(*names, "mark")
    return found.withColumn("mark", F.lit(None).cast("string")).unionByName(marks)


def _field(topics: TopicFile, topic: Topic, on: str) -> tuple[Topic, str]:
    """The topic and the name of a field by which a lookup goes."""
    lookup, _, field = on.rpartition(".")
    return (topics.topics[topic.lookups[lookup].topic] if lookup else topic), field


def _columns(on: str) -> list[str]:
    """The column of such a field, after that of the row that it is in."""
    lookup, _, field = on.rpartition(".")
    return [*([lookup] if lookup else []), snake_case(field)]


def _kind(topic: Topic, field: str) -> str | None:
    """The kind of a field's values for comparisons outside Spark; None if they are not possible."""
    return {"int": "integer", "long": "integer", "string": "string"}.get(topic.fields[field].type)
