"""Joins events with the rows they refer to (invariants 4 and 8).

There is one table per topic, and at most one MERGE per batch.

A record is written immediately, with NULL where the state has no row yet. The batch that brings the
row completes the record, and does not change lookups that were found before. Incomplete records are
shown by a view of the table.

Records with new keys are appended. The others are written by the MERGE that completes records. If
the job crashes in between, the batch is run again, and does whichever of the two is not done yet.

A later message for the same key replaces the record: a changed resend is an update.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lake.tables.arrow import ArrowTable
from lake.tables.spec import match
from lake.tables.table import Table
from lake.topics.topic import Topic
from silver.contract.tables import BATCHES, own_columns
from silver.enrichment.lookups import LookupState
from silver.records.batch import Decoded
from silver.records.batch_stats import FEW, few
from silver.state.merge import Find, all_of, comparable, latest_here, latest_per_key

VALID = ("valid_from", "valid_to")
MISSING = "missing_lookups > 0"
FEW_WAITING = 100_000  # records, with what they look up in the memory of each executor
RESOLVED = "resolved_id"


@dataclass(frozen=True)
class Enriched:
    """The table of a topic's enriched events.

    table: the table.
    delta: opens it in Spark, which takes longer.
    direct: the table, opened without Spark.
    """

    topic: Topic
    table: Table
    delta: Callable[[], DeltaTable]
    direct: ArrowTable


Writer = Callable[[Enriched, DataFrame, Sequence[LookupState]], None]
Cache = Callable[[DataFrame], DataFrame]


def apply_events(
    enriched: Enriched,
    decoded: Decoded | None,
    lookups: Sequence[LookupState],
    batch_id: int,
    *,
    small: bool,
) -> None:
    """Write a batch to `silver.enriched_<topic>`. A replay changes nothing.

    Most keys are new. A small batch with only new keys is looked up and appended in the driver,
    which takes a tenth of the time of Spark's MERGE.

    Args:
        enriched: the table.
        decoded: the records of the batch, None if it has none.
        lookups: the lookups of the topic.
        batch_id: id of the batch.
        small: whether the batch has few records.
    """
    waiting = waiting_for(enriched, lookups)
    append = _append_directly if small else _append_by_spark
    if decoded and append(enriched, decoded, lookups, batch_id):
        decoded = None  # only incomplete records are left
    keys = enriched.topic.key_columns
    unknown = _unknown(enriched, lookups)
    columns = [*_brought(enriched), "arrived_batch", *unknown]
    batch = F.lit(batch_id).cast("bigint")
    parts = [rows.select(*columns) for rows in waiting]
    if decoded is not None:
        arrived = decoded.good.withColumns({"arrived_batch": batch, **unknown})
        parts.append(arrived.select(*columns))
    if not parts:
        return
    with _caching() as cache:
        # Each lookup reads the keys, and would otherwise compute the union again.
        records = cache(latest_per_key(reduce(DataFrame.unionByName, parts), keys))
        source = look_up(records, lookups, cache, small=small).withColumn("silver_batch", batch)
        if small and _write_directly(enriched, records, source, lookups):
            return
        has_arrived, is_waiting = decoded is not None, bool(waiting)
        write = _choose_writer(
            enriched, records, has_arrived=has_arrived, is_waiting=is_waiting, small=small
        )
        write(enriched, source, lookups)


@contextmanager
def _caching() -> Iterator[Cache]:
    """A function that caches rows until the end of the block."""
    cached: list[DataFrame] = []

    def cache(rows: DataFrame) -> DataFrame:
        cached.append(rows.persist())
        return cached[-1]

    try:
        yield cache
    finally:
        for rows in cached:
            rows.unpersist()


def _choose_writer(
    enriched: Enriched, records: DataFrame, *, has_arrived: bool, is_waiting: bool, small: bool
) -> Writer:
    """Choose the cheapest way to write records that were not appended yet.

    Args:
        enriched: the table.
        records: the records, without their lookups.
        has_arrived: whether some of them came with this batch.
        is_waiting: whether some of them are incomplete rows of the table.
        small: whether the batch has few records.
    """
    if not has_arrived:
        return _complete_few if records.count() <= FEW_WAITING else _complete
    if not small and not is_waiting and _is_new(enriched, records):
        # A replay finds its keys in the table. It runs the MERGE, which then changes nothing.
        return _append
    return _upsert


def _append_directly(
    enriched: Enriched, decoded: Decoded, lookups: Sequence[LookupState], batch_id: int
) -> bool:
    """Append a small number of records if all keys are new.

    Returns:
        True if the records are in the table: appended now, or by an earlier run of this batch.
        False if nothing was done, because a key is known, or a lookup needs Spark.
    """
    if not all(lookup.is_direct for lookup in lookups):
        return False
    keys = enriched.topic.key_columns
    found = latest_here(decoded.good_table.select(_brought(enriched)), keys)
    if not enriched.direct.lacks(found.select(keys)):
        return _have_arrived(enriched, found, batch_id)
    batch = pa.array([batch_id] * found.num_rows, pa.int64())
    for name in BATCHES:
        found = found.append_column(name, batch)
    enriched.direct.append(look_up_directly(found, lookups))
    return True


def _have_arrived(enriched: Enriched, records: pa.Table, batch_id: int) -> bool:
    """Whether this batch has already written all records, with the same positions.

    An append is atomic, so it has written either all records or none.
    """
    columns = [*enriched.topic.key_columns, "position"]
    there = enriched.direct.table(columns, f"arrived_batch = {batch_id}")
    wanted, known = (
        {(*row.pop("position").values(), *row.values()) for row in rows.select(columns).to_pylist()}
        for rows in (records, there)
    )
    return wanted <= known


def _append_by_spark(
    enriched: Enriched, decoded: Decoded, lookups: Sequence[LookupState], batch_id: int
) -> bool:
    """As `_append_directly`, for many records. The driver collects only their keys, all integers.

    Keys of other types are not collected, and nothing is appended.
    """
    keys, kinds = enriched.topic.key_columns, enriched.topic.fields
    if not all(kinds[name].type in ("int", "long") for name in enriched.topic.key):
        return False
    found = decoded.good.select(keys).toArrow()
    is_once = found.group_by(keys).aggregate([]).num_rows == found.num_rows
    if not is_once or not enriched.direct.lacks(found):
        return False
    unknown = _unknown(enriched, lookups)
    batch = dict.fromkeys(BATCHES, F.lit(batch_id).cast("bigint"))
    records = decoded.good.select(_brought(enriched)).withColumns({**batch, **unknown})
    with _caching() as cache:
        _append(enriched, look_up(records, lookups, cache, small=False), lookups)
    return True


def _write_directly(
    enriched: Enriched, records: DataFrame, source: DataFrame, lookups: Sequence[LookupState]
) -> bool:
    """Compare a small number of records with those of the table in the driver, and write them.

    Args:
        enriched: the table.
        records: the records without their lookups, which are cached.
        source: the records.
        lookups: the lookups of the topic.

    Returns:
        Whether this was done. Spark does it better if there are many records, or large files.
    """
    keys, direct = enriched.topic.key_columns, enriched.direct
    came = records.select(keys).limit(FEW + 1).toArrow()
    is_little = (
        few(came.num_rows) and direct.finds_by(keys[0]) and direct.rewrites_little(came, keys)
    )
    if not is_little:
        return False
    compared = ["position", "missing_lookups", *_moving(lookups)]
    # Arrow refuses a row of a lookup that is NULL if one of its members cannot be NULL.
    typed = [F.col(c.name).cast(c.type).alias(c.name) for c in enriched.table.spec.columns]
    rows = source.select(typed).toArrow()
    found = direct.find(keys[0], pc.unique(came[keys[0]]), [*keys, *compared])
    known = dict(zip(_places(found, keys), _places(found, compared), strict=True))
    seen = rows.select([*keys, *compared]).cast(found.select([*keys, *compared]).schema)
    is_better = [
        key not in known or _is_better(new, known[key])
        for key, new in zip(_places(seen, keys), _places(seen, compared), strict=True)
    ]
    better = rows.filter(pa.array(is_better, pa.bool_()))
    if better.num_rows:
        direct.upsert(better, keys)
    return True


def _places(rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Columns of rows, as tuples."""
    return zip(*(rows[name].to_pylist() for name in columns), strict=True)


