"""Tests the console in a real browser, on a lake that was written without Spark and a broker."""

import datetime as dt
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from browser import SHOTS, chromium
from deltalake import DeltaTable
from playwright.sync_api import Browser, Page, expect
from quiet_lake import UTC, QuietLake
from served_console import PATIENCE_MS, opened, quiet_settings, serving
from tenacity import Retrying, stop_after_delay, wait_fixed

from gold.dbt.process import target_path
from lake.streams.checkpoint import claim
from lake.streams.given_up import note_given_up
from lake.streams.last_errors import note_error
from lake.streams.pause import is_paused, pause
from lakehouse.console.server import console

expect.set_options(timeout=PATIENCE_MS)

EVIL = """<img src=x onerror="alert(1)"><script>alert(2)</script>'"&`{{7*7}}"""
EVIL_TABLE = "x<img src=x onerror=alert(3)>'"  # a folder that somebody has made below gold
UNNAMED = """[...document.querySelectorAll(
    'input:not([type=hidden]), select, button, a, svg[role=img]')].filter(each =>
    !each.closest('label') && !each.getAttribute('aria-label') && !each.textContent.trim()
).map(each => each.outerHTML)"""
MORE_LOOKS = [(390, "dark"), (1280, "light")] if SHOTS else []
PAGES = {
    "flow": "/",
    "freshness": "/freshness",
    "streams": "/streams",
    "quarantine": "/quarantine",
    "tables": "/tables",
    "table": "/tables/silver.users_state",
    "sql": "/sql",
    "live": "/live?source=silver.items_state",
    "timeline": "/timeline",
    "gold": "/gold",
    "system": "/system?settings=all",
    "checks": "/system/checks",
}


def ago(seconds: float) -> dt.datetime:
    return dt.datetime.now(UTC) - dt.timedelta(seconds=seconds)


def model(name: str, reads: list[str], **more: Any) -> dict[str, Any]:
    config = {"materialized": "kept", "schema": None, "unique_key": "account_id"}
    return {
        "name": name,
        "alias": name,
        "unique_id": f"model.shop.{name}",
        "resource_type": "model",
        "config": config,
        "access": "public",
        "columns": {},
        "description": f"The description of {name}",
        "depends_on": {"nodes": reads},
        **more,
    }


