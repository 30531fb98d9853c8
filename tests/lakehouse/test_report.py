"""Tests the report of a small lake: the contents of the page, and that it is self-contained."""

import datetime as dt
import json
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import vl_convert
from browser import chromium
from bs4 import BeautifulSoup
from deltalake import write_deltalake

from gold.dbt.docs import docs_page
from gold.dbt.process import run_dbt, target_path
from lake.settings.settings import LakeSettings, load_settings
from lake.tables.lake import Lake
from lakehouse.report import write_report
from lakehouse.runtime.ports import free_port
from pulsar_spark.errors import LakehouseError, SettingsError

pytestmark = pytest.mark.programs  # dbt, which parses the shop's project
UTC = dt.timezone.utc
NOW = dt.datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
EVIL = "</script><script>alert(1)</script>"
PLACE = {"ledger": 1, "entry": 0, "batch_index": 0, "partition": 0}
DOCS_FROM_PAGE = "../dbt-docs/static_index.html"
Table = list[list[str]]


class Page:
    """A written page as a browser reads it."""

    def __init__(self, path: Path) -> None:
        self.html = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
        self.text = " ".join(self.html.get_text(" ").split())

    def rows(self, title: str) -> Table:
        """Return the rows of the table below a heading."""
        heading = self.html.find("h3", string=title)
        assert heading is not None, title
        cells = [row.find_all("td") for row in heading.parent.select("tbody tr")]
        return [[cell.get_text(" ", strip=True) for cell in row] for row in cells]

    def tiles(self) -> dict[str, str]:
        """Return the key figures in the page's header."""
        return {
            tile.dt.get_text(): tile.dd.get_text()
            for tile in self.html.select(".tiles > div")
            if tile.dt and tile.dd
        }

    def notices(self) -> list[str]:
        """Return the notices about missing data."""
        return [
            " ".join(notice.get_text().split())
            for notice in self.html.select("main section .notice")
        ]

    def specs(self) -> dict[str, Any]:
        """Return the charts by name."""
        element = self.html.find("script", id="specs")
        assert element is not None
        found: dict[str, Any] = json.loads(element.get_text())
        return found

    def drawn(self, chart: str) -> list[dict[str, Any]]:
        """Return the values of a chart."""
        return values(self.specs()[chart])


