"""`lakehouse quarantine`: show, replay or discard the records that silver has refused."""

import contextlib
from typing import Annotated

import typer

from lakehouse.runtime.context import Format, current

commands = typer.Typer(help="Show, replay or discard the records that silver refused.")
OfTopic = Annotated[str | None, typer.Option("--topic", help="Only records of this topic.")]
WithReason = Annotated[str | None, typer.Option("--reason", help="Only records with this reason.")]


@commands.command("list")
def show_summary(form: Format = "table") -> None:
    """Show how many records are in quarantine per topic and reason, with a sample."""
    from lakehouse.runtime.terminal import print_rows
    from silver.quarantine import summary

    header = ("topic", "reason", "status", "records", "first", "last", "sample")
    print_rows(header, summary(current.lake), form)


@commands.command("show")
def show_records(
    topic: OfTopic = None,
    reason: WithReason = None,
    limit: Annotated[int, typer.Option(min=1, help="How many of the newest records to show.")] = 20,
    form: Format = "table",
) -> None:
    """Show the newest records in quarantine, with their payload."""
    from lakehouse.runtime.terminal import print_rows
    from silver.quarantine import Selection, records

    selection = Selection(topic, reason)
    selection.check(current.topics)
    header = ("topic", "reason", "position", "key", "payload", "published")
    print_rows(header, records(current.lake, selection, limit), form)


@commands.command("replay")
def bring_in(topic: OfTopic = None, reason: WithReason = None) -> None:
    """Decode records in quarantine again, after the topic file was fixed. Each is applied once.

    Stop the silver stream first.
    """
    from lakehouse.runtime.run import spark_session
    from lakehouse.runtime.terminal import out, step
    from silver.quarantine import Selection, replay

    with (
        spark_session(current.settings, "lakehouse-quarantine") as spark,
        step("Decoding the records again"),
    ):
        done = replay(spark, current.lake, Selection(topic, reason))
    came_in = done["applied"] + done["superseded"]
    out.print(
        f"{came_in} records were accepted: {done['applied']} applied, {done['superseded']} stale."
    )


@commands.command("discard")
def give_up(
    topic: OfTopic = None,
    reason: WithReason = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Discard records: they stay in the table, marked as discarded, and are never replayed.

    Stop the silver stream first.
    """
    from lakehouse.runtime.run import spark_session
    from lakehouse.runtime.terminal import out, step
    from silver.audit.totals import count_open
    from silver.quarantine import Selection, discard, discard_needs_spark

    selection = Selection(topic, reason)
    selection.check(current.topics)
    count = count_open(current.lake, topic, reason)
    if not count or not (yes or typer.confirm(f"Discard {count} records?", default=False)):
        out.print("Nothing was discarded.")
        return
    with contextlib.ExitStack() as stack:
        spark = None
        if discard_needs_spark(current.lake):
            spark = stack.enter_context(spark_session(current.settings, "lakehouse-quarantine"))
        stack.enter_context(step("Discarding the records"))
        done = discard(spark, current.lake, selection)
    out.print(f"{done['discarded']} records were discarded.")
