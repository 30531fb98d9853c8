"""`lakehouse forget`: erases a person from all layers, including old versions.

1. Silver reads everything that bronze holds.
2. The person is replaced by a pseudonym in silver and in bronze, as if the pseudonym had been sent.
3. The sinks send these changes. Silver's checkpoint is moved past them, and old versions are
   deleted.
4. Gold is rebuilt from the remaining data, and its sinks send what has changed.

No stream can start until bronze and silver are done, even if the run is interrupted. The same
command then continues from the stored plan (`plan.py`).
"""

import contextlib
import datetime as dt
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import structlog
from pyspark.sql import SparkSession

from bronze.ingest import query_name
from gold.build import prepare_build
from gold.catalog import drop_schema, own_schemas
from gold.errors import GoldError
from gold.lock import alone
from gold.publish import note_versions
from gold.tables import BUILT, RUNS, published_tables
from gold.tables import CUTS as GOLD_CUTS
from lake.quoting import delta_at
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import Checkpoint, claim, interrupted
from lake.streams.delta_offset import offset_of_delta
from lake.streams.job import await_streams
from lake.streams.rewind import Place, move
from lake.tables.lake import Lake
from lake.tables.spec import bronze_table
from lake.tables.storage import delete
from lake.tables.table import Table
from lake.topics.topic import Topic
from lakehouse.erasure.follow import others_that_follow, require_receivers, send_erasure
from lakehouse.erasure.object_versions import delete_old_versions
from lakehouse.erasure.person import Found, Person, Search, check_key, required_secret, subject
from lakehouse.erasure.plan import Plan
from lakehouse.erasure.purge import commit_nothing, delete_torn, purge
from lakehouse.erasure.redact import redact
from lakehouse.erasure.rewrite import Removal, is_remembered, remember, secret_of_forgotten
from lakehouse.erasure.verify import Proof
from lakehouse.operate.savepoints import savepoints
from lakehouse.runtime.session import delete_scratch_of_dead
from pulsar_spark.errors import LakehouseError, SettingsError
from silver.audit.snapshots import SilverSnapshot
from silver.contract.tables import CUTS, view_table
from silver.quarantine import finish_last
from silver.rebuild import BESIDE
from silver.refine import QUERY, Refinery, refine

COMMAND = "lakehouse forget"

log = structlog.get_logger()

Agree = Callable[[Person, list[Found]], bool]


def forget(
    spark: SparkSession,
    lake: Lake,
    key: str,
    agree: Agree,
    *,
    reason: str,
    topic: str | None = None,
) -> Proof | None:
    """Erase a person from the lake, and rebuild gold if it has been built.

    An interrupted run is finished first, even if it was for another person.

    Args:
        spark: the session.
        lake: the lake. Its topics declare what is personal. If it has gold, the SQL endpoint must
            run on `sql_port`.
        key: the person's key as text.
        agree: called with what was found, before anything changes. Returns whether to continue. Not
            called again when an interrupted run continues.
        reason: recorded in `silver.forgotten`.
        topic: the changelog whose keys are people; None if there is only one.

    Returns:
        A search that shows whether anything is left, or None if `agree` returned False.

    Raises:
        SettingsError: the declarations or settings do not allow it, or something holds old
            versions.
        CheckpointError: a stream is running.
        GoldError: another command is writing gold, or gold could not be rebuilt. In the second case
            bronze and silver are done.
    """
    whose = check(lake, key, topic)
    with alone(lake.settings):
        plan = Plan.read(lake)
        if plan is not None:
            _carry_out(spark, lake, plan)
        if plan is None or not plan.is_of(whose, key):
            plan = _make_plan(spark, lake, whose, key, agree, reason)
            if plan is None:
                return None
            _carry_out(spark, lake, plan)
    return Proof(lake, plan.person)