def values(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the values that a chart is drawn from."""
    [found] = spec["datasets"].values()
    return list(found)


def put(settings: LakeSettings, table: str, *rows: dict[str, Any]) -> None:
    write_deltalake(settings.table_path(*table.split(".")), pa.Table.from_pylist(list(rows)))


def order(invoice: int, day: dt.datetime, item: int | None, user: int | None) -> dict[str, Any]:
    return {
        "invoice_id": invoice,
        "item_id": item,
        "created_at": day,
        "user_position": None if user is None else PLACE,
        "item_position": None if item is None else PLACE,
        "missing_lookups": (user is None) + (item is None),
        "publish_time": NOW - dt.timedelta(minutes=5),
    }


def fill_silver(settings: LakeSettings) -> None:
    named = {1: "fuzzy dongle", 2: "matte dongle", 3: EVIL, 4: "withdrawn"}
    put(
        settings,
        "silver.items_state",
        *(
            {"id": i, "name": name, "is_deleted": i == 4, "publish_time": NOW}
            for i, name in named.items()
        ),
    )
    days = [dt.datetime(2025, month, 3, tzinfo=UTC) for month in (1, 1, 1, 9)]
    orders = [
        order(n, day, n if n < 4 else None, 7 if n < 3 else None) for n, day in enumerate(days, 1)
    ]
    put(settings, "silver.enriched_orders", *orders)
    refused = {"topic": "orders", "status": "open", "publish_time": NOW}
    put(
        settings,
        "silver.quarantine",
        {**refused, "reason": "payload is not a JSON object"},
        {**refused, "reason": "payload is not a JSON object"},
        {**refused, "reason": EVIL, "status": "discarded"},
    )
    put(settings, "silver.cuts", {"silver_batch": 4}, {"silver_batch": 6})


def cut(silver_batch: int, published_at: dt.datetime) -> dict[str, Any]:
    """Return a row of gold.cuts."""
    names = ("versions", "built_versions", "silver_versions")
    maps: dict[str, Any] = {name: {"x": 1} for name in names}
    return {"published_at": published_at, "silver_batch": silver_batch, **maps, "project": ""}


def fill_gold(settings: LakeSettings) -> None:
    put(
        settings,
        "gold.cuts",
        cut(2, NOW - dt.timedelta(days=3)),
        cut(4, NOW - dt.timedelta(hours=2)),
    )
    categories = ["tool", "device", "gadget", "module", "widget", "dongle", "rest", EVIL]
    put(
        settings,
        "gold.sales_by_day",
        *(
            {
                "day": dt.date(2025, month, 3),
                "category": category,
                "count_lines": 10,
                "count_invoices": 5,
                "revenue": Decimal(f"{1000 * (8 - place)}.50"),
            }
            for month in (1, 2, 9)
            for place, category in enumerate(categories)
        ),
    )
    put(settings, "gold.thank_you_mails", {"invoice_id": 1}, {"invoice_id": 2})
    put(
        settings,
        "gold.customers",
        *(
            {
                "account_id": account,
                "revenue": Decimal(revenue),
                "is_repeat": account == 11,
                "segment": segment,
            }
            for account, revenue, segment in (
                (11, "1500.25", "champions"),
                (12, "500.25", "champions"),
                (13, "20.00", "new"),
            )
        ),
    )
    put(
        settings,
        "gold.reward_points",
        *(
            {"account_id": account, "points": points, "tier": tier}
            for account, points, tier in (
                (11, 1234567, "premium"),
                (12, 500, "basic"),
                (13, 20, "basic"),
                (14, 0, "closed"),
            )
        ),
    )
    put(
        settings,
        "gold.coupon_eligibility",
        *(
            {"account_id": account, "is_eligible": reason == "enough points", "reason": reason}
            for account, reason in (
                (11, "enough points"),
                (12, "not enough points"),
                (13, "not enough points"),
            )
        ),
    )
    put(
        settings,
        "gold.similar_items",
        {"item_id": 1, "rank": 2, "similar_item_id": 4, "count_invoices": 5},
        {"item_id": 1, "rank": 1, "similar_item_id": 3, "count_invoices": 9},
    )
    put(
        settings,
        "gold.user_recommendations",
        {"account_id": 12, "rank": 1, "item_id": 1},
        {"account_id": 11, "rank": 2, "item_id": 2},
        {"account_id": 11, "rank": 1, "item_id": 1},
    )
    pair = {"count_invoices": 9, "lift": 3.25}
    put(
        settings,
        "gold.item_affinity",
        {**pair, "item_id": 1, "other_item_id": 2, "confidence": 0.1},
        {**pair, "item_id": 2, "other_item_id": 1, "confidence": 0.425},
        {"item_id": 1, "other_item_id": 3, "count_invoices": 9, "confidence": 0.2, "lift": 8.0},
    )


def report(settings: LakeSettings, out: Path | None = None) -> Page:
    return Page(write_report(Lake(settings), out, now=NOW))


@pytest.fixture(scope="session")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manifest of the shop's dbt project, as dbt writes it."""
    settings = load_settings(home=tmp_path_factory.mktemp("parsed"))
    code, log = run_dbt(settings, target_path(settings), ["parse"], "gold_build")
    assert code == 0, log.read_text()
    return target_path(settings) / "manifest.json"


def with_manifest(settings: LakeSettings, manifest: Path) -> LakeSettings:
    target_path(settings).mkdir(parents=True, exist_ok=True)
    shutil.copy(manifest, target_path(settings))
    return settings


@pytest.fixture
def settings(settings: LakeSettings, manifest: Path) -> LakeSettings:
    """Settings of a lake whose broker is not running, even if the suite's broker is."""
    found = settings.model_copy(update={"pulsar_admin_url": "http://127.0.0.1:1"})
    return with_manifest(found, manifest)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, manifest: Path) -> LakeSettings:
    settings = load_settings(
        home=tmp_path_factory.mktemp("report"),
        pulsar_url=f"pulsar://127.0.0.1:{free_port()}",
        pulsar_admin_url=f"http://127.0.0.1:{free_port()}",
    )
    bronze = {"publish_time": NOW - dt.timedelta(hours=3)}
    put(settings, "bronze.orders", bronze, bronze)
    fill_silver(settings)
    fill_gold(settings)
    docs_page(settings).parent.mkdir()
    docs_page(settings).touch()
    return with_manifest(settings, manifest)


@pytest.fixture(scope="module")
def page(lake: LakeSettings) -> Page:
    return report(lake, lake.home_dir / "reports" / "today.html")


def test_the_page_says_when_it_was_created_and_which_snapshot_it_shows(page: Page) -> None:
    assert "Created 1 March 2026, 12:00:00 UTC." in page.text
    published = "Gold was published 1 March 2026, 10:00:00 UTC from batch 4 of silver."
    assert f"{published} Silver is now at batch 6." in page.text


