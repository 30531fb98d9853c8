"""Lets the sinks send what an erasure has changed, before the old versions of tables are deleted.

A sink reads the change feed of its table, which is deleted as well. It therefore sends all changes
first, among them the deletion of the person, and then continues after the last version.
"""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from lake.streams.checkpoint import checkpoint_id, claim, interrupted
from lake.streams.delta_offset import offset_of_delta
from lake.streams.job import await_streams
from lake.streams.rewind import Place, move
from lake.tables.lake import Lake
from lake.topics.sink import Export, Publish
from lake.topics.sink_source import source_of
from lakehouse.runtime.broker import is_local, require_broker
from lakehouse.runtime.run import broker_and_spark, spark_session
from lakehouse.sinks.export import export_sinks
from lakehouse.sinks.postgres.database import connect
from lakehouse.sinks.publish import publish_sinks, source_table
from lakehouse.sinks.running import check_sinks


def begun_sinks(lake: Lake) -> tuple[list[Publish], list[Export]]:
    """The declared sinks that have been started, and so may have sent something of the person."""
    settings, topics = lake.settings, lake.topics
    return (
        [s for s in topics.publish.values() if checkpoint_id(settings, s.label)],
        [s for s in topics.export.values() if checkpoint_id(settings, s.label)],
    )


def require_receivers(lake: Lake) -> None:
    """Check that the sinks can send the erasure.

    Raises:
        BrokerError: the broker does not answer.
        DatabaseError: a database does not answer.
        SettingsError: a sink cannot be used.
    """
    publish, export = begun_sinks(lake)
    check_sinks(lake, (publish, export))
    if publish and not is_local(lake.settings):
        require_broker(lake.settings)
    for sink in export:
        connect(sink).close()


@contextlib.contextmanager
def session(lake: Lake, name: str) -> Iterator[SparkSession]:
    """A Spark session, and the embedded broker if a sink needs it and no broker answers.

    Raises:
        SettingsError: the tables are in a bucket that cannot be used.
    """
    if begun_sinks(lake)[0]:
        with broker_and_spark(lake.settings, name) as (_, spark):
            yield spark
    else:
        with spark_session(lake.settings, name) as spark:
            yield spark


def others_that_follow(lake: Lake) -> list[str]:
    """The streams of `lakehouse publish-table` that follow tables, by their names."""
    declared = {sink.label for sink in lake.topics.publish.values()}
    names = (path.name for path in lake.settings.checkpoints_dir.glob("publish.*"))
    return sorted(name for name in names if name not in declared)


def send_erasure(spark: SparkSession, lake: Lake, tables: Iterable[str], command: str) -> None:
    """Let the sinks of some tables send all changes, and continue after the last version.

    If it is killed, it can be repeated. Until then, only `command` may use the sinks to topics.

    Args:
        spark: the session.
        lake: the lake, without running streams.
        tables: full names of the tables whose old versions will be deleted.
        command: the command that erases.

    Raises:
        LakehouseError: a sink could not send everything.
    """
    names = {*tables}
    publish, export = begun_sinks(lake)
    publish = [s for s in publish if source_table(lake, s).full_name in names]
    export = [s for s in export if source_of(lake.topics, s).full_name in names]
    paths = {s.name: Path(lake.settings.checkpoint_path(s.label)) for s in publish}
    # A sink that is being moved has sent everything.
    to_send = [sink for sink in publish if interrupted(paths[sink.name]) != command]
    if streams := [
        *publish_sinks(spark, lake, to_send, available_now=True),
        *export_sinks(lake, export, available_now=True),
    ]:
        await_streams(streams)
    for sink in publish:
        _go_on_after(lake, sink, command)


def _go_on_after(lake: Lake, sink: Publish, command: str) -> None:
    """Let a sink continue after the newest version of its table, which it has sent."""
    name = sink.label
    place = Place.newest(lake.settings, name)
    if place is None:  # it has found nothing to send yet
        return
    delta = source_table(lake, sink).log()
    checkpoint = claim(lake.settings, name, command)
    try:
        checkpoint.expect(command)
        move(checkpoint, place.at_offset(offset_of_delta(delta, delta.version() + 1)))
        checkpoint.expect(None)
    finally:
        checkpoint.release()
