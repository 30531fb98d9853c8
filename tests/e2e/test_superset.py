"""Tests that the Superset dashboard matches gold's tables, and that its charts show their rows."""

import datetime as dt
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from browser import SHOTS, chromium
from certificates import sql_tls
from deltalake import DeltaTable
from guarded import PASSWORD, asked_by_owner
from shop_lake import ShopLake
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from gold.dbt.results import BuildResult
from gold.sql_client import client_environment
from lake.settings.settings import LakeSettings
from lakehouse.runtime.ports import free_port
from lakehouse.sql.endpoint import start_endpoint
from lakehouse.sql.users import add_user

ROOT = Path(__file__).parents[2]
EXPORT = ROOT / "deploy" / "superset" / "dashboard"
MARTS = ROOT / "dbt_project" / "models" / "marts"
ENVIRONMENT = os.environ.get("TEST_SUPERSET")
SET_UP_SECONDS = 500
BROWSER_SECONDS = 120
Config = dict[str, Any]

needs_superset = pytest.mark.skipif(
    not ENVIRONMENT, reason="`make test-superset` installs Superset and runs this"
)


def read(folder: Path, suffix: str = ".yaml") -> list[Config]:
    return [yaml.safe_load(file.read_text()) for file in sorted(folder.rglob(f"*{suffix}"))]


DATASETS, CHARTS = read(EXPORT / "datasets"), read(EXPORT / "charts")


@pytest.fixture(scope="module")
def marts() -> dict[str, dict[str, str]]:
    """Return the columns of each mart with their types."""
    return {
        model["name"]: {column["name"]: column["data_type"] for column in model["columns"]}
        for file in read(MARTS, ".yml")
        for model in file.get("models", [])
    }


def mart_of(dataset: Config) -> str:
    """Return the mart of a dataset, or the one that its query aliases as `affinity`."""
    joined = re.search(r"FROM gold\.(\w+) AS affinity\b", dataset.get("sql", ""))
    return str(joined[1] if joined else dataset["table_name"])


@pytest.mark.parametrize("dataset", DATASETS, ids=lambda dataset: dataset["table_name"])
def test_a_dataset_uses_columns_of_its_mart(
    dataset: Config, marts: dict[str, dict[str, str]]
) -> None:
    mart = marts[mart_of(dataset)]
    named = {c["column_name"]: c["type"].lower().replace(" ", "") for c in dataset["columns"]}
    if "sql" in dataset:
        assert set(re.findall(r"\baffinity\.(\w+)", dataset["sql"])) <= set(mart)
    else:
        assert named.items() <= mart.items()
    for metric in dataset["metrics"]:
        assert set(re.findall(r"\b[a-z_]+\b", metric["expression"])) <= set(named)


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart["slice_name"])
def test_a_chart_uses_columns_and_metrics_of_its_dataset(chart: Config) -> None:
    [dataset] = [each for each in DATASETS if each["uuid"] == chart["dataset_uuid"]]
    query = chart_query(chart["params"])
    columns = {
        column if isinstance(column, str) else column["label"] for column in query["columns"]
    }
    assert columns <= {column["column_name"] for column in dataset["columns"]}
    assert set(query["metrics"]) <= {metric["metric_name"] for metric in dataset["metrics"]}
    assert columns or query["metrics"]


def test_the_dashboard_shows_every_chart_and_dbt_knows_what_it_reads() -> None:
    [dashboard] = read(EXPORT / "dashboards")
    placed = [each["meta"] for name, each in dashboard["position"].items() if "CHART-" in name]
    charts = {chart["uuid"]: chart["slice_name"] for chart in CHARTS}
    assert {meta["uuid"]: meta["sliceName"] for meta in placed} == charts
    [known] = yaml.safe_load((MARTS / "_exposures.yml").read_text())["exposures"]
    assert set(known["depends_on"]) == {f"ref('{mart_of(dataset)}')" for dataset in DATASETS}
    assert known["url"].endswith(f"/{dashboard['slug']}/")


def test_the_connection_uses_the_endpoints_defaults() -> None:
    [database] = read(EXPORT / "databases")
    host, port = (LakeSettings.model_fields[f"sql_{name}"].default for name in ("host", "port"))
    assert database["sqlalchemy_uri"] == f"hive://{host}:{port}/gold"
    configuration = (ROOT / "deploy" / "superset" / "superset_config.py").read_text()
    assert f'DATABASE = "{database["sqlalchemy_uri"]}"' in configuration


def chart_query(params: Config) -> Config:
    """Return a chart's query, as the browser derives it from the chart's settings."""
    columns = [*params.get("groupby", []), *params.get("all_columns", [])]
    if "x_axis" in params:
        axis = {
            "columnType": "BASE_AXIS",
            "expressionType": "SQL",
            "label": params["x_axis"],
            "sqlExpression": params["x_axis"],
            "timeGrain": params.get("time_grain_sqla"),
        }
        columns.insert(0, axis)
    metrics = params.get("metrics") or ([params["metric"]] if "metric" in params else [])
    return {"columns": columns, "metrics": metrics, "row_limit": params.get("row_limit", 100)}


@dataclass
class Superset:
    """A running Superset, a logged-in client and the user of the client."""

    client: httpx.Client
    user: dict[str, str]


