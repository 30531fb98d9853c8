"""`lakehouse publish`, `publish-table`, `create-topics` and `generate`: fill the topics."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lake.streams.command import AvailableNow
from lakehouse.runtime.context import current
from pulsar_spark.errors import SettingsError

if TYPE_CHECKING:
    from lake.topics.topic import Topic
    from lakehouse.messages.encode import RowError


def publish(
    data: Annotated[
        Path, typer.Option(help="Folder with a file <topic>.csv for each topic to fill.")
    ],
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            help="Messages per second, over all files.",
            show_default="as fast as the broker takes them",
        ),
    ] = None,
    skip_bad: Annotated[
        bool,
        typer.Option(
            "--skip-bad",
            help="Leave out rows that do not fit their topic, and count them. Otherwise the first "
            "one ends the command.",
        ),
    ] = False,
) -> None:
    """Publish CSV files to the topics, changelogs first."""
    from lakehouse.messages.publish import create_topics, files_to_publish, publish
    from lakehouse.runtime.broker import require_broker
    from lakehouse.runtime.terminal import err, print_rows

    counts, first = Counter[str](), dict[str, str]()

    def skip(topic: Topic, error: RowError) -> None:
        counts[topic.name] += 1
        first.setdefault(topic.name, error.what)

    files_to_publish(current.topics, data)
    require_broker(current.settings)
    create_topics(current.lake_of_any_format)
    sent = publish(
        current.lake_of_any_format,
        data,
        lambda topic, count: err.print(f"{topic}: {count}"),
        rate=rate,
        on_bad=skip if skip_bad else None,
    )
    for topic, reason in first.items():
        err.print(f"{topic}: rows skipped: {counts[topic]}. The first: {reason}", markup=False)
    columns = ("topic", "published", *(["skipped"] if skip_bad else []))
    rows = [(name, n, *([counts[name]] if skip_bad else [])) for name, n in sent.items()]
    print_rows(columns, rows)


def publish_table(
    table: Annotated[str, typer.Argument(help="Table to send, such as silver.users_state.")],
    topic: Annotated[str, typer.Argument(help="Topic to send to. It is created if missing.")],
    key: Annotated[list[str], typer.Option(help="Column that identifies a row. Can be repeated.")],
    op: Annotated[str, typer.Option(help="Field for the kind of change: c, u or d.")] = "op",
    partitions: Annotated[
        int, typer.Option(min=1, help="Number of partitions, if the topic is created.")
    ] = 1,
    available_now: AvailableNow = False,
) -> None:
    """Send the changes of a table to a topic as a changelog: first its rows, then each change.

    Delivery is exactly once if the broker deduplicates in the topic, else at least once. A topic
    that is created here does.
    """
    from lake.streams.job import await_streams
    from lakehouse.messages.publish_table import Form, publish_table
    from lakehouse.runtime.broker import require_broker
    from lakehouse.runtime.run import spark_session

    require_broker(current.settings)
    with spark_session(current.settings, "lakehouse-publish-table") as spark:
        running = publish_table(
            spark,
            current.lake,
            table,
            topic,
            Form(key, op=op),
            partitions=partitions,
            available_now=available_now,
        )
        await_streams([running])


def create_topics() -> None:
    """Create the declared topics on the broker. Existing topics are left as they are."""
    from lakehouse.messages.publish import create_topics
    from lakehouse.runtime.broker import require_broker

    require_broker(current.settings)
    create_topics(current.lake_of_any_format)


def generate(
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for the CSV files.")],
    scale: Annotated[
        float,
        typer.Option(
            min=0.0001,
            help="Size of the data. 1 is the size of the demo or, without an application, 50,000 "
            "events and 5,000 keys per topic.",
        ),
    ] = 1.0,
    seed: Annotated[
        int, typer.Option(help="Seed of the data. The same seed gives the same files.")
    ] = 1,
    late: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Share of events that are late: an hour or more before others."
        ),
    ] = 0.0,
    broken: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Share of rows that publish sends, but that silver quarantines."
        ),
    ] = 0.0,
) -> None:
    """Write generated data for the topics as CSV files, which publish can send.

    An application generates its own data. Without one, the declarations of the topics decide.
    """
    from lakehouse.application import load_application
    from lakehouse.messages.generate import generate
    from lakehouse.runtime.terminal import err, out

    application = load_application(current.topics)
    if application:
        given = [name for name, share in (("--late", late), ("--broken", broken)) if share]
        if given:
            what = (
                f"{' and '.join(given)} cannot be used, because the application "
                f"{current.topics.application} generates its own data."
            )
            raise SettingsError(what, "Use a topic file without an application.")
        counts = application.generate(out_dir, scale, seed)
    else:
        made = generate(current.topics, out_dir, scale, seed, late=late, broken=broken)
        counts = made.rows
        for remark in made.remarks:
            err.print(remark, markup=False)
    out.print(f"{', '.join(f'{count} {what}' for what, count in counts.items())}: {out_dir}")