def _make_plan(
    spark: SparkSession,
    lake: Lake,
    whose: Topic,
    key: str,
    agree: Agree,
    reason: str,
) -> Plan | None:
    """Find the person and store the plan. From then on, no stream may start.

    The checkpoints of all streams are claimed first, so nothing lands between the search and the
    end of the run. A run that is killed before the plan is stored has changed nothing.

    Returns:
        The plan, or None if `agree` returned False.
    """
    secret = secret_of_forgotten(lake)
    with _claimed(lake.settings, map(query_name, lake.topics.topics)) as checkpoints:
        if interrupted(Path(lake.settings.checkpoint_path(QUERY))) != COMMAND:
            await_streams(refine(spark, lake, available_now=True))
        with _claimed(lake.settings, [QUERY]) as silver:
            search = Search(spark, lake, whose)
            person = search.person(key)
            found = list(search.messages(person))
            if not agree(person, found):
                _expect(silver | checkpoints, None)
                return None
            _expect(checkpoints | silver, COMMAND)
            # A run that was killed at its very end is repeated; it must not be recorded twice.
            is_done = not any(each.messages or each.refused for each in found)
            is_done = is_done and is_remembered(lake, person)
            plan = Plan(person, found, reason, secret.fingerprint(), is_done)
            plan.write(lake.settings)
    return plan


def _carry_out(spark: SparkSession, lake: Lake, plan: Plan) -> None:
    """Carry out a plan, or the rest of it.

    Each step can be repeated without further changes. Once bronze and silver are done, the streams
    may start again, so these steps must not be repeated after that.
    """
    with _claimed(lake.settings, [*map(query_name, lake.topics.topics), QUERY]) as checkpoints:
        if not plan.is_done:
            remember(lake, plan.person, plan.found, plan.reason, plan.id)
            refinery = Refinery(lake, checkpoints[QUERY])
            number = plan.number
            if number is None:
                number = finish_last(spark, lake, refinery)
                plan = plan.numbered(lake.settings, number)
            _take_out(spark, lake, checkpoints[QUERY], refinery, plan, number)
            plan = plan.done(lake.settings)
        _expect(checkpoints, None)
    _renew_gold(spark, lake)
    delete_scratch_of_dead(lake.settings)
    plan.delete(lake.settings)


def check(lake: Lake, key: str, topic: str | None = None) -> Topic:
    """Check that a person can be forgotten, as far as this is possible without Spark.

    Returns:
        The changelog whose keys are people.

    Raises:
        SettingsError: the declarations or settings do not allow it, the key is not valid, or
            something holds old versions.
        LakehouseError: the broker or the database of a sink does not answer.
    """
    whose = subject(lake.topics, topic)
    required_secret(lake).read()
    check_key(whose, key)
    _refuse_holders(lake)
    require_receivers(lake)
    return whose


def _refuse_holders(lake: Lake) -> None:
    """Check that nothing needs the old versions of tables, which will be deleted.

    Raises:
        SettingsError: there are savepoints, or `lakehouse publish-table` follows a table.
    """
    if held := [each.name for each in savepoints(lake.settings)]:
        message = (
            f"Savepoints need old versions of all tables: {', '.join(held)}. `lakehouse forget` "
            "deletes these versions, so the savepoints could no longer be restored. Drop them "
            "first (`lakehouse savepoint drop NAME`)."
        )
        raise SettingsError(message)
    if names := others_that_follow(lake):
        message = (
            f"`lakehouse publish-table` needs old versions of tables: {', '.join(names)}. Delete "
            "the topic that it fills, which contains the person too, and its folder in "
            f"{lake.settings.checkpoints_dir}. Then publish the table again, or declare it as a "
            "sink, which follows an erasure."
        )
        raise SettingsError(message)


@contextlib.contextmanager
def _claimed(settings: LakeSettings, queries: Iterable[str]) -> Iterator[dict[str, Checkpoint]]:
    """Claim the checkpoints of queries, so that the queries cannot run during the block."""
    with contextlib.ExitStack() as stack:
        found = {}
        for name in queries:
            found[name] = claim(settings, name, COMMAND)
            stack.callback(found[name].release)
        yield found