def write_manifest(quiet: QuietLake) -> None:
    """Write what dbt would know: a view over users, and two marts."""
    sources = {
        f"source.shop.silver.{name}": {
            "unique_id": f"source.shop.silver.{name}",
            "schema": "cut_gold_build",
            "name": name,
            "relation_name": f"cut_gold_build.{name}",
        }
        for name in ("users_state", "enriched_orders")
    }
    users, orders = sources
    models = [
        model("stg_users", [users], config={"materialized": "view"}),
        model("reward_points", ["model.shop.stg_users", orders]),
        model(
            "sales_by_day",
            [orders],
            compiled_code="select invoice_id as account_id from cut_gold_build.enriched_orders",
        ),
    ]
    test = {"resource_type": "test", "attached_node": "model.shop.reward_points", "name": "unique"}
    nodes = {node["unique_id"]: node for node in models} | {"test.shop.unique": test}
    folder = target_path(quiet.settings)
    folder.mkdir(parents=True)
    manifest = {"nodes": nodes, "sources": sources, "exposures": {}}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def fill(quiet: QuietLake, odd: str = EVIL, mart: str = EVIL_TABLE) -> QuietLake:
    """Write a small lake with something to see on each page, and an odd text in many places."""
    quiet.land("users", [b"{}"] * 12, ago(7))
    quiet.land("items", [b"{}"] * 5, ago(60))
    quiet.land("orders", [b"{}"] * 47, ago(3))
    people = [{"id": n, "first_name": f"Hosna{n}", "is_deleted": n == 0} for n in range(11)]
    quiet.keep("users", people, ago(7))
    quiet.keep("items", [{"id": n, "name": odd} for n in range(5)], ago(60))
    looked_up = {"id": 1, "first_name": "Hosna1"}
    quiet.enrich("orders", [{"invoice_id": n, "user": looked_up} for n in range(40)], ago(9))
    person = b'{"id": "x", "firstName": "Ann", "emailAddress": "a@b.org"}'
    quiet.refuse(
        *[{"topic": "orders", "reason": "payload is not a JSON object", "payload": b"<a>"}] * 3,
        {"topic": "users", "reason": odd, "payload": json.dumps({"id": odd}).encode()},
        {"topic": "users", "reason": "field 'id' is not of type long", "payload": person},
        {"topic": "items", "reason": "r", "payload": odd.encode(), "key": odd},
    )
    quiet.audit(41, ago(60), users=11, items=5, orders=30)
    quiet.audit(42, ago(12), {"orders": 3, "users": 2, "items": 1}, users=1, items=0, orders=10)
    write_manifest(quiet)
    marts = {"reward_points": [{"account_id": 1}], "sales_by_day": [{"revenue": 12.5}]}
    quiet.publish(41, ago(50), **marts, **{mart: [{odd: odd}]})
    for query, batch in (("bronze.users", 9), ("bronze.items", 4), ("bronze.orders", 5)):
        quiet.run(query, batch)
    quiet.run("silver", 42)
    return quiet


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuietLake]:
    """A lake with two streams that run, one that waits for its restart, and one given up."""
    home = tmp_path_factory.mktemp("shop") / ".lakehouse"
    found = fill(QuietLake(quiet_settings(home, console_actions=True)))
    settings = found.settings
    held = [claim(settings, query) for query in ("bronze.orders", "silver", "bronze.items")]
    note_error(settings, "bronze.items", f"No answer. {EVIL}", retry="2 of 5", delay=3600)
    note_error(settings, "bronze.users", "Messages are gone.", retry="", delay=0)
    note_given_up(settings, "bronze.users", "Messages are gone.")
    yield found
    for each in held:
        each.release()


@pytest.fixture(scope="module")
def client(quiet: QuietLake) -> Iterator[httpx.Client]:
    with serving(quiet) as found:
        yield found


@pytest.fixture
def tab(browser: Browser, client: httpx.Client) -> Iterator[Page]:
    """A tab at 1280 pixels, which must report no error and ask no other server."""
    with opened(browser) as (page, errors, requests):
        page.goto(str(client.base_url))
        yield page
        assert errors == []
        assert [url for url in requests if not url.startswith(str(client.base_url))] == []


def go(tab: Page, client: httpx.Client, path: str) -> None:
    tab.goto(str(client.base_url).rstrip("/") + path)


def node(tab: Page, name: str) -> str:
    """Return the text of a node of the flow map."""
    return " ".join(tab.locator(f'[id="node-{name}"]').inner_text().split())


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark"), *MORE_LOOKS])
def test_each_page_fits_the_screen_and_asks_nobody_else(
    browser: Browser, client: httpx.Client, width: int, scheme: str
) -> None:
    with opened(browser, width, scheme) as (page, errors, requests):
        for name, path in PAGES.items():
            go(page, client, path)
            expect(page.locator("h1")).to_be_visible()
            expect(page.locator("#link")).to_have_text("Live")
            root = "document.documentElement"
            assert page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth"), name
            if SHOTS:
                page.screenshot(path=f"{SHOTS}/{name}-{width}-{scheme}.png", full_page=True)
        assert errors == []
        assert {url.split("/")[2] for url in requests} == {f"127.0.0.1:{client.base_url.port}"}