def _is_better(new: tuple[Any, ...], known: tuple[Any, ...]) -> bool:
    """As the condition of `_updates`, for positions, missing lookups and the moving columns."""
    came, was = ([(x is not None, x or 0) for x in row[0].values()] for row in (new, known))
    return came > was or (came == was and (new[1] < known[1] or repr(new[2:]) != repr(known[2:])))


def _moving(lookups: Sequence[LookupState]) -> list[str]:
    """The columns by which a record may change although it lacks as many lookups as before."""
    return [x.version for x in lookups if x.at] + [x.name for x in lookups if x.moves]


def _append(enriched: Enriched, source: DataFrame, _: Sequence[LookupState]) -> None:
    """Append records whose keys are all new."""
    names = [column.name for column in enriched.table.spec.columns]
    source.select(names).write.format("delta").mode("append").save(enriched.table.path)


def _unknown(enriched: Enriched, lookups: Sequence[LookupState]) -> dict[str, Column]:
    """The columns of the lookups, all NULL."""
    types = {column.name: column.type for column in enriched.table.spec.columns}
    names = [name for lookup in lookups for name in (lookup.name, lookup.version)]
    return {name: F.lit(None).cast(types[name]) for name in names}


def _brought(enriched: Enriched) -> list[str]:
    """The columns that a record has without its lookups."""
    return [*(c.name for c in own_columns(enriched.topic)), "position", "publish_time"]