def test_the_header_and_the_flow_match_the_tables(page: Page) -> None:
    assert page.tiles() == {
        "Revenue": "108,012",
        "Paid invoices": "2",
        "Customers": "3",
        "Repeat customers": "33.3%",
        "Reward points": "1,235,087",
        "Usable coupons": "1",
        "Incomplete order lines": "2",
        "Records in quarantine": "2",
    }
    assert page.rows("Topics")[2] == ["orders", "-"]
    assert page.rows("Bronze")[2] == ["orders", "2"]
    silver = dict(page.rows("Silver"))
    assert (silver["items"], silver["users"], silver["missing_user"]) == ("3", "-", "2")
    assert ["customers", "3"] in page.rows("Gold")
    assert "The newest message is 3 hours old." in page.text
    assert "Published 2 hours ago, 2 batches behind silver." in page.text


def test_each_table_matches_the_lake(page: Page) -> None:
    assert page.rows("Revenue by category")[0] == ["tool", "30", "24,002", "22.2%"]
    assert page.rows("Segments") == [
        ["champions", "2", "2,000", "1,000.25", "50.0%"],
        ["new", "1", "20", "20.00", "0.0%"],
    ]
    assert page.rows("Tiers") == [
        ["premium", "1", "25.0%", "1,234,567", "1,234,567"],
        ["basic", "2", "50.0%", "520", "260"],
        ["closed", "1", "25.0%", "0", "0"],
    ]
    assert page.rows("Coupons") == [
        ["not enough points", "no", "2", "66.7%"],
        ["enough points", "yes", "1", "33.3%"],
    ]
    assert page.rows("Incomplete rows") == [["user", "2"], ["item", "1"]]
    assert page.rows("Refused records, by reason")[0][:4] == [
        *("orders", "payload is not a JSON object", "open", "2")
    ]


def test_items_have_their_current_names(page: Page) -> None:
    assert page.rows("Items shown beside the best sellers") == [
        ["fuzzy dongle #1", "1", f"{EVIL} #3 item #4", "9"]
    ]
    assert page.rows("Items recommended most often") == [
        ["fuzzy dongle #1", "2", "2"],
        ["matte dongle #2", "1", "0"],
    ]
    assert page.rows("Recommended to the best customers") == [
        ["11", "1,500", "fuzzy dongle #1 matte dongle #2"],
        ["12", "500", "fuzzy dongle #1"],
    ]


def test_only_the_stronger_direction_of_a_pair_is_shown(page: Page) -> None:
    assert page.rows("Strongest affinities") == [
        ["fuzzy dongle #1", f"{EVIL} #3", "9", "20.0%", "8.0"],
        ["matte dongle #2", "fuzzy dongle #1", "9", "42.5%", "3.2"],
    ]


def test_charts_have_a_bar_for_each_month_and_no_more_than_seven_colours(page: Page) -> None:
    assert [(bar["start"], bar["value"]) for bar in page.drawn("orders-over-time")] == [
        ("2025-01-01", 3.0),
        ("2025-09-01", 1.0),
    ]
    revenue = [bar for bar in page.drawn("revenue-over-time") if bar["start"] == "2025-02-01"]
    assert [(bar["name"], bar["value"]) for bar in revenue] == [
        ("tool", 8000.5),
        ("device", 7000.5),
        ("gadget", 6000.5),
        ("module", 5000.5),
        ("widget", 4000.5),
        ("dongle", 3000.5),
        ("all others", 3001.0),
    ]
    bars = page.drawn("revenue-by-segment")
    assert [(bar["name"], bar["value"]) for bar in bars] == [("champions", 2000.5), ("new", 20.0)]


def test_every_chart_can_be_drawn(page: Page) -> None:
    places = {element["id"] for element in page.html.select(".chart")}
    assert places == set(page.specs())
    for name, spec in page.specs().items():
        assert "<path" in vl_convert.vegalite_to_svg(json.dumps(spec)), name


@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_the_whole_page_on_a_desktop_and_on_a_phone(
    page: Page, lake: LakeSettings, width: int
) -> None:
    with chromium() as browser:
        shown = browser.new_page(viewport={"width": width, "height": 800})
        said: list[str] = []
        asked: list[str] = []
        shown.on("console", lambda message: said.append(message.text))
        shown.on("pageerror", lambda error: said.append(str(error)))
        shown.on("dialog", lambda dialog: said.append(dialog.message))
        shown.on("request", lambda request: asked.append(request.url))
        shown.goto(lake.home_dir.joinpath("reports", "today.html").as_uri())
        drawn = "n => document.querySelectorAll('.chart svg').length === n"
        shown.wait_for_function(drawn, arg=len(page.specs()))
        assert (said, asked) == ([], [shown.url])
        assert shown.evaluate("document.documentElement.scrollWidth") == width
        for chart in shown.locator(".chart svg").all():
            box = chart.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
            assert min(box["width"], box["height"]) > 50