def test_the_map_shows_states_rows_lag_and_what_reads_what(tab: Page) -> None:
    expect(tab.locator("#map .node")).to_have_count(3 + 3 + 3 + 3)
    assert node(tab, "bronze.orders") == "orders running rows 47 0/s lag -"
    assert node(tab, "bronze.items") == "items retrying rows 5 0/s lag -"
    assert node(tab, "bronze.users") == "users given up rows 12 0/s lag -"
    assert node(tab, "silver.users_state") == "users_state running rows 10 0/s lag 0"
    assert node(tab, "silver.enriched_orders") == "enriched_orders running rows 40 0/s lag 7"
    assert node(tab, "gold.reward_points") == "reward_points 1 behind rows 1"
    expect(tab.locator('[id="node-topic.users"]')).to_contain_text("no broker")
    edges = tab.locator(".edges path").evaluate_all("all => all.map(x => Object.values(x.dataset))")
    assert {tuple(edge) for edge in edges} == {
        *((f"topic.{name}", f"bronze.{name}") for name in ("users", "items", "orders")),
        ("bronze.users", "silver.users_state"),
        ("bronze.items", "silver.items_state"),
        ("bronze.orders", "silver.enriched_orders"),
        ("silver.users_state", "silver.enriched_orders"),
        ("silver.items_state", "silver.enriched_orders"),
        ("silver.users_state", "gold.reward_points"),
        ("silver.enriched_orders", "gold.reward_points"),
        ("silver.enriched_orders", "gold.sales_by_day"),
    }
    tiles = " ".join(tab.locator(".tiles").inner_text().split())
    assert "Streams running 2 of 4" in tiles
    assert "no broker answers" in tiles


def test_a_node_lights_up_its_path_when_it_has_the_focus(tab: Page) -> None:
    tab.locator('[id="node-gold.sales_by_day"]').focus()
    lit = tab.locator(".node.lit").evaluate_all("all => all.map(x => x.dataset.node)")
    assert {*lit} == {
        *(f"topic.{name}" for name in ("users", "items", "orders")),
        *(f"bronze.{name}" for name in ("users", "items", "orders")),
        *("silver.users_state", "silver.items_state", "silver.enriched_orders"),
        "gold.sales_by_day",
    }


def test_filters_live_in_the_address(tab: Page, client: httpx.Client) -> None:
    tab.get_by_label("Name").fill("ord")
    expect(tab).to_have_url(re.compile(r"\?q=ord$"))
    expect(tab.locator(".node:visible")).to_have_count(3)
    tab.get_by_label("State").select_option("ok")
    expect(tab.locator(".node:visible")).to_have_count(2)
    tab.reload()
    expect(tab.get_by_label("Name")).to_have_value("ord")
    expect(tab.locator(".node:visible")).to_have_count(2)
    go(tab, client, "/streams?state=given+up")
    expect(tab.locator(".stream h2")).to_have_text(["bronze.users"])
    go(tab, client, "/quarantine?topic=orders")
    expect(tab.locator("tbody tr")).to_have_count(1)
    tab.get_by_label("Topic").select_option("")
    expect(tab.locator("tbody tr")).to_have_count(4)
    go(tab, client, "/tables?layer=silver&sort=rows&q=state")
    expect(tab.locator("tbody tr:visible td:first-child")).to_have_text(
        ["silver.users_state", "silver.items_state"]
    )


def test_open_tabs_follow_the_lake_without_being_loaded_again(
    browser: Browser, quiet: QuietLake, client: httpx.Client
) -> None:
    with opened(browser) as (one, errors, _), opened(browser, 390) as (two, more_errors, _):
        for page in (one, two):
            page.goto(str(client.base_url))
            expect(page.locator("#link")).to_have_text("Live")
            page.evaluate("document.getElementById('main').mark = 1")
        before = int(node(one, "bronze.orders").split()[3])
        quiet.land("orders", [b"{}"] * 20, ago(0))
        for page in (one, two):
            rows = page.locator('[id="node-bronze.orders"] [data-v$="|rows"]')
            expect(rows).to_have_text(str(before + 20))
            assert page.evaluate("document.getElementById('main').mark") == 1
        assert errors + more_errors == []
        assert client.get("/health").json()["pages"] == 2


