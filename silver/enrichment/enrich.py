"""Events with the rows they refer to (invariants 4 and 8): one table, one MERGE a batch at most.

A record is written at once, with NULL where the state has no row yet; the batch that brings the
row completes it, and leaves alone what was found before. What is missing is a view of the table.
Records of new keys are appended, others come by the MERGE that completes; a crash in between is
mended by the batch that is run again, which finds both done or does them.

A later message for the same key replaces the record: a changed resend is an update.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lake.tables.arrow import DirectTable
from lake.tables.table import TableSpec, match
from lake.topics.topic import Topic
from silver.contract.tables import BATCHES, own_columns
from silver.enrichment.lookups import LookupState
from silver.records.batch import Decoded
from silver.state.merge import all_of, latest_here, latest_per_key

VALID = ("valid_from", "valid_to")
MISSING = "missing_lookups > 0"
FEW_WAITING = 100_000  # records, with what they look up in the memory of each executor
RESOLVED = "resolved_id"


@dataclass(frozen=True)
class Enriched:
    """The table of a topic's enriched events, as Spark and as we open it; Spark takes longer."""

    topic: Topic
    table: TableSpec
    path: str
    delta: Callable[[], DeltaTable]
    direct: DirectTable


def apply_events(
    enriched: Enriched,
    decoded: Decoded | None,
    lookups: Sequence[LookupState],
    batch_id: int,
    *,
    small: bool,
) -> None:
    """Write a batch to `silver.enriched_<topic>`; replay-safe.

    A small batch of keys that are new, as most are, is looked up and appended here in the driver,
    which takes a tenth of the time of Spark's MERGE.

    Args:
        enriched: the table.
        decoded: records of the batch, None if it has none.
        lookups: of the topic.
        batch_id: id of the batch.
        small: whether the batch has few records.
    """
    waiting = waiting_for(enriched, lookups)
    append = _append_directly if small else _append_by_spark
    if decoded and append(enriched, decoded, lookups, batch_id):
        decoded = None  # and only those that waited are left
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
    # Kept, as each lookup asks for its keys: without it the union above is computed for each.
    records = latest_per_key(reduce(DataFrame.unionByName, parts), keys).persist()
    try:
        source = look_up(records, lookups, small=small).withColumn("silver_batch", batch)
        if decoded is None:
            few = records.count() <= FEW_WAITING
            _complete(enriched, F.broadcast(source) if few else source, lookups).execute()
        elif not small and not waiting and _is_new(enriched, records):
            # A replay finds its keys, and so comes to the MERGE, which then changes nothing.
            _append(enriched, source)
        else:
            values = all_of(source)
            _complete(enriched, source, lookups).whenNotMatchedInsert(values=values).execute()
    finally:
        records.unpersist()


