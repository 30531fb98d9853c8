"""`lakehouse replay --table silver`: rebuilds silver from bronze while readers see the old tables.

The new tables are in a separate lake, `_replay`, which shares the bronze tables. When they have
caught up, their files are linked into silver's tables. Each of these then takes over the files in
one commit, all within milliseconds, and the silver query continues where the new tables end. The
batch numbers of the new tables are higher than all earlier ones, so a reader that follows silver by
`silver_batch` sees all rows again.
"""

import hashlib
import shutil
from pathlib import Path
from typing import Any

import structlog
from pydantic import PrivateAttr
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from lake.durable import delete_durably, write_durably
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import Checkpoint, claim, claim_tables, interrupted
from lake.streams.delta_offset import offset_of_delta
from lake.streams.failures import explain
from lake.streams.job import await_streams
from lake.streams.rewind import Place, move
from lake.tables.arrow import DirectTable, OpenTables
from lake.tables.sql import delta_at
from lake.tables.storage import delete, in_bucket, open_table
from lake.tables.swap import LinkedTable
from lake.tables.table import APPEND_ONLY, TableSpec, bronze_table, match
from lake.topics.topic_file import TopicFile
from pulsar_spark.errors import LakehouseError, SettingsError
from pulsar_spark.options import epoch_ms
from silver.audit.snapshots import SilverSnapshot, last_batch, latest_snapshot
from silver.contract.tables import CUTS, DELETION_VECTORS, QUARANTINE, SCHEMAS, silver_tables
from silver.records.masking import protect_table
from silver.records.pseudonymize import FORGOTTEN
from silver.refine import QUERY, refine, require_bronze

COMMAND = "lakehouse replay --table silver"
BUILT = "built"
BESIDE = "_replay"
# Properties that a table must not have while its rows or columns are replaced.
HINDERING = {APPEND_ONLY, "delta.dataSkippingStatsColumns"}

log = structlog.get_logger()


def rebuild(
    spark: SparkSession,
    settings: LakeSettings,
    topics: TopicFile,
    begin: SilverSnapshot | None = None,
) -> None:
    """Rebuild silver from bronze, and swap the tables when done. Continues an interrupted swap.

    Args:
        spark: the session.
        settings: the lake.
        topics: the topic file to decode with. Fields and types may have changed.
        begin: the snapshot to begin with, whose tables are copied; None to begin with empty tables.

    Raises:
        CheckpointError: the silver query is running and must be stopped first.
        LakehouseError: a bronze table does not exist, or cannot be read as declared.
    """
    require_bronze(settings, topics)
    checkpoint = claim(settings, QUERY, COMMAND)
    side = _beside(settings)
    built, asked = side.lake_dir / BUILT, _asked(topics, begin)
    try:
        # Tables that were built, but whose swap did not begin, may be out of date by now.
        is_swapping = interrupted(Path(checkpoint.path)) is not None
        if not (is_swapping and built.exists() and built.read_text() == asked):
            _prepare(spark, settings, side, topics, begin)
            await_streams(refine(spark, side, topics, available_now=True))
            write_durably(built, asked)
        checkpoint.expect(COMMAND)
        _swap(spark, settings, side, topics, checkpoint)
        delete_durably(built)  # first, so that the next replay does not swap the tables again
        checkpoint.expect(None)
        _clear(settings, side)
    finally:
        checkpoint.release()


def _asked(topics: TopicFile, begin: SilverSnapshot | None) -> str:
    """A fingerprint of what a replay builds: the declarations, and the snapshot it begins with."""
    text = f"{topics.model_dump_json()} {begin.silver_batch if begin else ''}"
    return hashlib.sha256(text.encode()).hexdigest()


class _SideLake(LakeSettings):
    """A separate lake that shares the bronze tables and `silver.forgotten` with the original."""

    _origin: LakeSettings = PrivateAttr()

    def table_path(self, layer: str, name: str) -> str:
        """The path of the Delta table `<layer>.<name>`."""
        if layer == "bronze" or (layer, name) == (FORGOTTEN.layer, FORGOTTEN.name):
            return self._origin.table_path(layer, name)
        return super().table_path(layer, name)


def _beside(settings: LakeSettings) -> LakeSettings:
    folder = settings.lake_dir / BESIDE
    own: dict[str, Any] = {"lake": folder}
    if in_bucket(settings):
        own = {"lake": f"{settings.tables}/{BESIDE}", "home": folder}
    side = _SideLake.model_construct(**{**dict(settings), **own})
    side._origin = settings  # noqa: SLF001 - its own
    return side


def _clear(settings: LakeSettings, side: LakeSettings) -> None:
    if in_bucket(side):
        delete(side, side.tables)
    folder = settings.lake_dir / BESIDE
    if folder.exists():
        shutil.rmtree(folder)