def test_a_stream_is_paused_and_resumed_by_the_keyboard(
    tab: Page, client: httpx.Client, quiet: QuietLake
) -> None:
    go(tab, client, "/streams")
    tab.get_by_role("button", name="Pause bronze.orders").focus()
    tab.keyboard.press("Enter")
    resume = tab.get_by_role("button", name="Resume bronze.orders")
    expect(resume).to_be_visible()
    assert is_paused(quiet.settings, "bronze.orders")
    expect(tab.locator('[id="bronze.orders"] .state')).to_have_text("paused")
    resume.press("Enter")
    expect(tab.get_by_role("button", name="Pause bronze.orders")).to_be_visible()
    assert not is_paused(quiet.settings, "bronze.orders")


def test_the_last_errors_of_streams_are_shown(tab: Page, client: httpx.Client) -> None:
    go(tab, client, "/streams")
    users = tab.locator('[id="bronze.users"]')
    expect(users.locator(".state")).to_have_text("given up")
    expect(users.locator(".errors .said")).to_have_text("Messages are gone.")
    items = tab.locator('[id="bronze.items"]')
    expect(items).to_contain_text("Restart 2 of 5")
    expect(items.locator(".errors .said")).to_have_text(f"No answer. {EVIL}")


def test_a_stream_that_another_process_pauses_appears_as_paused(
    tab: Page, client: httpx.Client, quiet: QuietLake
) -> None:
    go(tab, client, "/streams")
    expect(tab.locator("#link")).to_have_text("Live")
    pause(quiet.settings, "silver")
    try:
        expect(tab.get_by_role("button", name="Resume silver")).to_be_visible()
    finally:
        (Path(quiet.settings.checkpoint_path("silver")) / "lakehouse.paused").unlink()


def test_payloads_are_shown_with_their_personal_fields_masked(
    tab: Page, client: httpx.Client
) -> None:
    go(tab, client, "/quarantine?topic=users")
    tab.get_by_role("link", name="field 'id' is not of type long").click()
    expect(tab.locator("pre")).to_have_text(
        json.dumps({"id": "x", "firstName": "***", "emailAddress": "***"}, indent=2)
    )
    assert "Ann" not in tab.content()


def test_nothing_in_the_lake_becomes_markup(tab: Page, client: httpx.Client) -> None:
    go(tab, client, "/quarantine")
    tab.get_by_role("link", name=EVIL).click()
    expect(tab.locator("h1")).to_have_text(EVIL)
    expect(tab.locator("pre")).to_have_text(json.dumps({"id": EVIL}, indent=2))
    go(tab, client, "/quarantine/records?topic=items&reason=r")
    expect(tab.locator("pre")).to_have_text(EVIL)
    expect(tab.locator("dd").first).to_have_text(EVIL)
    go(tab, client, "/tables?layer=gold")
    tab.get_by_role("link", name=f"gold.{EVIL_TABLE}").click()
    expect(tab.locator("h1")).to_have_text(f"gold.{EVIL_TABLE}")
    expect(tab.locator(".sample td")).to_have_text(EVIL)
    go(tab, client, "/tables/silver.items_state")
    expect(tab.locator(".sample")).to_contain_text(EVIL)
    go(tab, client, "/")
    expect(tab.locator(f'[id="node-gold.{EVIL_TABLE}"] strong')).to_have_text(EVIL_TABLE)
    for path in ("/streams", "/gold", "/timeline"):
        go(tab, client, path)
    assert tab.locator("main img").count() == 0
    assert tab.locator("main script").count() == 0


