"""Tests the first commands a user runs in a new project: `demo`, `plan`, `sql`, `up`, `reset`.

The project is the one that `lakehouse init` makes. `make nightly` also runs the shop's demo.
"""

import contextlib
import csv
import datetime as dt
import json
import os
import signal
import socket
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import psutil
import pulsar
import pytest
from browser import SHOTS, chromium
from bs4 import BeautifulSoup
from deltalake import DeltaTable
from served_console import opened
from shop_lake import joined, read_shop
from tenacity import Retrying, stop_after_delay, wait_fixed

from gold.sql_client import is_loopback, query_endpoint
from lake.settings.settings import load_settings
from lakehouse.runtime.ports import free_port

LAKEHOUSE = Path(sys.executable).with_name("lakehouse")
Outcome = subprocess.CompletedProcess[str]
pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]


class Home:
    """A separate folder and separate ports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lake = folder / ".lakehouse" / "lake"
        self.broker_port = free_port()
        self.connect_port = free_port()
        self.metrics_port = free_port()
        self.sql_port = free_port()
        self.console_port = free_port()
        self.env = {
            **os.environ,
            "LAKEHOUSE_PULSAR_URL": f"pulsar://127.0.0.1:{self.broker_port}",
            "LAKEHOUSE_PULSAR_ADMIN_URL": f"http://127.0.0.1:{free_port()}",
            "LAKEHOUSE_SQL_HOST": "127.0.0.2",  # loopback, and not the default
            "LAKEHOUSE_SQL_PORT": str(self.sql_port),
            "LAKEHOUSE_CONNECT_PORT": str(self.connect_port),
            "LAKEHOUSE_METRICS_PORT": str(self.metrics_port),
            "LAKEHOUSE_CONSOLE_PORT": str(self.console_port),
        }

    def run(self, *arguments: str, ends: int = 0, types: str = "") -> Outcome:
        done = subprocess.run(
            [LAKEHOUSE, *arguments],
            cwd=self.folder,
            env=self.env,
            input=types,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == ends, done.stderr
        assert "Traceback" not in done.stderr
        return done

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement on the endpoint of the running `lakehouse up`."""
        own = {"sql_host": "127.0.0.2", "sql_port": self.sql_port}
        settings = load_settings(home=self.folder / ".lakehouse", **own)
        return query_endpoint(settings, statement)[1]

    def status(self) -> dict[str, dict[str, Any]]:
        rows = json.loads(self.run("status", "--format", "json").stdout)
        return {row["table"]: row for row in rows}

    def processes(self) -> list[str]:
        """Return the command lines that contain this folder."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if str(self.folder) in command:
                    found.append(command[:200])
        return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    folder = tmp_path_factory.mktemp("demo")
    Home(folder).run("init", "plant")
    return Home(folder / "plant")


@pytest.fixture(scope="module")
def demo(home: Home) -> Outcome:
    return home.run("demo", "--data", "sample")


def rows(home: Home, layer: str, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        DeltaTable(home.lake / layer / name).to_pyarrow_table().to_pylist()
    )
    return found


def sample(home: Home, topic: str) -> list[dict[str, str]]:
    with (home.folder / "sample" / f"{topic}.csv").open() as lines:
        return list(csv.DictReader(lines))


def test_the_demo_enriches_and_counts_the_sample(demo: Outcome, home: Home) -> None:
    sites = {row["id"]: row["site"] for row in sample(home, "sensors")}
    expected, by_day = {}, defaultdict[tuple[dt.date, str], list[Decimal]](list)
    for row in sample(home, "readings"):
        at = dt.datetime.fromisoformat(row["measured_at"]).replace(tzinfo=dt.timezone.utc)
        site, value = sites.get(row["sensor_id"]), Decimal(row["value"])
        expected[int(row["id"])] = (row["sensor_id"], at, value, site)
        by_day[at.date(), site or "unknown"].append(value)
    assert len(expected) == 20
    assert None in {site for *_, site in expected.values()}, "each reading has a known sensor"
    found = rows(home, "silver", "enriched_readings")
    assert len(found) == len(expected)
    assert expected == {
        row["id"]: (
            *(row["sensor_id"], row["measured_at"].astimezone(dt.timezone.utc), row["value"]),
            row["sensor"] and row["sensor"]["site"],
        )
        for row in found
    }
    marts = rows(home, "gold", "readings_by_day")
    columns = ("count_readings", "lowest", "highest")
    assert {(row["day"], row["site"]): tuple(row[c] for c in columns) for row in marts} == {
        key: (len(values), min(values), max(values)) for key, values in by_day.items()
    }


def test_the_demo_prints_its_results_and_leaves_nothing_running(demo: Outcome, home: Home) -> None:
    for words in ("silver.enriched_readings", "20", "silver.missing_sensor", "silver.quarantine"):
        assert words in demo.stdout
    for words in ("gold.readings_by_day", "lakehouse sql"):
        assert words in demo.stdout
    assert home.processes() == []


def bare(row: Mapping[str, Any] | None, columns: Mapping[str, Any]) -> dict[str, Any] | None:
    return None if row is None else {name: row[name] for name in columns}


@pytest.mark.nightly
def test_the_demo_of_the_shop_enriches_each_real_order_like_a_plain_join(
    tmp_path: Path, shop_data: Path
) -> None:
    home = Home(tmp_path)
    said = home.run("demo", "--data", str(shop_data)).stdout
    for words in ("silver.enriched_orders", "41", "gold.reward_points"):
        assert words in said
    assert "Accounts with the most points" in said
    expected = joined(read_shop(shop_data))
    assert len(expected) == 41
    found = rows(home, "silver", "enriched_orders")
    assert len(found) == len(expected)
    for row in found:
        right = expected[row["invoice_id"], row["line_item_id"]]
        plain = {name: right[name] for name in right if name not in ("user", "item")}
        assert bare(row, plain) == plain
        for name in ("user", "item"):
            if right[name] is None:
                assert row[name] is None
            else:
                assert bare(row[name], right[name]) == right[name]


ALARMS = """
[topics.alarms]
kind = "changelog"
key = ["id"]
[topics.alarms.fields]
id = "string"
"""
HIGH = """
{{ config(unique_key='reading_id') }}
select reading_id, value from {{ ref('stg_readings') }} where value > 10
"""


def test_a_plan_says_what_the_next_commands_do_or_refuse(demo: Outcome, home: Home) -> None:
    topics, models = home.folder / "topics.toml", home.folder / "dbt" / "models" / "marts"
    declared, mart = topics.read_text(), models / "readings_by_day.sql"
    more = declared.replace(
        'site = "string"', 'site = "string"\nroom = { type = "int", required = false }'
    )
    topics.write_text(more.replace('"decimal(10,2)"', '"double"') + ALARMS)
    sql = mart.read_text()
    mart.write_text(sql.replace("min(value)", "min(value) + 1"))
    (models / "high_readings.sql").write_text(HIGH)
    steps = json.loads(home.run("plan", "--format", "json", ends=1).stdout)
    assert {(step["table"], step["what happens"]) for step in steps} == {
        ("bronze.alarms", "created"),
        ("silver.alarms_state", "created"),
        ("silver.sensors_state", "gets the column room (int), NULL in existing rows"),
        ("silver.enriched_readings", "refused"),
        ("silver.sensors_state", "rebuilt by `lakehouse up --rebuild`"),
        ("gold_build.readings_by_day", "rebuilt"),
        ("gold_build.high_readings", "created"),
    }
    [refused] = [step["why"] for step in steps if step["what happens"] == "refused"]
    assert "is decimal(10,2), but is now declared as double" in refused
    assert "`lakehouse replay --table silver.enriched_readings`" in refused
    [room] = [step for step in steps if step["what happens"].startswith("rebuilt by")]
    assert room["table"] == "silver.sensors_state"
    assert room["why"] == (
        "it differs from what is declared; silver.enriched_readings will be rebuilt with it"
    )
    topics.write_text(declared)
    mart.write_text(sql)
    (models / "high_readings.sql").unlink()


@pytest.mark.nightly
def test_sql_answers_when_nothing_else_runs(demo: Outcome, home: Home) -> None:
    count = "select count(*) as readings from silver.enriched_readings"
    done = home.run("sql", "--format", "csv", count)
    assert done.stdout == "readings\n20\n"
    assert done.stderr.startswith("Starting Spark")


@pytest.fixture(scope="module")
def running(demo: Outcome, home: Home) -> Iterator[subprocess.Popen[str]]:
    """`lakehouse up` on the demo's folder, answering SQL."""
    log = (home.folder / "up.log").open("w+")
    process = subprocess.Popen(
        [LAKEHOUSE, "up", "--console-actions"],
        cwd=home.folder,
        env=home.env,
        stderr=log,
        stdout=log,
        text=True,
    )

    def is_up() -> None:
        assert process.poll() is None, (home.folder / "up.log").read_text()
        assert "Running." in (home.folder / "up.log").read_text()

    until(is_up, seconds=240)
    yield process
    process.kill()
    process.wait()
    log.close()