def test_values_from_the_data_stay_text(page: Page) -> None:
    assert len(page.html.find_all("script")) == 2
    assert page.html.find("script", string="alert(1)") is None
    assert page.text.count(EVIL) >= 3
    assert [EVIL, "30", "3,002", "2.8%"] in page.rows("Revenue by category")


def test_the_page_needs_no_network_and_must_not_use_it(page: Page) -> None:
    links = [
        element[name]
        for element in page.html.find_all(True)
        for name in ("src", "href", "srcset", "data", "action", "poster")
        if name in element.attrs
    ]
    assert links
    assert {link for link in links if not link.startswith("#")} == {DOCS_FROM_PAGE}
    assert page.html.find("link") is None
    [style] = page.html.find_all("style")
    assert "url(" not in style.get_text()
    assert "@import" not in style.get_text()
    policy = page.html.find("meta", attrs={"http-equiv": "Content-Security-Policy"})
    assert policy is not None
    assert str(policy["content"]).startswith("default-src 'none';")


def test_the_link_to_the_docs_is_relative_to_the_page(page: Page, lake: LakeSettings) -> None:
    [link] = page.html.select("#docs a")
    assert link["href"] == DOCS_FROM_PAGE


@pytest.mark.parametrize(
    ("last", "starts"),
    [
        (dt.date(2025, 1, 20), ["2025-01-03", "2025-01-20"]),
        (dt.date(2026, 1, 20), ["2025-01-01", "2026-01-01"]),
        (dt.date(2055, 1, 20), ["2025-01-01", "2055-01-01"]),
    ],
)
def test_bars_cover_a_day_a_month_or_a_year_depending_on_the_span(
    settings: LakeSettings, last: dt.date, starts: list[str]
) -> None:
    sale = {"category": "tool", "count_lines": 1, "revenue": Decimal("1.00")}
    put(
        settings,
        "gold.sales_by_day",
        {**sale, "day": dt.date(2025, 1, 3)},
        {**sale, "day": last},
    )
    assert [bar["start"] for bar in report(settings).drawn("revenue-over-time")] == starts


def test_without_exposures_the_page_shows_what_every_lake_has(lake: LakeSettings) -> None:
    parsed = target_path(lake) / "manifest.json"
    kept = parsed.rename(parsed.with_suffix(".kept"))
    page = Page(write_report(Lake(lake), lake.home_dir / "plain.html", now=NOW))
    kept.rename(parsed)
    assert page.tiles() == {"Records in quarantine": "2"}
    assert page.rows("Incomplete rows") == [["user", "2"], ["item", "1"]]
    assert [part["id"] for part in page.html.select("main section[id]")] == [
        *("flow", "waiting", "docs")
    ]
    assert page.specs() == {}


def test_content_that_cannot_be_shown_is_explained_in_its_place(settings: LakeSettings) -> None:
    put(settings, "gold.reward_points", {"user_id": 1, "points": 3})  # an old schema
    put(settings, "gold.coupon_eligibility", {"is_eligible": True, "reason": "enough points"})
    written = report(settings)
    notices = written.notices()
    assert notices[1] == "gold.sales_by_day is not built yet. Run lakehouse gold --available-now."
    said = {notice.split()[0] for notice in notices}
    assert said >= {"gold.sales_by_day", "silver.enriched_orders", "gold.customers", "Tiers:"}
    assert said >= {"gold.user_recommendations", "gold.item_affinity"}
    assert any("Tiers: the query is refused: Schema error" in notice for notice in notices)
    assert written.rows("Coupons") == [["enough points", "yes", "1", "100.0%"]]
    assert written.tiles()["Revenue"] == "-"
    assert "Gold has not been published yet." in written.text


def test_empty_tables_say_that_they_are_empty(settings: LakeSettings) -> None:
    fill_silver(settings)
    fill_gold(settings)
    for layer in ("silver", "gold"):
        for table in Lake(settings).tables(layer).values():
            table.log().delete()
    written = report(settings)
    assert written.notices()[:2] == [
        "Order lines: no data yet.",
        "Revenue by category: no data yet.",
    ]
    assert written.rows("Strongest affinities") == [["none"]]
    assert written.tiles()["Customers"] == "0"


def test_the_error_for_an_empty_lake_says_what_to_run_first(settings: LakeSettings) -> None:
    with pytest.raises(LakehouseError, match="There are no tables in .*lakehouse demo"):
        report(settings)


def test_a_folder_is_refused_as_the_output_file(settings: LakeSettings, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="is a folder; name a file"):
        report(settings, tmp_path)
