"""The command `lakehouse`. Each command parses its options and calls one function."""

import contextlib
import datetime as dt
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from bronze.errors import SettingsError
from bronze.exporter import serving
from bronze.ingest import ingest
from bronze.job import AvailableNow, await_streams, exit_with
from bronze.logs import LogFormat, configure_logs
from bronze.measure import bronze_collector
from bronze.options import epoch_ms
from bronze.replay import replay_topic
from bronze.settings import LakeSettings, load_settings
from bronze.storage import require_bucket
from bronze.topics import load_topics
from gold.__main__ import Every, FullRefresh, Select, seconds
from gold.build import build_gold, require_silver
from gold.catalog import register
from gold.docs import write_docs
from gold.endpoint import endpoint_running
from gold.errors import GoldError
from gold.evaluate import AT, evaluate_recommendations
from gold.keep import keep_fresh
from gold.measure import gold_collector
from gold.results import BuildResult
from lakehouse.console import err, out, print_rows
from lakehouse.context import Format, lake
from lakehouse.demo import demo as run_demo
from lakehouse.doctor import COLUMNS as DOCTOR_COLUMNS
from lakehouse.doctor import examine
from lakehouse.forget import forget
from lakehouse.generate import generate_shop
from lakehouse.java import java_home
from lakehouse.metastore import commands as metastore_commands
from lakehouse.ports import with_own_sql_port
from lakehouse.publish import create_topics, files_to_publish
from lakehouse.publish import publish as publish_files
from lakehouse.publish_table import publish_table
from lakehouse.quarantine import commands as quarantine_commands
from lakehouse.query import query
from lakehouse.reset import reset as reset_lake
from lakehouse.reset import what_goes
from lakehouse.run import require_broker, spark_session
from lakehouse.savepoint import commands as savepoint_commands
from lakehouse.sql_users import commands as user_commands
from lakehouse.status import COLUMNS, lake_status
from lakehouse.up import sql_endpoint
from lakehouse.up import up as run_up
from lakehouse.watch import watch
from silver.measure import BookTotals, silver_collector
from silver.rebuild import cut_at, rebuild
from silver.refine import refine, require_bronze

app = typer.Typer(
    help="From Pulsar topics to bronze, silver and gold Delta tables, and SQL on them.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
)


gold_commands = typer.Typer()
app.add_typer(gold_commands, name="gold")
app.add_typer(metastore_commands, name="metastore", no_args_is_help=True)
app.add_typer(quarantine_commands, name="quarantine", no_args_is_help=True)
app.add_typer(savepoint_commands, name="savepoint", no_args_is_help=True)
app.add_typer(user_commands, name="sql-user", no_args_is_help=True)
app.command()(forget)


@app.callback()
def common(
    home: Annotated[
        Path | None,
        typer.Option(help="Folder of the embedded runtime and the lake. [default: .lakehouse]"),
    ] = None,
    topics: Annotated[
        Path | None, typer.Option(help="Topic file (TOML). [default: the shop's topics]")
    ] = None,
    log_format: Annotated[
        LogFormat | None, typer.Option(help="How logs are written to stderr. [default: text]")
    ] = None,
    traces: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error.")
    ] = False,
) -> None:
    """Settings come from options, then LAKEHOUSE_… variables, then lakehouse.toml."""
    lake.traces = traces
    configure_logs(log_format or "text")  # also for what the settings have to say
    lake.settings = load_settings(home=home, topics=topics, log_format=log_format)
    configure_logs(lake.settings.log_format)
    lake.topics = load_topics(lake.settings.topics)


@app.command()
def demo(
    data: Annotated[
        Path | None, typer.Option(help="Folder with users.csv, items.csv, orders.csv.")
    ] = None,
    scale: Annotated[float, typer.Option(min=0.0001, help="Size of the generated data.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the generated data.")] = 1,
    keep_running: Annotated[
        bool, typer.Option("--keep-running", help="Go on streaming until Ctrl-C.")
    ] = False,
) -> None:
    """Run everything once on an empty lake, and print what came out."""
    with _metrics() if keep_running else nullcontext():
        run_demo(
            lake.settings, lake.topics, data=data, scale=scale, seed=seed, keep_running=keep_running
        )


