"""Tests the recipes of docs/reading-gold.md, unchanged, on a real lake and its endpoints."""

import csv
import datetime as dt
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import SHOTS, chromium
from deltalake import DeltaTable
from guarded import asked_by_owner
from shop_lake import ShopLake

from gold.dbt.results import BuildResult
from lake.settings.settings import LakeSettings
from lake.tables.lake import Lake
from lakehouse.report import write_report
from lakehouse.runtime.ports import free_port
from lakehouse.sql.connect import spark_connect
from lakehouse.sql.endpoint import start_endpoint
from lakehouse.sql.users import add_user

WORD = "without-blanks-for-beeline"  # pragma: allowlist secret
TEXT = (Path(__file__).parents[2] / "docs" / "reading-gold.md").read_text()
RECIPES = dict(
    re.findall(r"^## (.+)\n(?:(?!##).*\n)*?```(?:python|sh)\n((?:.*\n)*?)```", TEXT, re.M)
)


@pytest.fixture(scope="module")
def connect_port(shop_lake: ShopLake) -> Iterator[int]:
    """The port of Spark Connect on the suite's session."""
    port = free_port()
    with spark_connect(
        shop_lake.spark, shop_lake.settings.model_copy(update={"connect_port": port})
    ):
        yield port


@pytest.fixture
def coupons(
    gold: BuildResult, endpoint: LakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, int]:
    """The expected result of each recipe, in a folder with a copy of the table that it reads.

    Polars cannot read the folder of the suite's lake because of the characters in its name.
    """
    path = endpoint.table_path("gold", "coupon_eligibility")
    shutil.copytree(path, tmp_path / ".lakehouse" / "lake" / "gold" / "coupon_eligibility")
    monkeypatch.chdir(tmp_path)
    table = DeltaTable(path).to_pyarrow_table()
    counted = Counter(table["reason"].to_pylist())
    assert len(counted) > 1
    return counted


def recipe(tool: str, endpoint: LakeSettings) -> str:
    return RECIPES[tool].replace("127.0.0.1:10000", f"127.0.0.1:{endpoint.sql_port}")


def run(command: list[str | Path], **env: str) -> str:
    done = subprocess.run(
        command,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_tool_has_a_recipe() -> None:
    tools = {"DuckDB", "Polars", "pandas", "SQLAlchemy", "beeline", "Spark Connect", "Superset"}
    assert set(RECIPES) == tools == set(re.findall(r"^## (.+)$", TEXT, re.M))


@pytest.mark.parametrize("tool", ["DuckDB", "Polars", "pandas", "SQLAlchemy"])
def test_a_library_reads_gold(tool: str, endpoint: LakeSettings, coupons: dict[str, int]) -> None:
    names: dict[str, Any] = {}
    exec(recipe(tool, endpoint), names)  # noqa: S102 - our own document
    assert dict(names["reasons"]) == coupons
    if tool == "SQLAlchemy":
        names["engine"].dispose()  # which a program does when it ends


def test_beeline_reads_gold(endpoint: LakeSettings, coupons: dict[str, int]) -> None:
    tools = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    out = run(["bash", "-euc", recipe("beeline", endpoint)], PATH=tools)
    header, *rows = csv.reader(out.splitlines())
    assert header == ["reason", "count(1)"]
    assert {reason: int(count) for reason, count in rows} == coupons


@pytest.fixture(scope="module")
def reader(shop_lake: ShopLake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeSettings]:
    """An endpoint with roles, and the file of the password of the reader `rita`."""
    settings = asked_by_owner(shop_lake.settings, tmp_path_factory.mktemp("reader"))
    assert settings.sql_password_file
    settings.sql_password_file.write_text(WORD)
    add_user(settings, "rita", WORD, "reader")
    serving = start_endpoint(shop_lake.spark, settings)
    yield settings
    serving.stop()


def test_a_reader_reads_gold_with_the_same_recipes(
    reader: LakeSettings, coupons: dict[str, int]
) -> None:
    names: dict[str, Any] = {}
    login = f"hive://rita:{WORD}@127.0.0.1:{reader.sql_port}/gold?auth=LDAP"
    plain = f'"hive://127.0.0.1:{reader.sql_port}/gold"'
    exec(recipe("SQLAlchemy", reader).replace(plain, repr(login)), names)  # noqa: S102
    assert dict(names["reasons"]) == coupons
    names["engine"].dispose()
    tools = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    login = f"-n rita -w '{reader.sql_password_file}'"
    out = run(["bash", "-euc", recipe("beeline", reader).replace("-n me", login)], PATH=tools)
    _, *rows = csv.reader(out.splitlines())
    assert {reason: int(count) for reason, count in rows} == coupons


def test_spark_connect_serves_the_running_session(
    connect_port: int, endpoint: LakeSettings, coupons: dict[str, int]
) -> None:
    pytest.importorskip("grpc", reason="the Spark Connect client is not installed")
    code = recipe("Spark Connect", endpoint).replace("127.0.0.1:15002", f"127.0.0.1:{connect_port}")
    out = run([sys.executable, "-c", f"{code}\nimport json\nprint(json.dumps(dict(reasons)))"])
    assert json.loads(out.splitlines()[-1]) == coupons


@pytest.mark.skipif(not SHOTS, reason="writes the picture of the docs to TEST_SCREENSHOTS")
def test_picture_of_the_report(gold: BuildResult, endpoint: LakeSettings, tmp_path: Path) -> None:
    now = dt.datetime.now(dt.timezone.utc)
    report = write_report(Lake(endpoint), tmp_path / "report.html", now=now)
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(report.as_uri())
        page.locator(".chart svg").first.wait_for()
        page.screenshot(path=f"{SHOTS}/report.png")
