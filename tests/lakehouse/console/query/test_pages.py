"""Tests the SQL page in a real browser, with what Spark says about the generated shop.

`tests/lakehouse/console/test_app.py` looks at the page where no statement can run.
"""

import csv
from urllib.parse import parse_qs, urlsplit

import httpx
from browser import chromium
from playwright.sync_api import expect
from served_console import opened
from shop_lake import ShopLake

from gold.dbt.results import BuildResult
from lakehouse.console.server import console
from lakehouse.runtime.ports import free_port
from lakehouse.sql.reader import OFFER, Reader

EVIL = """<img src=x onerror="alert(1)">&{{7*7}}"""
SLOW = "select count(*) from range(100000) a join range(100000) b on a.id + b.id > 3"


def test_statements_run_from_the_page_as_a_reader(shop_lake: ShopLake, gold: BuildResult) -> None:
    settings = shop_lake.settings.model_copy(update={"console_port": free_port()})
    reader = Reader(shop_lake.spark, settings)
    lake = type(shop_lake.lake)(settings)
    with (
        OFFER.of(reader),
        console(lake) as address,
        httpx.Client(base_url=address) as client,
        chromium() as browser,
        opened(browser) as (page, errors, _),
    ):
        statement = f"select '{EVIL}' as `{EVIL}`, cast(null as int) as n"
        page.goto(f"{address}/sql")
        page.get_by_label("Statement").fill(statement)
        page.get_by_label("Statement").press("Control+Enter")
        cells = page.locator("#result td")
        expect(cells).to_have_text([EVIL, "null"])
        expect(page.locator("#result th").first).to_have_text(EVIL)
        assert page.locator("#result img").count() == 0
        asked = parse_qs(urlsplit(page.url).query)
        assert asked["statement"] == [statement]
        with page.expect_download() as download:
            page.get_by_role("link", name="Download as CSV").click()
        rows = [*csv.reader(download.value.path().read_text().splitlines())]
        assert rows == [[EVIL, "n"], [EVIL, ""]]

        page.goto(f"{address}/sql?statement=select+1")  # a link fills in the form, and runs nothing
        expect(page.get_by_label("Statement")).to_have_value("select 1")
        expect(page.locator("#result")).to_have_text("")

        page.get_by_label("Statement").fill("select *\nfrom silver.users_state")
        page.get_by_role("button", name="Run").click()
        expect(page.locator("#result")).to_contain_text("may not read silver.users_state")
        page.get_by_label("Statement").fill("select *\nfrom gold.reward_points where nothing > 1")
        page.get_by_role("button", name="Run").click()
        expect(page.locator("#result strong")).to_have_text("Line 2, column 31")

        page.get_by_label("Statement").fill(SLOW)
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_text("Running, begun")).to_be_visible()
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("#result")).to_contain_text("The statement was cancelled.")
        assert errors == []
        assert client.get("/health").status_code == 200