@app.command()
def up() -> None:
    """Run the broker, the streams and the SQL endpoint until Ctrl-C.

    A broker that answers at the configured address is used; else one is started here.
    """
    with _metrics():
        run_up(lake.settings, lake.topics)


def _metrics() -> AbstractContextManager[None]:
    """The metrics of all layers, served as the settings say."""
    layers = (make(lake.settings, lake.topics) for make in (bronze_collector, silver_collector))
    return serving(lake.settings, *layers, gold_collector(lake.settings))


@app.command()
def bronze(available_now: AvailableNow = False) -> None:
    """Land the topics in the bronze tables."""
    require_broker(lake.settings)
    mine = bronze_collector(lake.settings, lake.topics)
    with (
        nullcontext() if available_now else serving(lake.settings, mine),
        spark_session(lake.settings, "lakehouse-bronze") as spark,
    ):
        await_streams(ingest(spark, lake.settings, lake.topics, available_now=available_now))


@app.command()
def silver(available_now: AvailableNow = False) -> None:
    """Apply the changelogs and enrich the events of the bronze tables."""
    require_bronze(lake.settings, lake.topics)
    mine = silver_collector(lake.settings, lake.topics)
    with (
        nullcontext() if available_now else serving(lake.settings, mine),
        spark_session(lake.settings, "lakehouse-silver") as spark,
    ):
        await_streams(refine(spark, lake.settings, lake.topics, available_now=available_now))


@gold_commands.callback(invoke_without_command=True)
def gold(
    context: typer.Context,
    available_now: AvailableNow = False,
    select: Select = None,
    full_refresh: FullRefresh = False,
    every: Every = "0s",
    serve: Annotated[
        bool, typer.Option("--serve", help="Answer SQL too, where no `lakehouse up` does.")
    ] = False,
) -> None:
    """Build, test and publish gold; again whenever silver changes, unless --available-now.

    Readers see it when all tests have passed, and until then what was published before. Uses the
    running SQL endpoint; or one of its own, for itself alone, when none runs and until one does.
    """
    if context.invoked_subcommand:
        return
    pause = seconds(every)
    require_silver(lake.settings, lake.topics)
    if available_now or select or full_refresh:
        with _endpoint(serve=serve) as (settings, _):
            _show_build(build_gold(settings, select=select, full_refresh=full_refresh))
        return
    while True:
        with _endpoint(serve=serve) as (settings, is_ours), contextlib.ExitStack() as stack:
            if is_ours:  # else the `up` beside it serves the metrics of gold, on the same port
                stack.enter_context(serving(settings, gold_collector(settings)))
            leave = _up_again if is_ours and not serve else None
            keep_fresh(settings, _show_build, _show_refusal, pause, leave)


@contextlib.contextmanager
def _endpoint(*, serve: bool = False) -> Iterator[tuple[LakeSettings, bool]]:
    """The running SQL endpoint, or one of our own when none runs.

    Args:
        serve: it is ours, and where the settings say; else on a port that is its alone.

    Yields:
        Settings for it, and whether it is ours.
    """
    if not serve and endpoint_running(lake.settings):
        yield lake.settings, False
        return
    settings = lake.settings if serve else with_own_sql_port(lake.settings)
    with spark_session(settings, "lakehouse-gold") as spark:
        register(spark, settings, lake.topics)
        with sql_endpoint(spark, settings):
            yield settings, True


def _up_again() -> bool:
    """Whether the endpoint that readers use runs now: what is built there, they see at once."""
    return endpoint_running(lake.settings)


def _show_build(result: BuildResult) -> None:
    for model in result.models:
        err.print(f"gold.{model.name} {model.status} [dim]{model.seconds:.1f} s[/dim]")
    done = "published" if result.published else "not published, as others were not built"
    err.print(f"{len(result.models)} models built, {len(result.tests)} tests passed; {done}")


def _show_refusal(error: GoldError) -> None:
    err.print(f"[red]Error:[/red] {error}", highlight=False)


