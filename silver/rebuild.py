"""`lakehouse replay --table silver`: rebuilds silver from bronze while readers see the old tables.

The new tables are in a separate lake, `_replay`, which shares the bronze tables. When they have
caught up, their files are linked into silver's tables. Each of these then takes over the files in
one commit, all within milliseconds, and the silver query continues where the new tables end. The
batch numbers of the new tables are higher than all earlier ones, so a reader that follows silver by
`silver_batch` sees all rows again.
"""

import datetime as dt
import hashlib
import json
import shutil
from functools import partial
from pathlib import Path

import structlog
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lake.durable import delete_durably, write_durably
from lake.quoting import delta_at
from lake.streams.checkpoint import Checkpoint, claim, claim_tables, interrupted, newest_batch
from lake.streams.delta_offset import offset_of_delta
from lake.streams.failures import explain
from lake.streams.job import await_streams
from lake.streams.rewind import Place, move
from lake.tables.lake import Lake
from lake.tables.spec import APPEND_ONLY, DELETION_VECTORS, TableSpec, bronze_table, match
from lake.tables.storage import delete, in_bucket
from lake.tables.swap import Swap
from lake.tables.table import Table
from lake.topics.topic_file import TopicFile
from pulsar_spark.errors import CheckpointError, LakehouseError, SettingsError
from pulsar_spark.options import epoch_ms
from silver.audit.snapshots import SilverSnapshot, last_batch, latest_snapshot
from silver.contract.tables import (
    CUTS,
    QUARANTINE,
    RECONCILIATION,
    SCHEMAS,
    own_tables,
)
from silver.declared import changed_declarations, record_declarations
from silver.expiry import expire_events
from silver.part import COMMAND, Part, refuse_other_changes
from silver.records.masking import protect_table
from silver.records.pseudonymize import FORGOTTEN
from silver.refine import QUERY, Refinery, refine, require_bronze

BUILT = "built"
BESIDE = "_replay"
# Properties that a table must not have while its rows or columns are replaced.
HINDERING = {APPEND_ONLY, "delta.dataSkippingStatsColumns"}

log = structlog.get_logger()


def rebuild(
    spark: SparkSession,
    lake: Lake,
    begin: SilverSnapshot | None = None,
    part: Part | None = None,
) -> None:
    """Rebuild silver from bronze, and swap the tables when done. Continues an interrupted swap.

    Args:
        spark: the session.
        lake: the lake, with the topics to decode with. Fields and types may have changed.
        begin: the snapshot to begin with, whose tables are copied; None to begin with empty tables.
        part: the tables to rebuild; None for all. Other tables are used as they are.

    Raises:
        CheckpointError: the silver query is running and must be stopped first, or it was stopped
            within a batch and only a part is to be rebuilt.
        LakehouseError: a bronze table does not exist, or cannot be read as declared.
    """
    side = lake.beside(BESIDE, partial(_is_shared, part))
    require_bronze(side)
    command = part.command if part else COMMAND
    checkpoint = claim(lake.settings, QUERY, command)
    built, asked = side.settings.lake_dir / BUILT, _asked(lake.topics, begin, part)
    try:
        # Tables that were built, but whose swap did not begin, may be out of date by now.
        is_swapping = interrupted(Path(checkpoint.path)) is not None
        if not (is_swapping and built.exists() and built.read_text() == asked):
            if part:
                _refuse_half_a_batch(checkpoint)
                refuse_other_changes(lake, part)
            _prepare(spark, lake, side, begin, part)
            if part is None or part.topics:
                await_streams(refine(spark, side, available_now=True))
            _complete(spark, side, checkpoint)
            write_durably(built, asked)
        checkpoint.expect(command)
        _swap(spark, lake, side, checkpoint, part)
        delete_durably(built)  # first, so that the next replay does not swap the tables again
        checkpoint.expect(None)
        _clear(lake, side)
    finally:
        checkpoint.release()