def _append_directly(
    enriched: Enriched, decoded: Decoded, lookups: Sequence[LookupState], batch_id: int
) -> bool:
    """Append few records of keys that are new; False, and nothing is done, if they are not.

    Those that a batch which is run again has appended already are left as they are.
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
    """Whether all records are there, at their positions and by this batch: an append is whole."""
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
    """The same, of many records: their keys alone come to the driver, if they are numbers."""
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
    _append(enriched, look_up(records, lookups, small=False))
    return True


def _append(enriched: Enriched, source: DataFrame) -> None:
    names = [column.name for column in enriched.table.columns]
    source.select(names).write.format("delta").mode("append").save(enriched.path)


def _unknown(enriched: Enriched, lookups: Sequence[LookupState]) -> dict[str, Column]:
    """The columns of the lookups, as nothing is known yet."""
    types = {column.name: column.type for column in enriched.table.columns}
    names = [name for lookup in lookups for name in (lookup.name, lookup.version)]
    return {name: F.lit(None).cast(types[name]) for name in names}


def _brought(enriched: Enriched) -> list[str]:
    """The columns that a record has of itself."""
    return [*(c.name for c in own_columns(enriched.topic)), "position", "publish_time"]


def _is_new(enriched: Enriched, records: DataFrame) -> bool:
    """Whether no key of some records is in the table; then an append does, at half the cost."""
    keys = enriched.topic.key_columns
    low, high = records.agg(F.min(keys[0]), F.max(keys[0])).collect()[0]
    near = enriched.delta().toDF().where(F.col(keys[0]).between(low, high))
    return near.join(records, keys, "left_semi").isEmpty()


def _complete(enriched: Enriched, source: DataFrame, lookups: Sequence[LookupState]) -> Any:
    """A MERGE that updates records which are there. If it is not to insert, Spark can send a small
    source to where the table is; else it sorts all of the table."""
    better = ["s.missing_lookups < t.missing_lookups"]
    moving = [x.version for x in lookups if x.at] + [x.name for x in lookups if x.chains]
    better += [f"NOT (s.`{name}` <=> t.`{name}`)" for name in moving]
    completes = f"s.position = t.position AND ({' OR '.join(better)})"
    merge = enriched.delta().alias("t").merge(source.alias("s"), match(enriched.topic.key_columns))
    condition = f"s.position > t.position OR ({completes})"
    return merge.whenMatchedUpdate(condition=condition, set=all_of(source))


def waiting_for(enriched: Enriched, lookups: Sequence[LookupState]) -> list[DataFrame]:
    """Records that miss a lookup whose row this batch has touched.

    Where it is looked up as of the event time, also those that a version of this batch is nearer to
    than what they have.
    """
    touched = [lookup for lookup in lookups if lookup.changed is not None]
    if not touched or (
        all(lookup.at is None for lookup in touched) and not enriched.direct.count(MISSING)
    ):
        return []
    table, found = enriched.delta().toDF(), []
    for lookup in touched:
        changed = cast(DataFrame, lookup.changed)
        key = F.col(lookup.key).alias(lookup.on)
        if lookup.at is None:
            keys = F.broadcast(changed.select(key).distinct())
            missing = table.where(MISSING).where(F.col(lookup.name).isNull())
            found.append(missing.join(keys, lookup.on, "left_semi"))
        else:
            since = changed.select(key, F.col("valid_from").alias("_since"))
            if lookup.chains and (chains := lookup.chains.passed(changed.sparkSession)):
                of_others = since.join(F.broadcast(chains), F.col(lookup.on) == F.col("_passed"))
                since = since.unionAll(of_others.select("_key", "_since"))
            since = since.groupBy(lookup.on).agg(F.min("_since").alias("_since"))
            after = table.join(F.broadcast(since), lookup.on)
            found.append(after.where(F.col(lookup.at) >= F.col("_since")))
            if "mark" in changed.columns:
                truncations = changed.where("mark = 'truncated'")
                [[begin]] = truncations.agg(F.min("valid_from")).collect()
                if begin is not None:
                    found.append(table.where(F.col(lookup.at) >= F.lit(begin)))
    return found


def look_up(records: DataFrame, lookups: Sequence[LookupState], *, small: bool) -> DataFrame:
    """The records with their unknown lookups filled in where the state can, and `missing_lookups`.

    The state is first cut down to the keys of the batch, which are broadcast: the cost of the
    join proper then depends on the batch, not on the state. What is left of the state is broadcast
    too if the batch is small. For a large batch a small state is broadcast as it is: to find the
    keys of the batch would cost more.
    """
    missing: list[Column] = [F.lit(0)]
    result = records
    for lookup in lookups:
        whole = lookup.is_small and not small
        state = lookup.state()
        if not whole:
            keys = records.select(F.col(lookup.on).alias(lookup.key))
            wanted = F.broadcast(keys if small else keys.distinct())
            state = state.join(wanted, lookup.key, "left_semi")
        rows = state.select(
            F.col(lookup.key).alias(lookup.on),
            F.struct(*_row_of(lookup)).alias("_row"),
            F.col("position").alias("_version"),
            *(F.col(name).alias(f"_{name}") for name in VALID if lookup.at),
        )
        rows = F.broadcast(rows) if small or whole else rows
        known = {lookup.name: "_row", lookup.version: "_version"}
        if lookup.at is None:
            filled = {name: F.coalesce(name, found) for name, found in known.items()}
            joined = result.join(rows, lookup.on, "left")
        else:
            filled = {name: F.col(found) for name, found in known.items()}
            at = F.col(f"r.{lookup.at}")
            valid = (F.col("_valid_from") <= at) & F.coalesce(at < F.col("_valid_to"), F.lit(True))
            same = F.col(f"r.{lookup.on}") == F.col(f"h.{lookup.on}")
            joined = result.alias("r").join(rows.alias("h"), same & valid, "left")
            joined = joined.drop(F.col(f"h.{lookup.on}"), *(f"_{name}" for name in VALID))
        result = _resolve(joined.withColumns(filled).drop(*known.values()), lookup)
        missing.append(F.col(lookup.name).isNull().cast("int"))
    return result.withColumn("missing_lookups", reduce(Column.__add__, missing))


def _row_of(lookup: LookupState) -> list[Column]:
    """The columns of a looked-up row; a history has no survivors, which depend on the instant."""
    own = {RESOLVED: F.col(lookup.key).alias(RESOLVED)} if lookup.at else {}
    return [own.get(name, F.col(name)) for name in lookup.columns]


def _resolve(records: DataFrame, lookup: LookupState) -> DataFrame:
    """The records, with the survivor of then in the row of a key that was merged then."""
    ends = lookup.chains.ends(records.sparkSession) if lookup.chains else None
    if ends is None or lookup.at is None:
        return records
    at = F.unix_micros(F.col(lookup.at).cast("timestamp"))
    then = (F.col("_begin") <= at) & (at < F.col("_end"))
    joined = records.join(F.broadcast(ends), (F.col(lookup.on) == F.col("_key")) & then, "left")
    survivor = F.col(lookup.name).withField(RESOLVED, F.col("_into"))
    found = F.when(F.col("_key").isNotNull(), survivor).otherwise(F.col(lookup.name))
    return joined.withColumn(lookup.name, found).drop(*ends.columns)


def look_up_directly(records: pa.Table, lookups: Sequence[LookupState]) -> pa.Table:
    """As `look_up`, for records in the driver, without the columns of their lookups."""
    missing = pa.array([0] * records.num_rows, pa.int32())
    for lookup in lookups:
        wanted = records[lookup.on].combine_chunks()
        rows = lookup.find(pc.unique(wanted))
        place = pc.index_in(wanted, rows[lookup.key].combine_chunks().cast(wanted.type))
        parts = [rows[name].combine_chunks() for name in lookup.columns]
        row = pa.StructArray.from_arrays(parts, lookup.columns).take(place)
        version = rows["position"].combine_chunks().take(place)
        records = records.append_column(lookup.name, row)
        records = records.append_column(lookup.version, version)
        missing = pc.add(missing, pc.cast(pc.is_null(place), pa.int32()))
    return records.append_column("missing_lookups", missing)
