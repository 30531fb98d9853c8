"""`lakehouse demo`: run the whole pipeline once on an empty lake, and print the results."""

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from bronze.ingest import ingest
from gold.build import prepare_build
from gold.catalog import register
from gold.dbt.manifest import Manifest
from gold.dbt.process import target_path
from gold.dbt.results import BuildResult
from gold.lock import alone
from gold.sql_client import endpoint_running
from lake.durable import write_durably
from lake.settings.ports import FILE as PORTS_FILE
from lake.settings.settings import LakeSettings
from lake.streams.failures import explain
from lake.streams.job import await_streams
from lake.tables.lake import Lake
from lake.tables.storage import require_folder
from lakehouse.application import load_application
from lakehouse.messages.generate import generate
from lakehouse.messages.publish import create_topics, files_to_publish, publish
from lakehouse.operate.status import COLUMNS, lake_status
from lakehouse.report.declared import Declared
from lakehouse.runtime.address import console_url
from lakehouse.runtime.broker import left_over_broker, start_broker
from lakehouse.runtime.metastore import jar_groups
from lakehouse.runtime.run import fetch_all_jars
from lakehouse.runtime.session import build_session
from lakehouse.runtime.terminal import err, out, print_rows, step
from lakehouse.up import require_free_ports, serve, sql_endpoint
from pulsar_spark.errors import SettingsError
from silver.refine import refine

MARK = "demo.json"
NEXT = """
Next steps:
  {command} console  # {address}
  {command} up       # streams, console, and SQL for BI tools, until Ctrl-C
  {command} sql "show tables in gold"
  {command} sql --format csv "select * from gold.{mart}"
Delta tables for DuckDB, Polars, pandas:
  {gold}
"""


def demo(
    lake: Lake,
    *,
    data: Path | None = None,
    scale: float = 1.0,
    seed: int = 1,
    keep_running: bool = False,
) -> None:
    """Run the pipeline on an empty lake and print the results.

    Args:
        lake: the lake. If its home folder holds an earlier demo, it is emptied first.
        data: folder with the CSV files; if None, data is generated.
        scale: size of the generated data.
        seed: seed of the generated data.
        keep_running: keep streaming and answering SQL until Ctrl-C.

    Raises:
        SettingsError: the home folder holds a lake that no demo made, or that is in use; or data is
            to be generated, and `lakehouse publish` can fill none of the topics.
    """
    application = load_application(lake.topics)
    make: Callable[[Path, float, int], object] = (
        application.generate if application else partial(generate, lake.topics)
    )
    if data is not None:
        files_to_publish(lake.topics, data)
    _empty_home(lake.settings)
    require_free_ports(lake.settings)
    fetch_all_jars(lake.settings, *jar_groups(lake.settings), "pulsar")
    with contextlib.ExitStack() as stack:
        with step("Starting Pulsar and Spark, publishing"), ThreadPoolExecutor(2) as pool:
            folder = data or lake.settings.home_dir / "data"
            files = pool.submit(make, folder, scale, seed) if data is None else None
            published = pool.submit(_fill_topics, stack, lake, folder, files)
            spark = build_session(lake.settings, "lakehouse-demo")
            stack.callback(spark.stop)
            counts = published.result()
        with alone(lake.settings), prepare_build(lake) as gold:  # dbt loads while the layers run
            _run_layers(spark, lake)
            with sql_endpoint(spark, lake.settings), step("gold: dbt build"):
                built = gold.run()
        _report(spark, lake, counts, built)
        if keep_running:
            serve(spark, lake)


def _fill_topics(
    stack: contextlib.ExitStack,
    lake: Lake,
    folder: Path,
    files: Future[object] | None,
) -> dict[str, int]:
    """Start the broker, and publish the files once they exist. The stack stops the broker."""
    stack.callback(start_broker(lake.settings).stop)
    create_topics(lake)
    if files is not None:
        files.result()
    return publish(lake, folder)


def _run_layers(spark: SparkSession, lake: Lake) -> None:
    with step("bronze: landing the topics"):
        await_streams(ingest(spark, lake, available_now=True))
    with step("silver: applying changelogs, enriching events"):
        await_streams(refine(spark, lake, available_now=True))
    register(spark, lake)


def _empty_home(settings: LakeSettings) -> None:
    require_folder(settings, "lakehouse demo", "it starts with an empty lake of its own")
    home = settings.home_dir
    if endpoint_running(settings) or left_over_broker(settings) is not None:
        message = (
            f"A lakehouse is already running in {home} or on port {settings.sql_port}. Stop it "
            "first, or give the demo its own home folder (--home) and ports."
        )
        raise SettingsError(message)
    there = [file for file in home.glob("*") if file.name != PORTS_FILE]  # clients know its ports
    if there and not (home / MARK).exists():
        message = (
            f"{home} contains a lake that the demo did not create, and the demo would delete it. "
            "Choose another folder with --home."
        )
        raise SettingsError(message)
    for each in there:
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()
    home.mkdir(parents=True, exist_ok=True)
    write_durably(home / MARK, json.dumps({"made_by": "lakehouse demo"}))


def _report(
    spark: SparkSession,
    lake: Lake,
    published: dict[str, int],
    built: BuildResult,
) -> None:
    out.print()
    print_rows(("topic", "published"), list(published.items()), title="Messages")
    lines = [(line.table, line.rows, line.lag_messages, line.note) for line in lake_status(lake)]
    print_rows([COLUMNS[0], COLUMNS[1], COLUMNS[3], COLUMNS[4]], lines, title="Tables")
    out.print(f"dbt: {len(built.models)} models built, {len(built.tests)} tests passed\n")
    queries = Declared(Manifest(target_path(lake.settings))).queries
    for title, sql in queries.items():
        try:
            rows = spark.sql(sql)
            print_rows(rows.columns, [tuple(row) for row in rows.collect()], title=title)
        except PySparkException as error:
            why = f"{title}: Spark refuses the query of this exposure: {explain(error)}"
            err.print(why, markup=False)
    command = "lakehouse" if shutil.which("lakehouse") else os.path.relpath(sys.argv[0])
    marts = built.published.versions if built.published else ["…"]
    mart = min(marts, key=lambda name: (len(name), name))
    address = console_url(lake.settings)
    gold = lake.settings.lake_dir / "gold"
    out.print(NEXT.format(command=command, address=address, mart=mart, gold=gold), soft_wrap=True)