def until(check: Any, seconds: float = 60) -> None:
    """Wait until a check no longer raises, at most `seconds`."""
    Retrying(stop=stop_after_delay(seconds), wait=wait_fixed(0.5), reraise=True)(check)


def test_up_streams_published_messages_and_completes_incomplete_rows(
    running: subprocess.Popen[str], home: Home
) -> None:
    before = home.status()
    assert before["silver.enriched_readings"]["rows"] == 20
    assert before["bronze.readings"]["lag (messages)"] == 0
    publish(home, "readings", "id,sensor_id,measured_at,value", "777,new,2026-03-09T00:00:00,1.5")

    def missing(count: int) -> None:
        found = home.sql("select sensor_id from silver.missing_sensor where id = 777")
        assert found == [("new",)] * count

    until(lambda: missing(1))
    publish(home, "sensors", "id,site,unit", "new,roof,celsius")
    until(lambda: missing(0))
    enriched = home.sql("select sensor.site from silver.enriched_readings where id = 777")
    assert enriched == [("roof",)]
    after = home.status()
    assert after["silver.enriched_readings"]["rows"] == 21
    assert after["bronze.readings"]["rows"] == before["bronze.readings"]["rows"] + 1


def publish(home: Home, topic: str, *lines: str) -> None:
    folder = home.folder / "more" / topic
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{topic}.csv").write_text("\n".join(lines) + "\n")
    home.run("publish", "--data", str(folder))