def _is_new(enriched: Enriched, records: DataFrame) -> bool:
    """Whether the table has none of these keys. Then an append suffices, at half the cost."""
    keys = enriched.topic.key_columns
    low, high = records.agg(F.min(keys[0]), F.max(keys[0])).collect()[0]
    near = enriched.table.rows(records.sparkSession).where(F.col(keys[0]).between(low, high))
    return near.join(records, keys, "left_semi").isEmpty()


def _complete(enriched: Enriched, source: DataFrame, lookups: Sequence[LookupState]) -> None:
    """Update existing records. Without an insert, the MERGE can broadcast a small source."""
    _updates(enriched, source, lookups).execute()


def _complete_few(enriched: Enriched, source: DataFrame, lookups: Sequence[LookupState]) -> None:
    """As `_complete`, for a source that each executor has the memory for."""
    _complete(enriched, F.broadcast(source), lookups)


def _upsert(enriched: Enriched, source: DataFrame, lookups: Sequence[LookupState]) -> None:
    """Insert new records, and update existing ones."""
    _updates(enriched, source, lookups).whenNotMatchedInsert(values=all_of(source)).execute()


def _updates(enriched: Enriched, source: DataFrame, lookups: Sequence[LookupState]) -> Any:
    """A MERGE that replaces records by later ones, and completes their lookups."""
    better = ["s.missing_lookups < t.missing_lookups"]
    kinds = {column.name: column.type for column in enriched.table.spec.columns}
    for name in _moving(lookups):
        new, known = (comparable(f"{row}.`{name}`", kinds[name]) for row in "st")
        better.append(f"NOT ({new} <=> {known})")
    completes = f"s.position = t.position AND ({' OR '.join(better)})"
    merge = enriched.delta().alias("t").merge(source.alias("s"), match(enriched.topic.key_columns))
    condition = f"s.position > t.position OR ({completes})"
    return merge.whenMatchedUpdate(condition=condition, set=all_of(source))


def waiting_for(enriched: Enriched, lookups: Sequence[LookupState]) -> list[DataFrame]:
    """Records that miss a lookup whose row this batch has touched.

    For a lookup as of the event time, these are all records whose event time is not before the
    earliest version in this batch of their key, or of a key on its merge chain. A truncation counts
    as a version of every key.
    """
    touched = [lookup for lookup in lookups if lookup.changed is not None]
    if not touched or (
        all(lookup.at is None for lookup in touched) and not enriched.direct.count(MISSING)
    ):
        return []
    spark = cast(DataFrame, touched[0].changed).sparkSession
    table, found = enriched.table.rows(spark), []
    for lookup in touched:
        changed = cast(DataFrame, lookup.changed)
        keys = [F.col(k).alias(name) for k, name in zip(lookup.key, lookup.wanted, strict=True)]
        if lookup.at is None:
            touched_keys = F.broadcast(changed.select(*keys).distinct())
            missing = table.where(MISSING).where(F.col(lookup.name).isNull())
            found.append(missing.join(touched_keys, _has_key(lookup), "left_semi"))
        else:
            since = changed.select(*keys, F.col("valid_from").alias("_since"))
            if lookup.chains and (chains := lookup.chains.passed(changed.sparkSession)):
                of_others = since.join(F.broadcast(chains), since[0] == F.col("_passed"))
                since = since.unionAll(of_others.select("_key", "_since"))
            since = since.groupBy(*lookup.wanted).agg(F.min("_since").alias("_since"))
            after = table.join(F.broadcast(since), _has_key(lookup))
            found.append(after.where(F.col(lookup.at) >= F.col("_since")))
            if "mark" in changed.columns:
                truncations = changed.where("mark = 'truncated'")
                [[begin]] = truncations.agg(F.min("valid_from")).collect()
                if begin is not None:
                    found.append(table.where(F.col(lookup.at) >= F.lit(begin)))
    return found