def _refuse_half_a_batch(checkpoint: Checkpoint) -> None:
    if checkpoint.unfinished is not None:
        message = (
            f"Silver was stopped within batch {checkpoint.unfinished}, so its tables do not belong "
            "together, and one of them cannot be rebuilt alone. Run `lakehouse silver "
            f"--available-now` first, or rebuild all with `{COMMAND}`."
        )
        raise CheckpointError(message)


def _complete(spark: SparkSession, side: Lake, main: Checkpoint) -> None:
    """Delete old events that bronze still has, and compute views that no batch has computed."""
    has_changed = expire_events(spark, side, dt.datetime.now(dt.timezone.utc))
    is_new = not side.owns(CUTS) or last_batch(side) < 0
    number = newest_batch(side.settings, QUERY)
    if number is not None and (has_changed or is_new):
        Refinery(side, main).recompute_views(spark, number)


def _asked(topics: TopicFile, begin: SilverSnapshot | None, part: Part | None) -> str:
    """A fingerprint of what a replay builds: the declarations, the part, and where it begins."""
    text = f"{topics.model_dump_json()} {begin.silver_batch if begin else ''}"
    text += f" {part.name}" if part else ""
    return hashlib.sha256(text.encode()).hexdigest()


def _is_shared(part: Part | None, table: TableSpec) -> bool:
    """Whether the separate lake reads a table of the original."""
    if part is not None:
        return not part.has(table)
    return table.layer == "bronze" or table.full_name == FORGOTTEN.full_name


def _clear(lake: Lake, side: Lake) -> None:
    if in_bucket(side.settings):
        delete(side.settings, side.settings.tables)
    folder = lake.settings.lake_dir / BESIDE
    if folder.exists():
        shutil.rmtree(folder)


def snapshot_at(lake: Lake, moment: str) -> SilverSnapshot:
    """The snapshot of a batch.

    Args:
        lake: the lake.
        moment: the number of the batch, or an instant, for the latest snapshot at that time.

    Raises:
        SettingsError: there is no such snapshot.
    """
    if not lake.table(CUTS).exists():
        message = (
            f"The table {CUTS.full_name} does not exist yet, so there is no snapshot to replay "
            "from. Replay from the beginning (without --from)."
        )
        raise SettingsError(message)
    if moment.isdigit():
        snapshot = latest_snapshot(lake, lambda row: row["silver_batch"] == int(moment))
    else:
        instant = epoch_ms("--from", moment)
        snapshot = latest_snapshot(
            lake, lambda row: int(row["committed_at"].timestamp() * 1000) <= instant
        )
    if snapshot is None:
        message = (
            f"There is no snapshot of silver at '{moment}'; the table silver.cuts has the "
            f"snapshots of the last {lake.settings.history_days} days."
        )
        raise SettingsError(message)
    return snapshot


def _prepare(
    spark: SparkSession,
    lake: Lake,
    side: Lake,
    begin: SilverSnapshot | None,
    part: Part | None,
) -> None:
    """Create silver's tables in the separate lake, empty or as of a snapshot.

    If only a part is rebuilt, the tables of all topics have the rows of the other topics.

    The query of the separate lake continues from there.
    """
    place = _begin(lake, begin, part)
    _clear(lake, side)  # left over from an interrupted build
    side.settings.lake_dir.mkdir(parents=True)
    specs = own_tables(side)
    checkpoint = claim_tables(spark, side, QUERY, specs)
    try:
        for spec in specs:
            old = lake.table(spec)
            if part and spec in (QUARANTINE, RECONCILIATION):
                others = old.rows(spark).where(~F.col("topic").isin([*part.topics]))
                columns = [column.name for column in spec.columns]
                new = side.table(spec).path
                others.select(columns).write.format("delta").mode("append").save(new)
            version = begin.versions.get(spec.full_name) if begin else None
            if spec == SCHEMAS and old.exists():
                version = old.newest_version()
            if version is not None and spec != CUTS:
                _copy(spark, old, side.table(spec), version)
        move(checkpoint, place)
    finally:
        checkpoint.release()