def test_a_table_has_columns_sample_versions_and_its_neighbours(
    tab: Page, client: httpx.Client
) -> None:
    go(tab, client, "/tables/silver.users_state")
    expect(tab.locator(".lead")).to_have_text(
        "Latest message per key of users, deleted keys included"
    )
    row = tab.locator("tr", has_text="first_name").first
    expect(row).to_contain_text("string")
    expect(row).to_contain_text("Field firstName of the message")
    expect(row.locator(".tag")).to_have_text("personal")
    lineage = " ".join(tab.locator(".lineage").inner_text().split())
    assert lineage == ("Made from bronze.users Read by gold.reward_points silver.enriched_orders")
    sample = tab.get_by_role("region", name="Sample").locator("tbody tr")
    expect(sample).to_have_count(11)
    expect(sample.first).to_contain_text("***")
    assert "Hosna" not in tab.content()
    versions = tab.get_by_role("region", name="Versions").locator("tbody tr")
    expect(versions.first).to_contain_text("num_added_rows 11")
    go(tab, client, "/tables/silver.enriched_orders")
    assert "Hosna" not in tab.content(), "the looked-up row is masked, too"


def test_gold_shows_models_builds_and_the_snapshot(tab: Page, client: httpx.Client) -> None:
    go(tab, client, "/gold")
    row = tab.locator("#models tr", has_text="reward_points")
    assert " ".join(row.inner_text().split()) == (
        "reward_points The description of reward_points kept by account_id explain reward_points "
        "1 success 1.25"
    )
    expect(tab.get_by_role("region", name="Builds")).to_contain_text("published")
    expect(tab.locator(".lineage")).to_contain_text("sales_by_day version 0")
    tab.get_by_role("link", name="explain sales_by_day").click()
    expect(tab.locator("pre")).to_contain_text("sales_by_day is kept by account_id.")


def test_changes_of_a_table_are_followed_until_the_page_is_closed(
    browser: Browser, client: httpx.Client, quiet: QuietLake
) -> None:
    def following() -> int:
        return int(client.get("/health").json()["following"])

    with opened(browser, 390) as (page, errors, _):
        go(page, client, "/live")
        page.get_by_label("Filter").fill("user.id=7")
        page.get_by_label("Follow", exact=False).first.select_option("silver.enriched_orders")
        expect(page).to_have_url(re.compile(r"source=silver.enriched_orders&q=user.id%3D7"))
        expect(page.locator("#tail-status")).to_have_text("Waiting for the next.")
        assert following() == 1
        rows = [{"invoice_id": n, "user": {"id": n, "first_name": "Bo"}} for n in range(6)]
        ann = {"id": 7, "first_name": "Ann"}
        evil = {"invoice_id": 6, "user": ann, "item": {"name": EVIL}}
        quiet.enrich("orders", [*rows, evil], ago(1))
        line = page.locator("#tail tr")
        expect(line).to_have_count(1)
        expect(line).to_contain_text('"first_name": "***"')
        expect(line).to_contain_text("<img src=x onerror=")
        assert "Ann" not in page.content()
        assert page.locator("main img").count() == 0
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("#tail-status")).to_contain_text("Stopped")
        go(page, client, "/live?source=silver.none")
        expect(page.locator("#tail-status")).to_contain_text("There is no table 'silver.none'.")
        go(page, client, "/live?source=topic.orders")
        expect(page.locator("#tail-status")).to_contain_text("broker")
        go(page, client, "/live?source=silver.users_state")
        expect(page.locator("#tail-status")).to_have_text("Waiting for the next.")
        assert following() == 1
        assert [text for text in errors if "404" not in text] == []
    for attempt in Retrying(stop=stop_after_delay(20), wait=wait_fixed(0.1), reraise=True):
        with attempt:
            assert following() == 0
    assert client.get("/live/events?source=topic.none").status_code == 404


