"""`lakehouse quarantine`: see, bring in or give up what silver has refused."""

import sys
from typing import Annotated

import typer

from lakehouse.console import out, print_rows
from lakehouse.context import Format, lake
from lakehouse.run import spark_session
from silver.quarantine import Selection, discard, records, replay, summary

commands = typer.Typer(help="See, bring in or give up what silver has refused.")
OfTopic = Annotated[str | None, typer.Option("--topic", help="Only records of this topic.")]
WithReason = Annotated[str | None, typer.Option("--reason", help="Only those with this reason.")]


@commands.command("list")
def show_summary(form: Format = "table") -> None:
    """Show by topic and reason how many records are in quarantine, with a sample."""
    header = ("topic", "reason", "status", "records", "first", "last", "sample")
    print_rows(header, summary(lake.settings), form)


@commands.command("show")
def show_records(
    topic: OfTopic = None,
    reason: WithReason = None,
    limit: Annotated[int, typer.Option(min=1, help="Newest records to show.")] = 20,
    form: Format = "table",
) -> None:
    """Show the newest records that are in quarantine, with their payload."""
    selection = Selection(topic, reason)
    selection.check(lake.topics)
    header = ("topic", "reason", "position", "key", "payload", "published")
    print_rows(header, records(lake.settings, selection, limit), form)


@commands.command("replay")
def bring_in(topic: OfTopic = None, reason: WithReason = None) -> None:
    """Decode records of the quarantine again, after a fix of the topic file; each comes in once.

    Stop the silver stream first.
    """
    with spark_session(lake.settings, "lakehouse-quarantine") as spark:
        done = replay(spark, lake.settings, lake.topics, Selection(topic, reason))
    came_in = done["applied"] + done["superseded"]
    out.print(f"{came_in} records came in: {done['applied']} applied, {done['superseded']} stale.")


@commands.command("discard")
def give_up(
    topic: OfTopic = None,
    reason: WithReason = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Give records up: they stay in the table as discarded, and are not replayed any more.

    Stop the silver stream first.
    """
    selection = Selection(topic, reason)
    selection.check(lake.topics)
    count = len(records(lake.settings, selection, sys.maxsize))
    if not count or not (yes or typer.confirm(f"Discard {count} records?", default=False)):
        out.print("Nothing was discarded.")
        return
    with spark_session(lake.settings, "lakehouse-quarantine") as spark:
        done = discard(spark, lake.settings, lake.topics, selection)
    out.print(f"{done['discarded']} records were discarded.")