@gold_commands.command()
def evaluate(form: Format = "table") -> None:
    """Measure the recommendations by what accounts bought last, beside popular and random items.

    The last invoice of each account is held out, and the models of gold recommend ten items from
    the others. Hit rate: share of the accounts that bought one of them; MRR: mean of 1 / its rank.
    """
    require_silver(lake.settings, lake.topics)
    with _endpoint() as (settings, _):
        found = evaluate_recommendations(settings)
    columns = ("recommender", "accounts", f"hit rate at {AT}", f"MRR at {AT}")
    rows = [(q.recommender, q.accounts, q.hit_rate, q.reciprocal_rank) for q in found]
    print_rows(columns, [(*row[:2], *(round(share, 4) for share in row[2:])) for row in rows], form)


@app.command()
def publish(
    data: Annotated[Path, typer.Option(help="Folder with a <topic>.csv for each topic to fill.")],
) -> None:
    """Publish CSV files into the topics, changelogs first."""
    files_to_publish(lake.topics, data)
    require_broker(lake.settings)
    create_topics(lake.settings, lake.topics)
    sent = publish_files(
        lake.settings, lake.topics, data, lambda topic, count: err.print(f"{topic}: {count}")
    )
    print_rows(("topic", "published"), list(sent.items()))


@app.command("publish-table")
def publish_changes(
    table: Annotated[str, typer.Argument(help="Such as silver.users_state.")],
    topic: Annotated[str, typer.Argument(help="Topic to send to; created where it is absent.")],
    key: Annotated[list[str], typer.Option(help="Column that identifies a row; may be repeated.")],
    op: Annotated[str, typer.Option(help="Field that says what happened: c, u or d.")] = "op",
    partitions: Annotated[int, typer.Option(min=1, help="Of the topic, if it is created.")] = 1,
    available_now: AvailableNow = False,
) -> None:
    """Send the changes of a table to a topic, as a changelog: first its rows, then each change.

    Exactly once where the broker deduplicates in the namespace, else at least once.
    """
    require_broker(lake.settings)
    with spark_session(lake.settings, "lakehouse-publish-table") as spark:
        running = publish_table(
            spark,
            lake.settings,
            table,
            topic,
            key=key,
            op=op,
            partitions=partitions,
            available_now=available_now,
        )
        await_streams([running])


@app.command()
def replay(
    table: Annotated[str, typer.Option(help="bronze.<topic>, or silver.")],
    begin: Annotated[
        str | None,
        typer.Option("--from", help="Instant (ISO 8601 with a time zone), or batch of silver."),
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="Instant; default: all landed.")] = None,
) -> None:
    """Bring back what a bronze table has lost, or make silver anew from bronze.

    Bronze: messages published since --from that the broker still has are brought back, each once:
    what the table has stays as it is. Silver: all its tables are made beside the old ones, by the
    topic file of today, from the beginning or from where silver was at --from; then each is
    replaced in one commit. Stop the stream that writes the table first.
    """
    if table == "silver":
        _replay_silver(begin, end)
        return
    layer, _, name = table.partition(".")
    if layer != "bronze" or name not in lake.topics.topics:
        known = ", ".join(f"bronze.{name}" for name in lake.topics.topics)
        message = f"'{table}' cannot be replayed; the tables that can are {known}, and silver."
        raise SettingsError(message)
    if begin is None:
        message = f"Name with --from since when messages of {table} are to be brought back."
        raise SettingsError(message)
    since, before = epoch_ms("--from", begin), epoch_ms("--to", end) if end else None
    require_broker(lake.settings)
    with spark_session(lake.settings, "lakehouse-replay") as spark:
        count = replay_topic(spark, lake.settings, lake.topics.topics[name], since, before)
    out.print(f"{count} messages were missing in {table}, and are there now.")


def _replay_silver(begin: str | None, end: str | None) -> None:
    if end is not None:
        message = "Silver is replayed up to what bronze has; drop --to."
        raise SettingsError(message)
    cut = cut_at(lake.settings, begin) if begin else None
    with spark_session(lake.settings, "lakehouse-replay") as spark:
        rebuild(spark, lake.settings, lake.topics, cut)
    out.print("Silver is made anew. What follows it by its batches, such as gold, sees all rows.")