def test_where_no_sql_endpoint_runs_its_page_says_how_to_get_one(
    tab: Page, client: httpx.Client
) -> None:
    go(tab, client, "/tables/gold.reward_points")
    tab.get_by_role("link", name="Query this table").click()
    rows = "select * from gold.reward_points limit 100"
    expect(tab.get_by_label("Statement")).to_have_value(rows)
    go(tab, client, "/tables/silver.items_state")
    expect(tab.get_by_role("link", name="Query this table")).to_have_count(0)
    go(tab, client, "/sql?statement=select+1")
    expect(tab.locator("#obstacle")).to_contain_text("lakehouse up")
    expect(tab.get_by_label("Statement")).to_have_value("select 1")
    expect(tab.get_by_role("button", name="Run")).to_be_disabled()
    refused = client.post("/sql", data={"statement": "select 1"})
    assert refused.status_code == 403  # it lacks the token of a page
    token = tab.locator("[name=csrf]").first.get_attribute("value")
    said = client.post("/sql", data={"statement": "select 1", "csrf": token})
    assert "No SQL endpoint runs" in said.text
    assert client.get("/sql/result.csv?run=x").status_code == 404
    assert "no longer kept" in client.get("/sql?run=x").text


def test_freshness_names_the_slow_stage(tab: Page, client: httpx.Client) -> None:
    go(tab, client, "/freshness")
    expect(tab.locator("main .notice")).to_contain_text("is the slowest stage")
    stages = tab.locator(".card h2").all_inner_texts()
    assert stages == ["Bronze", "Silver", "Gold"]
    expect(tab.locator(".card", has_text="Bronze").first).to_contain_text("unknown")


def test_the_pages_have_names_for_screen_readers(tab: Page, client: httpx.Client) -> None:
    for path in PAGES.values():
        go(tab, client, path)
        assert tab.locator("h1").count() == 1, path
        unnamed = tab.evaluate(UNNAMED)
        assert unnamed == [], path
    go(tab, client, "/")
    tab.keyboard.press("Tab")
    expect(tab.get_by_role("link", name="Skip to the content")).to_be_focused()
    tab.keyboard.press("Enter")
    tab.keyboard.press("Tab")
    expect(tab.locator(".tiles a").first).to_be_focused()


def test_pages_reconnect_to_a_server_that_was_started_again(
    browser: Browser, tmp_path: Path
) -> None:
    quiet = QuietLake(quiet_settings(tmp_path, console_actions=True))
    quiet.land("users", [b"{}"] * 3, ago(5))
    quiet.run("bronze.users", 1)
    with opened(browser) as (page, _, _):
        with serving(quiet) as client:
            go(page, client, "/streams")
            expect(page.locator("#link")).to_have_text("Live")
            old = page.locator("[name=csrf]").first.get_attribute("value")
        expect(page.locator("#link")).to_have_text("Connection lost, trying again")
        with serving(quiet):
            expect(page.locator("#link")).to_have_text("Live")
            expect(page.locator("[name=csrf]").first).not_to_have_value(str(old))
            page.get_by_role("button", name="Pause bronze.users").click()
            expect(page.get_by_role("button", name="Resume bronze.users")).to_be_visible()


def test_an_empty_lake_has_all_pages(browser: Browser, tmp_path: Path) -> None:
    quiet = QuietLake(quiet_settings(tmp_path))
    with serving(quiet) as client, opened(browser) as (page, errors, _):
        for path in PAGES.values():
            if not path.startswith("/tables/"):
                go(page, client, path)
                expect(page.locator("h1")).to_be_visible()
        assert errors == []
        assert client.get("/tables/silver.users_state").status_code == 404