@pytest.fixture(scope="module")
def reader(
    shop_lake: ShopLake, gold: BuildResult, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LakeSettings]:
    """The settings of a reader, at an endpoint with roles and TLS."""
    folder = tmp_path_factory.mktemp("reader")
    settings = asked_by_owner(shop_lake.settings, folder).model_copy(update=sql_tls(folder))
    add_user(settings, "rita", PASSWORD, "reader")
    serving = start_endpoint(shop_lake.spark, settings)
    yield settings.model_copy(update={"sql_user": "rita"})
    serving.stop()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of the lakehouse, where Superset keeps its state from one start to the next."""
    return tmp_path_factory.mktemp("superset")


@pytest.fixture(scope="module", params=["open endpoint", "reader"])
def superset(
    gold: BuildResult,
    endpoint: LakeSettings,
    reader: LakeSettings,
    home: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Superset]:
    """Superset as `make superset` starts it, on an endpoint without passwords or as a reader."""
    read, port = (reader if request.param == "reader" else endpoint), free_port()
    login = client_environment(read)
    if read.sql_password_file:
        login["LAKEHOUSE_SQL_PASSWORD_FILE"] = str(read.sql_password_file)
    log = (home / "superset.log").open("w")
    process = subprocess.Popen(
        [
            *(sys.executable, ROOT / "deploy" / "superset" / "serve.py", str(ENVIRONMENT)),
            *("--port", str(port)),
        ],
        env={
            **os.environ,
            "LAKEHOUSE_HOME": str(home),
            **login,
        },
        stdout=log,
        stderr=log,
    )
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
        try:
            for attempt in Retrying(
                retry=retry_if_exception_type(httpx.ConnectError),
                stop=stop_after_delay(SET_UP_SECONDS),
                wait=wait_fixed(0.5),
                reraise=True,
            ):
                with attempt:
                    assert process.poll() is None, (home / "superset.log").read_text()
                    client.get("/health").raise_for_status()
            password = (home / "superset" / "password").read_text()
            who = {"username": "admin", "password": password}
            asked = client.post("/api/v1/security/login", json={**who, "provider": "db"})
            client.headers["Authorization"] = f"Bearer {asked.json()['access_token']}"
            yield Superset(client, who)
            for file in ("superset.log", "superset/superset.db"):
                for secret in (password, PASSWORD):
                    assert secret.encode() not in (home / file).read_bytes()
        finally:
            process.terminate()
            process.wait(timeout=60)
            log.close()


def chart_rows(superset: httpx.Client, name: str) -> list[Config]:
    """Return the rows that Superset sends to a chart of the imported dashboard."""
    charts = superset.get("/api/v1/chart/", params={"q": "(page_size:100)"}).json()["result"]
    [chart] = [chart for chart in charts if chart["slice_name"] == name]
    asked = {
        "datasource": {"id": chart["datasource_id"], "type": "table"},
        "queries": [chart_query(json.loads(chart["params"]))],
    }
    answer = superset.post("/api/v1/chart/data", json=asked)
    assert answer.status_code == 200, answer.text
    [result] = answer.json()["result"]
    rows: list[Config] = result["data"]
    return rows


@needs_superset
def test_charts_get_the_rows_of_the_tables(superset: Superset, endpoint: LakeSettings) -> None:
    found = {
        chart["slice_name"]: chart_rows(superset.client, chart["slice_name"]) for chart in CHARTS
    }
    assert all(found.values())

    def table(name: str) -> list[Config]:
        rows: list[Config] = (
            DeltaTable(endpoint.table_path("gold", name)).to_pyarrow_table().to_pylist()
        )
        return rows

    revenue: Counter[tuple[dt.date, str]] = Counter()
    for row in table("sales_by_day"):
        revenue[row["day"].replace(day=1), row["category"]] += row["revenue"]
    assert {
        (month(row["day"]), row["category"]): Decimal(str(row["revenue_sum"])).quantize(
            Decimal("0.01")
        )
        for row in found["Revenue by month and category"]
    } == revenue
    reasons = Counter(row["reason"] for row in table("coupon_eligibility"))
    coupons = found["Coupons: who gets one, who does not"]
    assert {row["reason"]: row["accounts"] for row in coupons} == reasons
    [customers] = found["Customers"]
    assert customers == {"customers": len(table("customers"))}


@needs_superset
def test_a_browser_draws_the_dashboard(
    superset: Superset, endpoint: LakeSettings, tmp_path: Path
) -> None:
    with chromium() as browser:
        page = browser.new_page(
            base_url=str(superset.client.base_url),
            viewport={"width": 1400, "height": 1500},  # a chart is loaded once it is visible
        )
        page.set_default_timeout(BROWSER_SECONDS * 1000)
        try:
            page.goto("/login/")
            for field, value in superset.user.items():
                page.fill(f"input[name={field}], #{field}", value)
            page.click("[type=submit]")
            page.wait_for_url(re.compile("welcome"))
            page.goto("/superset/dashboard/orders-lakehouse/?standalone=1")
            drawn = page.locator(".dashboard-chart [data-test=slice-container]")
            drawn.nth(len(CHARTS) - 1).wait_for()
            page.wait_for_function("() => !document.querySelector('.loading')")
            if SHOTS:
                page.screenshot(path=f"{SHOTS}/superset.png")
        finally:
            page.screenshot(path=tmp_path / "dashboard.png")
        assert page.locator("[role=alert]").count() == 0
        for chart in CHARTS:
            assert page.get_by_text(chart["slice_name"], exact=True).count() >= 1
        customers = DeltaTable(endpoint.table_path("gold", "customers")).to_pyarrow_table().num_rows
        assert page.get_by_text(str(customers), exact=True).count() == 1


def month(milliseconds: float) -> dt.date:
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.timezone.utc).date()
