"""Starts the sinks of the topic file: those to topics with Spark, those to databases without."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from lake.streams.supervisor import Stream
from lake.tables.lake import Lake
from lake.topics.sink import Export, Publish
from lake.topics.topic_file import TopicFile
from pulsar_spark.errors import SettingsError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def chosen(topics: TopicFile, names: Sequence[str] = ()) -> tuple[list[Publish], list[Export]]:
    """The sinks with some names, or all: those to topics, and those to databases.

    Raises:
        SettingsError: there is no sink with such a name, or none at all.
    """
    known = {**topics.publish, **topics.export}
    require_declared("sink", known, names, "[publish.NAME] or [export.NAME]")
    wanted = {*(names or known)}
    return (
        [sink for sink in topics.publish.values() if sink.name in wanted],
        [sink for sink in topics.export.values() if sink.name in wanted],
    )


def require_declared(what: str, known: Collection[str], names: Sequence[str], where: str) -> None:
    """Check that something is declared, and everything that is named.

    Args:
        what: what is declared: `sink` or `import`.
        known: the names in the topic file.
        names: the names that are wanted.
        where: the sections of the topic file.

    Raises:
        SettingsError: there is none with such a name, or none at all.
    """
    if not known:
        message = f"The topic file declares no {what}s. Declare them in {where}."
        raise SettingsError(message)
    for name in names:
        if name not in known:
            message = f"The topic file has no {what} '{name}'. It has {', '.join(known)}."
            raise SettingsError(message)


def check_sinks(lake: Lake, sinks: tuple[Sequence[Publish], Sequence[Export]]) -> None:
    """Check what can be known before anything is started.

    Raises:
        SettingsError: two sinks share a topic, a sink leads to its own table, the driver of
            PostgreSQL is not installed, or the address of a database cannot be read.
    """
    if sinks[0]:
        lake.topics.sink_addresses(lake.settings.pulsar_namespace)
    if sinks[1]:
        from lakehouse.sinks.postgres.database import check_addresses

        check_addresses(sinks[1])


def run_sinks(
    spark: SparkSession | None,
    lake: Lake,
    sinks: tuple[Sequence[Publish], Sequence[Export]],
    *,
    available_now: bool = False,
) -> list[Stream]:
    """The streams of sinks, which begin when they are kept. Sinks to topics need a session."""
    found: list[Stream] = []
    if spark is not None and sinks[0]:
        from lakehouse.sinks.publish import publish_sinks

        found += publish_sinks(spark, lake, sinks[0], available_now=available_now)
    if sinks[1]:
        from lakehouse.sinks.export import export_sinks

        found += export_sinks(lake, sinks[1], available_now=available_now)
    return found


def declared(lake: Lake) -> tuple[list[Publish], list[Export]]:
    """All sinks of the topic file; none if it declares none."""
    return [*lake.topics.publish.values()], [*lake.topics.export.values()]