def test_many_tables_and_reasons_are_not_sluggish(browser: Browser, tmp_path: Path) -> None:
    quiet = QuietLake(quiet_settings(tmp_path))
    quiet.refuse(
        *[{"topic": "users", "reason": f"reason {n:04}", "payload": b"{}"} for n in range(1000)]
    )
    quiet.publish(1, ago(5), **{f"mart_{n:03}": [{"id": n}] for n in range(200)})
    with serving(quiet) as client, opened(browser) as (page, errors, _):
        go(page, client, "/")
        expect(page.locator(".node")).to_have_count(3 + 3 + 3 + 200)
        for path in ("/", "/tables", "/quarantine?reason=reason+09"):
            client.get(path)  # the first one loads the template
            begun = time.monotonic()
            assert client.get(path).status_code == 200
            assert time.monotonic() - begun < 1.5, path
        typed = page.evaluate(
            """() => { const box = document.querySelector('[name=q]'), begun = performance.now();
            for (const text of ['m', 'ma', 'mart_01', '']) {
              box.value = text; box.dispatchEvent(new Event('input', {bubbles: true})); }
            return (performance.now() - begun) / 4 }"""
        )
        assert typed < 150, f"{typed:.0f} ms for each key"
        page.get_by_label("Name").fill("mart_01")
        expect(page.locator(".node:visible")).to_have_count(10)
        go(page, client, "/quarantine?reason=REASON+09")
        expect(page.locator(".count")).to_have_text("100 records, 100 reasons")
        expect(page.locator("tbody tr")).to_have_count(50)
        page.get_by_role("link", name="Next").click()
        expect(page.get_by_text("Page 2 of 2")).to_be_visible()
        assert errors == []


def test_the_console_reads_only_what_has_changed(quiet: QuietLake, client: httpx.Client) -> None:
    before = {name: DeltaTable(t.path).version() for name, t in quiet.lake.tables("gold").items()}
    for path in PAGES.values():
        assert client.get(path).status_code == 200, path
    after = {name: DeltaTable(t.path).version() for name, t in quiet.lake.tables("gold").items()}
    assert after == before


def test_a_console_that_only_shows_has_no_actions(tmp_path: Path) -> None:
    quiet = QuietLake(quiet_settings(tmp_path))
    quiet.land("users", [b"{}"], ago(1))
    quiet.refuse({"topic": "users", "reason": "r", "payload": b"{}"})
    with serving(quiet) as client:
        for path in ("/streams", "/quarantine", "/quarantine/records?topic=users&reason=r"):
            page = client.get(path).text
            assert 'method="post"' not in page
            assert "csrf" not in page
        assert client.get("/quarantine/discard").status_code == 403
        refused = client.post("/streams/pause", data={"stream": "silver"})
        assert refused.status_code == 403
        assert "--console-actions" in refused.text
        assert not is_paused(quiet.settings, "silver")


def test_it_ends_soon_although_pages_are_open(browser: Browser, tmp_path: Path) -> None:
    quiet = QuietLake(quiet_settings(tmp_path))
    quiet.land("users", [b"{}"], ago(1))
    with opened(browser) as (page, _, _):
        with console(quiet.lake) as address:
            page.goto(f"{address}/live?source=bronze.users")
            expect(page.locator("#link")).to_have_text("Live")
            expect(page.locator("#tail-status")).to_have_text("Waiting for the next.")
            begun = time.monotonic()
        assert time.monotonic() - begun < 6
        expect(page.locator("#link")).to_have_text("Connection lost, trying again")


@pytest.mark.skipif(not SHOTS, reason="writes the pictures of the docs to TEST_SCREENSHOTS")
def test_pictures_of_the_docs(browser: Browser, tmp_path: Path) -> None:
    home = tmp_path / "shop" / ".lakehouse"
    found = QuietLake(quiet_settings(home, console_actions=True))
    settings = fill(found, "field 'price' is missing", "customers").settings
    held = [claim(settings, query) for query in ("bronze.orders", "silver", "bronze.items")]
    note_error(settings, "bronze.items", "The broker does not answer.", retry="2 of 5", delay=40)
    note_error(settings, "bronze.users", "Messages are gone.", retry="", delay=0)
    note_given_up(settings, "bronze.users", "Messages are gone.")
    with serving(found) as client:
        for name, scheme in (("streams", "dark"), ("quarantine", "light")):
            with opened(browser, 1280, scheme) as (page, _, _):
                page.set_viewport_size({"width": 1280, "height": 680})
                go(page, client, PAGES[name])
                expect(page.locator("#link")).to_have_text("Live")
                page.screenshot(path=f"{SHOTS}/console-{name}.png")
    for each in held:
        each.release()