@app.command()
def generate(
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for the CSV files.")],
    scale: Annotated[float, typer.Option(min=0.0001, help="1 is the real shop's size.")] = 1.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same files.")] = 1,
) -> None:
    """Write generated users.csv, items.csv and orders.csv."""
    counts = generate_shop(out_dir, scale, seed)
    out.print(f"{counts.users} users, {counts.items} items, {counts.orders} order lines: {out_dir}")


@app.command("create-topics")
def create() -> None:
    """Create the declared topics on the broker; existing ones are left as they are."""
    require_broker(lake.settings)
    create_topics(lake.settings, lake.topics)


@app.command()
def status(
    form: Format = "table",
    live: Annotated[
        bool, typer.Option("--watch", help="Go on showing it, in place, until Ctrl-C.")
    ] = False,
    every: Annotated[
        str, typer.Option(metavar="TIME", help="With --watch: the time between two looks.")
    ] = "2s",
) -> None:
    """Show per table: rows, age of the newest message, lag, what is missing or quarantined."""
    require_bucket(lake.settings)
    if live:
        if form != "table":
            message = f"--watch shows a table; drop --format {form}."
            raise SettingsError(message)
        books = BookTotals(lake.settings)
        watch(lambda: lake_status(lake.settings, lake.topics, books), seconds(every))
        return
    now = dt.datetime.now(dt.timezone.utc)
    print_rows(COLUMNS, [s.cells(now) for s in lake_status(lake.settings, lake.topics)], form)


@app.command()
def doctor(form: Format = "table") -> None:
    """Check versions, jars, settings, disk, ports, broker, topics and streams; changes nothing.

    Exit code 1 if something fails.
    """
    found = examine(lake.settings, lake.topics)
    print_rows(DOCTOR_COLUMNS, found, form)
    if any(each.state == "fail" for each in found):
        raise typer.Exit(1)


@app.command("java-home")
def print_java_home() -> None:
    """Print the JAVA_HOME that Spark is started with here, for other programs of Spark."""
    out.print(str(java_home(lake.settings)), soft_wrap=True)


@app.command()
def sql(
    statement: Annotated[str, typer.Argument(help='Such as "select * from gold.reward_points".')],
    form: Format = "table",
) -> None:
    """Run a statement, through the running endpoint or with a Spark of its own."""
    columns, rows = query(lake.settings, lake.topics, statement)
    if columns:
        print_rows(columns, rows, form)


@app.command()
def report(
    out_file: Annotated[
        Path | None,
        typer.Option(
            "--out", help="HTML file. [default: lakehouse-report.html in the home folder]"
        ),
    ] = None,
    docs: Annotated[
        bool,
        typer.Option("--docs", help="Write the docs of the dbt models too, for a link to them."),
    ] = False,
) -> None:
    """Write a web page: flow, sales, customers, rewards, recommendations, and what waits."""
    from lakehouse.report import write_report  # loads a plotting library, for this command alone

    if docs:
        write_docs(lake.settings)
    now = dt.datetime.now(dt.timezone.utc)
    out.print(str(write_report(lake.settings, lake.topics, out_file, now=now)), soft_wrap=True)


@app.command()
def reset(yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False) -> None:
    """Delete all tables, checkpoints and the embedded broker's messages, after asking."""
    require_bucket(lake.settings)
    folders = what_goes(lake.settings)
    if not folders:
        out.print("There is nothing to delete.")
        return
    out.print("This deletes:\n" + "\n".join(f"  {folder}" for folder in folders))
    if yes or typer.confirm("Delete?", default=False):
        reset_lake(lake.settings, lake.topics)
        out.print("Deleted.")
    else:
        out.print("Nothing was deleted.")


def main() -> None:
    """Run the command; an error is one message on stderr and an exit code."""
    exit_with(lambda: app(prog_name="lakehouse"), traces=lambda: lake.traces)
