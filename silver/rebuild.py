"""`lakehouse replay --table silver`: silver made anew from bronze, beside what readers see.

The new tables lie in a lake of their own, `_replay`, whose bronze is that of the lake. When they
have caught up, their files are linked into the tables of silver. Then each of these gets them in
one commit, all within milliseconds, and the silver query goes on where they stand. Batches of the
new tables have numbers of their own, above all before, so whoever follows silver by `silver_batch`
sees all rows again.
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
from silver.audit.snapshots import Cut, last_batch, latest_cut
from silver.contract.tables import CUTS, DELETION_VECTORS, QUARANTINE, SCHEMAS, silver_tables
from silver.records.masking import protect_table
from silver.records.pseudonymize import FORGOTTEN
from silver.refine import QUERY, refine, require_bronze

COMMAND = "lakehouse replay --table silver"
BUILT = "built"
BESIDE = "_replay"
# What a table must not have while its rows are replaced, or its columns.
HINDERING = {APPEND_ONLY, "delta.dataSkippingStatsColumns"}

log = structlog.get_logger()


def rebuild(
    spark: SparkSession, settings: LakeSettings, topics: TopicFile, begin: Cut | None = None
) -> None:
    """Make silver anew from bronze, and swap when done; goes on if the swap was interrupted.

    Args:
        spark: the session.
        settings: where the lake is.
        topics: by which messages are decoded; fields and types may differ from those of before.
        begin: the cut to begin with, whose tables are taken as they were; None: with nothing.

    Raises:
        CheckpointError: the silver query runs; stop it first.
        LakehouseError: bronze is not there, or cannot be read as declared.
    """
    require_bronze(settings, topics)
    checkpoint = claim(settings, QUERY, COMMAND)
    side = _beside(settings)
    built, asked = side.lake_dir / BUILT, _asked(topics, begin)
    try:
        # What was built and not swapped may be old by now.
        is_swapping = interrupted(Path(checkpoint.path)) is not None
        if not (is_swapping and built.exists() and built.read_text() == asked):
            _prepare(spark, settings, side, topics, begin)
            await_streams(refine(spark, side, topics, available_now=True))
            write_durably(built, asked)
        checkpoint.expect(COMMAND)
        _swap(spark, settings, side, topics, checkpoint)
        delete_durably(built)  # first, as the next replay must not swap it again
        checkpoint.expect(None)
        _clear(settings, side)
    finally:
        checkpoint.release()


def _asked(topics: TopicFile, begin: Cut | None) -> str:
    """A fingerprint of what a replay is to build: the declarations, and where it begins."""
    text = f"{topics.model_dump_json()} {begin.silver_batch if begin else ''}"
    return hashlib.sha256(text.encode()).hexdigest()


class _SideLake(LakeSettings):
    """A lake beside the lake, whose bronze, and who was forgotten, are the lake's own."""

    _origin: LakeSettings = PrivateAttr()

    def table_path(self, layer: str, name: str) -> str:
        """Where the Delta table `<layer>.<name>` lies."""
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


def cut_at(settings: LakeSettings, moment: str) -> Cut:
    """The cut of a batch, given by its number, or the latest at an instant.

    Raises:
        SettingsError: there is none.
    """
    if not CUTS.exists(settings):
        message = f"There is no table {CUTS.full_name} yet, so there is no moment to begin with."
        raise SettingsError(message)
    if moment.isdigit():
        cut = latest_cut(settings, lambda row: row["silver_batch"] == int(moment))
    else:
        instant = epoch_ms("--from", moment)
        cut = latest_cut(
            settings, lambda row: int(row["committed_at"].timestamp() * 1000) <= instant
        )
    if cut is None:
        message = (
            f"There is no cut of silver at '{moment}'; the table silver.cuts has those of the last "
            f"{settings.history_days} days."
        )
        raise SettingsError(message)
    return cut


def _prepare(
    spark: SparkSession,
    settings: LakeSettings,
    side: LakeSettings,
    topics: TopicFile,
    begin: Cut | None,
) -> None:
    """An empty silver beside the lake, or one as of a cut, whose query reads on from there."""
    _clear(settings, side)  # of a build that was interrupted
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
            f"{table.full_name} cannot be taken as it was in version {version}: {explain(error)} "
            "Where declarations have changed since, replay from the beginning (without --from)."
        )
        raise SettingsError(message) from error


def _begin(settings: LakeSettings, topics: TopicFile, begin: Cut | None) -> Place:
    """Where the new query begins, its batches being numbered above all that silver has."""
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
    """Give the rows of the new tables to those that readers see, and their place to the query.

    What takes its time is done first, so that the commits follow one another at once.
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
        message = f"{side.lake_dir} has lost its checkpoint; delete the folder and replay again."
        raise LakehouseError(message)
    move(checkpoint, place)
    if last_batch(settings) != place.batch:
        cut = Cut.now(OpenTables(settings), topics, place.batch, place.ends)
        DirectTable(CUTS, settings).append([cut.row()])


def _make_ready(
    spark: SparkSession,
    settings: LakeSettings,
    side: LakeSettings,
    table: TableSpec,
    checkpoint: Checkpoint,
) -> LinkedTable:
    """Bring the files of a new table to where it is to be; readers do not see them yet."""
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
    """What was given up stays so, if it is refused again."""
    discarded = QUARANTINE.read(spark, settings).where("status = 'discarded'")
    (
        QUARANTINE.open(spark, side)
        .alias("t")
        .merge(discarded.alias("s"), match(["topic", "position"]))
        .whenMatchedUpdate(set={"status": "s.status"})
        .execute()
    )