def test_sql_explains_a_refused_statement_without_a_traceback(
    running: subprocess.Popen[str], home: Home
) -> None:
    refused = home.run("sql", "select * from gold.nope", ends=2)
    assert refused.stdout == ""
    [said] = refused.stderr.splitlines()
    assert said.startswith("Error: [TABLE_OR_VIEW_NOT_FOUND] The table or view")


def test_up_prints_where_it_serves(running: subprocess.Popen[str], home: Home) -> None:
    said = (home.folder / "up.log").read_text()
    assert f"jdbc:hive2://127.0.0.2:{home.env['LAKEHOUSE_SQL_PORT']}" in said
    assert f"sc://127.0.0.1:{home.connect_port}" in said
    assert f"Console: http://127.0.0.1:{home.console_port}" in said
    socket.create_connection(("127.0.0.1", home.connect_port), 5).close()
    metrics = httpx.get(f"http://127.0.0.1:{home.metrics_port}/metrics").text.splitlines()
    for layer in ("bronze", "silver", "gold"):
        assert f'lakehouse_collector_up{{layer="{layer}"}} 1.0' in metrics
    assert 'lakehouse_stream_running{query="silver"} 1.0' in metrics
    assert 'lakehouse_gold_builds_total{outcome="published"} 1.0' in metrics


def take_picture(address: str) -> None:
    """Write the picture of the flow in the docs."""
    with chromium() as browser, opened(browser) as (page, _, _):
        page.goto(address)
        page.locator("#link", has_text="Live").wait_for()
        page.screenshot(path=f"{SHOTS}/console-flow.png", full_page=True)