def _expect(checkpoints: dict[str, Checkpoint], command: str | None) -> None:
    for checkpoint in checkpoints.values():
        checkpoint.expect(command)


def _take_out(
    spark: SparkSession,
    lake: Lake,
    checkpoint: Checkpoint,
    refinery: Refinery,
    plan: Plan,
    number: int,
) -> None:
    """Erase a person from silver and bronze, and delete the old versions of their tables."""
    changed = Removal(spark, lake, plan.person, number).run(plan.found)
    refinery.recompute_views(spark, number)
    changed += [view_table(view, lake.topics) for view in lake.topics.kept_views()]
    for each in plan.found:
        bronze = bronze_table(each.topic.name)
        redact(spark, lake.table(bronze), [*each.messages, *each.refused])
        changed.append(bronze)
    tables = [lake.table(spec) for spec in changed]
    for table in tables:
        _leave_no_deleted_rows(spark, table)
        commit_nothing(spark, table.path, _now())
    _go_on_behind(lake, checkpoint, number)
    delete(lake.settings, f"{lake.settings.tables}/{BESIDE}")
    delete_torn(lake.settings)
    send_erasure(spark, lake, [table.full_name for table in tables], COMMAND)
    _purge(spark, lake.settings, tables)


def _leave_no_deleted_rows(spark: SparkSession, table: Table) -> None:
    """Rewrite files with deletion vectors, because they still contain the deleted rows."""
    configuration = table.log().metadata().configuration
    if configuration.get("delta.enableDeletionVectors") == "true":
        spark.sql(f"REORG TABLE {delta_at(table.path)} APPLY (PURGE)")


def _go_on_behind(lake: Lake, checkpoint: Checkpoint, number: int) -> None:
    """Let silver continue after the rewritten commits, and record a snapshot of all tables.

    Raises:
        LakehouseError: silver has never run.
    """
    place = Place.newest(lake.settings, QUERY)
    if place is None:
        message = (
            "Silver has not read any messages yet, so there is no person to erase. Run `lakehouse "
            "silver` first."
        )
        raise LakehouseError(message)
    ends = {}
    for name in lake.topics.topics:
        delta = lake.table(bronze_table(name)).log()
        ends[name] = offset_of_delta(delta, delta.version() + 1)
    move(checkpoint, place.at(ends))
    sources = {name: json.loads(offset) for name, offset in ends.items()}
    snapshot = SilverSnapshot.now(lake, number, sources)
    lake.table(CUTS).arrow.append([snapshot.row()])


def _renew_gold(spark: SparkSession, lake: Lake) -> None:
    """Rebuild gold from the remaining data, and delete the old versions of its tables.

    Does nothing if gold has never been built.

    Raises:
        GoldError: the build failed, so gold still holds data of the person.
    """
    own = {GOLD_CUTS.full_name, RUNS.full_name}
    built = lake.tables(BUILT)
    if not built:
        return
    try:
        with prepare_build(lake, full_refresh=True) as build:
            build.run()
    except GoldError as error:
        message = (
            "The person was erased from bronze and silver, but gold still contains the person's "
            f"data: {error} Fix the problem, then run `{COMMAND}` again."
        )
        raise GoldError(message) from error
    for schema in own_schemas(lake.settings):
        drop_schema(lake.settings, schema)
    marts = [table for table in published_tables(lake) if table.full_name not in own]
    tables = [*lake.tables(BUILT).values(), *marts]
    for table in tables:
        commit_nothing(spark, table.path, _now())
    note_versions(lake)
    send_erasure(spark, lake, [table.full_name for table in tables], COMMAND)
    _purge(spark, lake.settings, tables)


def _purge(spark: SparkSession, settings: LakeSettings, tables: Sequence[Table]) -> None:
    for table in tables:
        files = purge(settings, table.path)
        log.info("old versions deleted", table=table.full_name, files=files)
    if old := delete_old_versions(spark, settings, settings.tables):
        log.info("old object versions deleted", objects=old)
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]  # noqa: SLF001 - Python has no other way


def _now() -> str:
    return dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds")
