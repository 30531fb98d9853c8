"""`lakehouse replay`: bring back messages that bronze has lost, or rebuild silver."""

from typing import Annotated

import typer

from lakehouse.runtime.context import current
from pulsar_spark.errors import SettingsError


def replay(
    table: Annotated[str, typer.Option(help="bronze.<topic>, silver, or a table of silver.")],
    begin: Annotated[
        str | None,
        typer.Option(
            "--from", help="Start: an instant (ISO 8601 with a time zone), or a batch of silver."
        ),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option("--to", help="End: an instant.", show_default="everything that has landed"),
    ] = None,
) -> None:
    """Bring back messages that a bronze table has lost, or rebuild silver from bronze.

    Bronze: messages published since --from that the broker still has are brought back, each once.
    Messages that are already in the table stay unchanged. Silver: all its tables are built next to
    the old ones with the current topic file, from the beginning or from silver's state at --from.
    Then each is replaced in one commit. Of a single table, such as silver.enriched_<topic>, this is
    done with what is computed from it. Stop the stream that writes the table first.
    """
    layer, _, name = table.partition(".")
    if layer == "silver":
        _replay_silver(begin, end, name)
        return
    if layer != "bronze" or name not in current.topics.topics:
        known = ", ".join(f"bronze.{name}" for name in current.topics.topics)
        message = (
            f"'{table}' cannot be replayed. Choose one of {known}, or silver, or a table of silver."
        )
        raise SettingsError(message)
    if begin is None:
        message = (
            f"--from is missing: set it to the instant from which messages of {table} are brought "
            "back."
        )
        raise SettingsError(message)
    _replay_bronze(name, begin, end)


def _replay_bronze(name: str, begin: str, end: str | None) -> None:
    from bronze.replay import replay_topic
    from lakehouse.runtime.run import broker_and_spark
    from lakehouse.runtime.terminal import out, step
    from pulsar_spark.options import epoch_ms

    since, before = epoch_ms("--from", begin), epoch_ms("--to", end) if end else None
    with (
        broker_and_spark(current.settings, "lakehouse-replay") as (_, spark),
        step(f"Bringing back messages of {name}"),
    ):
        count = replay_topic(spark, current.lake, current.topics.topics[name], since, before)
    out.print(f"{count} missing messages were brought back to bronze.{name}.")


def _replay_silver(begin: str | None, end: str | None, name: str) -> None:
    from lakehouse.runtime.run import spark_session
    from lakehouse.runtime.terminal import out, step
    from silver.part import Part
    from silver.rebuild import rebuild, snapshot_at

    if end is not None:
        message = "Silver is always rebuilt up to the end of bronze. Remove --to."
        raise SettingsError(message)
    if begin is not None and name:
        message = f"The table silver.{name} is always rebuilt from the beginning. Remove --from."
        raise SettingsError(message)
    snapshot = snapshot_at(current.lake, begin) if begin else None
    part = Part.of(current.lake, name) if name else None
    with spark_session(current.settings, "lakehouse-replay") as spark, step("Rebuilding silver"):
        rebuild(spark, current.lake, snapshot, part)
    done = f"Rebuilt: {', '.join(part.made)}." if part else "Silver was rebuilt."
    out.print(f"{done} Readers that follow its batches, such as gold, will read all rows again.")