def look_up(
    records: DataFrame, lookups: Sequence[LookupState], cache: Cache, *, small: bool
) -> DataFrame:
    """Fill in the records' unknown lookups from the state, and add `missing_lookups`.

    The state is first reduced to the keys of the batch, which are broadcast. The cost of the join
    itself then depends on the batch, and not on the state. If the batch is small, the reduced state
    is broadcast, too. For a large batch, a small state is broadcast whole, because finding the keys
    of the batch would cost more.

    A lookup through others reads what they have found twice, for its keys and for its join, so that
    is cached by `cache`.
    """
    missing: list[Column] = [F.lit(0)]
    result = records
    for lookup in lookups:
        whole = lookup.is_small and not small
        state = lookup.state()
        if not whole:
            if lookup.is_chained and result is not records:
                result = cache(result)
            known_by = result if lookup.is_chained else records
            keys = known_by.select(
                *(F.col(on).alias(key) for on, key in zip(lookup.on, lookup.key, strict=True))
            )
            wanted = F.broadcast(keys if small else keys.distinct())
            state = state.join(wanted, lookup.key, "left_semi")
        rows = state.select(
            *(F.col(key).alias(name) for key, name in zip(lookup.key, lookup.wanted, strict=True)),
            F.struct(*_row_of(lookup)).alias("_row"),
            F.col("position").alias("_version"),
            *(F.col(name).alias(f"_{name}") for name in VALID if lookup.at),
        )
        rows = F.broadcast(rows) if small or whole else rows
        known = {lookup.name: "_row", lookup.version: "_version"}
        if lookup.at is None:
            filled = {name: F.coalesce(name, found) for name, found in known.items()}
            joined = result.join(rows, _has_key(lookup), "left")
        else:
            filled = {name: F.col(found) for name, found in known.items()}
            at = F.col(lookup.at)
            valid = (F.col("_valid_from") <= at) & F.coalesce(at < F.col("_valid_to"), F.lit(True))
            joined = result.join(rows, _has_key(lookup) & valid, "left")
            joined = joined.drop(*(f"_{name}" for name in VALID))
        found = joined.withColumns(filled).drop(*known.values(), *lookup.wanted)
        result = _resolve(found, lookup)
        missing.append(F.col(lookup.name).isNull().cast("int"))
    return result.withColumn("missing_lookups", reduce(Column.__add__, missing))


def _has_key(lookup: LookupState) -> Column:
    """Whether a record refers to the key in the columns `wanted`."""
    pairs = zip(lookup.on, lookup.wanted, strict=True)
    return reduce(Column.__and__, [F.col(on) == F.col(key) for on, key in pairs])


def _row_of(lookup: LookupState) -> list[Column]:
    """The columns of a looked-up row.

    A history has no canonical keys, because they depend on the instant; `_resolve` adds them.
    """
    own = {RESOLVED: F.col(lookup.key[0]).alias(RESOLVED)} if lookup.at else {}
    return [own.get(name, F.col(name)) for name in lookup.columns]


def _resolve(records: DataFrame, lookup: LookupState) -> DataFrame:
    """Set the canonical key in looked-up rows whose key was merged at the event time."""
    ends = lookup.chains.ends(records.sparkSession) if lookup.chains else None
    if ends is None or lookup.at is None:
        return records
    at = F.unix_micros(F.col(lookup.at).cast("timestamp"))
    then = (F.col("_begin") <= at) & (at < F.col("_end"))
    joined = records.join(F.broadcast(ends), (F.col(lookup.on[0]) == F.col("_key")) & then, "left")
    survivor = F.col(lookup.name).withField(RESOLVED, F.col("_into"))
    found = F.when(F.col("_key").isNotNull(), survivor).otherwise(F.col(lookup.name))
    return joined.withColumn(lookup.name, found).drop(*ends.columns)


def look_up_directly(records: pa.Table, lookups: Sequence[LookupState]) -> pa.Table:
    """As `look_up`, for records in the driver that do not have the lookup columns yet."""
    missing = pa.array([0] * records.num_rows, pa.int32())
    for lookup in lookups:
        [on], [key] = lookup.on, lookup.key
        wanted = _column(records, on)
        rows = cast(Find, lookup.find)(pc.unique(wanted))
        place = pc.index_in(wanted, rows[key].combine_chunks().cast(wanted.type))
        parts = [rows[name].combine_chunks() for name in lookup.columns]
        row = pa.StructArray.from_arrays(parts, lookup.columns).take(place)
        version = rows["position"].combine_chunks().take(place)
        records = records.append_column(lookup.name, row)
        records = records.append_column(lookup.version, version)
        missing = pc.add(missing, pc.cast(pc.is_null(place), pa.int32()))
    return records.append_column("missing_lookups", missing)


def _column(records: pa.Table, name: str) -> pa.Array:
    """A column, or a member of a struct in one."""
    column, _, member = name.partition(".")
    values = records[column].combine_chunks()
    return pc.struct_field(values, member) if member else values