def _copy(spark: SparkSession, old: Table, new: Table, version: int) -> None:
    for what in changed_declarations(old):
        message = f"{what} A replay with --from keeps older rows; replay from the beginning."
        raise SettingsError(message)
    then = old.rows(spark, version)
    try:
        then.write.format("delta").mode("append").save(new.path)
    except AnalysisException as error:
        message = (
            f"Version {version} of {old.full_name} cannot be used: {explain(error)} If "
            "declarations have changed since, replay from the beginning (without --from)."
        )
        raise SettingsError(message) from error


def _begin(lake: Lake, begin: SilverSnapshot | None, part: Part | None) -> Place:
    """Where the new query begins. Its batch numbers are higher than all of silver's.

    Without topics to read, this is also where it ends.
    """
    place = Place.newest(lake.settings, QUERY)
    if place is None:
        message = "Silver has not run yet, so there is nothing to replay; run `lakehouse silver`."
        raise SettingsError(message)
    if part and not part.topics:
        return Place(place.batch + 1, place.offsets)
    ends = {}
    for name in part.topics if part else lake.topics.topics:
        bronze = lake.table(bronze_table(name)).log()
        known = begin.positions.get(name) if begin else None
        ends[name] = known or offset_of_delta(bronze, bronze.version(), snapshot=True)
    return place.at(ends)


def _swap(
    spark: SparkSession, lake: Lake, side: Lake, checkpoint: Checkpoint, part: Part | None
) -> None:
    """Put the new rows into the tables that readers see, and move the query to where they end.

    Slow steps are done first, so that the commits follow one another immediately.
    """
    specs = [spec for spec in own_tables(side) if spec != CUTS]
    if QUARANTINE in specs:
        _keep_discarded(spark, lake.table(QUARANTINE), side.table(QUARANTINE))
    tables = [lake.table(spec) for spec in specs]
    ready = [
        _make_ready(spark, lake, table, side.table(table.spec), checkpoint) for table in tables
    ]
    for swap in ready:
        swap.commit(whole=True)
    for table in tables:
        properties = table.spec.properties
        for name in HINDERING & properties.keys():
            table.set_property(spark, name, properties[name])
        checkpoint.own(spark, table)
    log.info("tables replaced", tables=[table.full_name for table in tables])
    place = Place.newest(side.settings, QUERY)
    if place is None:
        message = (
            f"{side.settings.lake_dir} has lost its checkpoint; delete it and run the replay again."
        )
        raise LakehouseError(message)
    if part:
        place = _beside_others(lake, place)
    move(checkpoint, place)
    if last_batch(lake) != place.batch:
        snapshot = SilverSnapshot.now(lake, place.batch, place.ends)
        lake.table(CUTS).arrow.append([snapshot.row()])


def _beside_others(lake: Lake, place: Place) -> Place:
    """A place with the positions of the other topics, which the query keeps."""
    own = Place.newest(lake.settings, QUERY)
    ends = {**(own.ends if own else {}), **place.ends}
    return place.at({name: json.dumps(offset) for name, offset in ends.items()})


def _make_ready(
    spark: SparkSession, lake: Lake, table: Table, new: Table, checkpoint: Checkpoint
) -> Swap:
    """Link the files of a new table into the folder of the old one. Readers do not see them yet."""
    if not table.exists():
        checkpoint.own(spark, table)
    if DELETION_VECTORS in table.spec.properties:
        spark.sql(f"REORG TABLE {delta_at(new.path)} APPLY (PURGE)")
    for name in HINDERING & table.spec.properties.keys():
        table.set_property(spark, name, None)
    record_declarations(spark, table)
    protect_table(spark, table, lake.settings.pseudonyms)  # before readers see other columns
    swap = table.swap_from(new)
    swap.link()
    return swap


def _keep_discarded(spark: SparkSession, old: Table, new: Table) -> None:
    """Mark records in the new quarantine as discarded if they were discarded in the old one."""
    discarded = old.rows(spark).where("status = 'discarded'")
    (
        new.spark(spark)
        .alias("t")
        .merge(discarded.alias("s"), match(["topic", "position"]))
        .whenMatchedUpdate(set={"status": "s.status"})
        .execute()
    )