def snapshot_at(settings: LakeSettings, moment: str) -> SilverSnapshot:
    """The snapshot of a batch.

    Args:
        settings: the lake.
        moment: the number of the batch, or an instant, for the latest snapshot at that time.

    Raises:
        SettingsError: there is no such snapshot.
    """
    if not CUTS.exists(settings):
        message = (
            f"The table {CUTS.full_name} does not exist yet, so there is no snapshot to replay "
            "from. Replay from the beginning (without --from)."
        )
        raise SettingsError(message)
    if moment.isdigit():
        snapshot = latest_snapshot(settings, lambda row: row["silver_batch"] == int(moment))
    else:
        instant = epoch_ms("--from", moment)
        snapshot = latest_snapshot(
            settings, lambda row: int(row["committed_at"].timestamp() * 1000) <= instant
        )
    if snapshot is None:
        message = (
            f"There is no snapshot of silver at '{moment}'; the table silver.cuts has the "
            f"snapshots of the last {settings.history_days} days."
        )
        raise SettingsError(message)
    return snapshot


def _prepare(
    spark: SparkSession,
    settings: LakeSettings,
    side: LakeSettings,
    topics: TopicFile,
    begin: SilverSnapshot | None,
) -> None:
    """Create silver's tables in the separate lake, empty or as of a snapshot.

    The query of the separate lake continues from there.
    """
    _clear(settings, side)  # left over from an interrupted build
    side.lake_dir.mkdir(parents=True)
    checkpoint = claim_tables(spark, side, QUERY, silver_tables(topics))
    try:
        for table in silver_tables(topics):
            version = begin.versions.get(table.full_name) if begin else None
            if table == SCHEMAS and table.exists(settings):
                version = DirectTable(table, settings).version
            if version is not None and table != CUTS:
                _copy(spark, settings, side, table, version)
        move(checkpoint, _begin(settings, topics, begin))
    finally:
        checkpoint.release()


def _copy(
    spark: SparkSession, settings: LakeSettings, side: LakeSettings, table: TableSpec, version: int
) -> None:
    then = table.read(spark, settings, version)
    try:
        then.write.format("delta").mode("append").save(table.path(side))
    except AnalysisException as error:
        message = (
            f"Version {version} of {table.full_name} cannot be used: {explain(error)} If "
            "declarations have changed since, replay from the beginning (without --from)."
        )
        raise SettingsError(message) from error


def _begin(settings: LakeSettings, topics: TopicFile, begin: SilverSnapshot | None) -> Place:
    """Where the new query begins. Its batch numbers are higher than all of silver's."""
    place = Place.newest(settings, QUERY)
    if place is None:
        message = "Silver has not run yet, so there is nothing to replay; run `lakehouse silver`."
        raise SettingsError(message)
    ends = {}
    for name in topics.topics:
        bronze = open_table(settings, bronze_table(name).path(settings))
        known = begin.positions.get(name) if begin else None
        ends[name] = known or offset_of_delta(bronze, bronze.version(), snapshot=True)
    return place.at(ends)


def _swap(
    spark: SparkSession,
    settings: LakeSettings,
    side: LakeSettings,
    topics: TopicFile,
    checkpoint: Checkpoint,
) -> None:
    """Put the new rows into the tables that readers see, and move the query to where they end.

    Slow steps are done first, so that the commits follow one another immediately.
    """
    _keep_discarded(spark, settings, side)
    tables = [table for table in silver_tables(topics) if table != CUTS]
    ready = [_make_ready(spark, settings, side, table, checkpoint) for table in tables]
    for linked in ready:
        linked.commit(whole=True)
    for table in tables:
        for name in HINDERING & table.properties.keys():
            table.set_property(spark, settings, name, table.properties[name])
        checkpoint.own(spark, settings, table)
    log.info("tables replaced", tables=[table.full_name for table in tables])
    place = Place.newest(side, QUERY)
    if place is None:
        message = f"{side.lake_dir} has lost its checkpoint; delete it and run the replay again."
        raise LakehouseError(message)
    move(checkpoint, place)
    if last_batch(settings) != place.batch:
        snapshot = SilverSnapshot.now(OpenTables(settings), topics, place.batch, place.ends)
        DirectTable(CUTS, settings).append([snapshot.row()])


def _make_ready(
    spark: SparkSession,
    settings: LakeSettings,
    side: LakeSettings,
    table: TableSpec,
    checkpoint: Checkpoint,
) -> LinkedTable:
    """Link the files of a new table into the folder of the old one. Readers do not see them yet."""
    if not table.exists(settings):
        checkpoint.own(spark, settings, table)
    if DELETION_VECTORS in table.properties:
        spark.sql(f"REORG TABLE {delta_at(table.path(side))} APPLY (PURGE)")
    for name in HINDERING & table.properties.keys():
        table.set_property(spark, settings, name, None)
    protect_table(
        spark, settings, table, DirectTable(table, settings), secret_of=side
    )  # before readers see other columns
    linked = LinkedTable(settings, table.path(side), table.path(settings))
    linked.link()
    return linked


def _keep_discarded(spark: SparkSession, settings: LakeSettings, side: LakeSettings) -> None:
    """Mark records in the new quarantine as discarded if they were discarded in the old one."""
    discarded = QUARANTINE.read(spark, settings).where("status = 'discarded'")
    (
        QUARANTINE.open(spark, side)
        .alias("t")
        .merge(discarded.alias("s"), match(["topic", "position"]))
        .whenMatchedUpdate(set={"status": "s.status"})
        .execute()
    )