def test_the_console_shows_the_running_streams_and_discards_a_refused_record(
    running: subprocess.Popen[str], home: Home
) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{home.console_port}", timeout=30) as console:

        def shows(path: str, *texts: str) -> None:
            page = console.get(path)
            assert page.status_code == 200
            words = " ".join(BeautifulSoup(page.text, "html.parser").get_text(" ").split())
            for text in texts:
                assert text in words, words

        until(
            lambda: shows("/", "Streams running 3 of 3", "readings running", "the broker answers")
        )
        if SHOTS:
            take_picture(str(console.base_url))
        shows("/gold", "published", "readings_by_day")
        shows("/timeline", "silver", "process")
        client = pulsar.Client(home.env["LAKEHOUSE_PULSAR_URL"], logger=pulsar.ConsoleLogger())
        client.create_producer("persistent://public/default/sensors").send(b"<broken>")
        client.close()
        until(lambda: shows("/quarantine", "1 record, 1 reason", "payload is not a JSON object"))
        form = BeautifulSoup(console.get("/quarantine/discard?topic=sensors").text, "html.parser")
        fields = {each["name"]: each["value"] for each in form.select("form [name]")}
        assert console.post("/quarantine/discard", data=fields).status_code == 303
        until(lambda: shows("/quarantine", "done", "1 records were discarded", "discarded 1"), 120)
        until(lambda: shows("/streams", "silver running"), 90)
    assert "1 discarded" in home.status()["silver.reconciliation"]["note"]


def test_the_console_runs_sql_as_a_reader_although_everybody_is_an_owner(
    running: subprocess.Popen[str], home: Home
) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{home.console_port}", timeout=30) as console:
        form = BeautifulSoup(console.get("/sql").text, "html.parser")
        token = form.select_one("form.query [name=csrf]")
        assert token is not None

        def result(statement: str) -> str:
            fields = {"csrf": token["value"], "statement": statement}
            place = console.post("/sql", data=fields).headers["location"]

            def ended() -> str:
                found = BeautifulSoup(console.get(place).text, "html.parser").select_one("#result")
                assert found is not None
                assert not found.get("data-refresh")
                return found.get_text(" ")

            return str(Retrying(stop=stop_after_delay(60), wait=wait_fixed(0.2))(ended))

        [(readings,)] = home.sql("select sum(count_readings) from gold.readings_by_day")
        found = result("select concat('=', sum(count_readings)) from gold.readings_by_day")
        assert f"={readings}" in found
        refused = result("select *\nfrom silver.enriched_readings")
        assert "The role 'reader' may not read silver.enriched_readings" in refused
        assert "may not run DropTable" in result("drop table gold.readings_by_day")


def test_nothing_listens_beyond_loopback(running: subprocess.Popen[str], home: Home) -> None:
    up = psutil.Process(running.pid)
    listening = set()
    for process in (up, *up.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # dbt's processes come and go
            # Only TCP: the broker uses UDP for DNS queries, and serves nothing on it.
            found = process.net_connections("tcp")
            listening |= {each.laddr for each in found if each.status == psutil.CONN_LISTEN}
    ports = {address.port for address in listening}
    own = {home.broker_port, home.connect_port, home.metrics_port, home.sql_port}
    assert ports > own | {home.console_port}
    beyond = [address for address in listening if not is_loopback(address.ip)]
    assert beyond == []


@pytest.mark.parametrize(
    "command",
    [
        *("reset --yes", "up"),
        pytest.param("bronze --available-now", marks=pytest.mark.nightly),
        pytest.param("demo", marks=pytest.mark.nightly),
    ],
)
def test_a_running_lakehouse_is_neither_started_twice_nor_deleted(
    running: subprocess.Popen[str], home: Home, command: str
) -> None:
    said = home.run(*command.split(), ends=2).stderr
    assert any(words in said for words in ("already run", "is running", "in use")), said


def test_up_stops_cleanly_on_a_signal(running: subprocess.Popen[str], home: Home) -> None:
    running.send_signal(signal.SIGINT)
    assert running.wait(timeout=60) == 0
    said = (home.folder / "up.log").read_text()
    assert "stopping after the current batches" in said
    assert "Traceback" not in said
    assert "Error" not in said
    until(lambda: nothing_runs(home), seconds=20)


def nothing_runs(home: Home) -> None:
    assert home.processes() == []


def test_reset_deletes_tables_and_messages_after_asking(home: Home, running: object) -> None:
    asked = home.run("reset", types="n\n")
    assert "Nothing was deleted." in asked.stdout
    assert home.lake.is_dir()
    home.run("reset", "--yes")
    assert not home.lake.exists()
    assert not (home.folder / ".lakehouse" / "pulsar").exists()
