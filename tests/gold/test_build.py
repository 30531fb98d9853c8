"""Tests gold, built by real dbt through a real endpoint, against plain Python on one lake."""

import datetime as dt
import json
import shutil
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import duckdb
import polars as pl
import pytest
import yaml
from deltalake import DeltaTable
from gold_changes import Changes, Waited
from gold_checks import assert_gold_is_right, published, versions
from gold_interrupted import Interrupted, Refused
from shop_lake import ShopLake

from gold.build import PASSED, PreparedBuild, build_gold
from gold.dbt.process import target_path
from gold.dbt.project import DbtProject
from gold.dbt.results import BuildResult
from gold.errors import GoldError
from gold.refresh import keep_fresh
from gold.tables import RUNS, GoldSnapshot, last_published
from lake.settings.settings import SHOP_DBT, LakeSettings, load_settings
from lake.tables.lake import Lake
from silver.audit.snapshots import latest_snapshot

REWARDS = ("reward_ledger", "reward_points", "coupon_eligibility", "thank_you_mails")
KEPT = (
    *("reward_ledger", "int_item_pairs", "int_item_neighbours", "user_recommendations"),
    *("sales_by_day", "int_account_totals", "repeat_purchases"),
)


def test_the_first_build_creates_tests_and_publishes_every_mart(
    gold: BuildResult, shop_lake: ShopLake
) -> None:
    settings = shop_lake.settings
    models = {node.name for node in gold.models}
    assert {"stg_orders", "int_order_lines", "reward_ledger", "similar_items"} <= models
    assert {node.kind for node in gold.tests} == {"test"}
    assert {node.status for node in gold.models} == {"success"}
    assert {node.status for node in gold.tests} == {"pass"}
    marts = {name for name in models if not name.startswith(("stg_", "int_"))}
    assert versions(settings).keys() == marts
    assert_gold_is_right(shop_lake)

    cut, silver = last_published(Lake(settings)), latest_snapshot(Lake(settings))
    assert cut is not None
    assert silver is not None
    assert cut == gold.published
    assert (cut.silver_batch, cut.silver_versions) == (silver.silver_batch, silver.versions)
    assert cut.versions == versions(settings)
    runs = Lake(settings).table(RUNS).arrow.rows(["outcome", "kind", "name", "status", "seconds"])
    assert {row["name"] for row in runs if row["kind"] == "model"} == models
    assert {row["outcome"] for row in runs} == {"published"}


def test_tests_of_single_rows_are_constraints(gold: BuildResult, shop_lake: ShopLake) -> None:
    """The shop's YAML, read here on its own, says which tests there are."""
    declared = {}
    for file in (SHOP_DBT / "models").rglob("*.yml"):
        for model in yaml.safe_load(file.read_text()).get("models", ()):
            tests = [t for each in (model, *model["columns"]) for t in each.get("data_tests", ())]
            declared[model["name"]] = sum("relationships" not in test for test in tests)
    assert sum(declared.values()) > 10
    for node in gold.models:
        path = shop_lake.settings.table_path("gold_build", node.name)
        properties = DeltaTable(path).metadata().configuration
        found = [name for name in properties if name.startswith("delta.constraints.")]
        assert len(found) == declared[node.name], node.name


def test_readers_keep_the_published_tables_when_a_test_fails(
    refused: Refused,
) -> None:
    """The next build, in `changes`, gives the same result as without this failure."""
    for said in (str(refused.error), refused.error.in_terminal):
        assert "test assert_nothing_is_sold: Got" in said
        assert "model stg_items: " in said
        assert "violate the new CHECK constraint (`price`" in said
        assert "Readers still see the last published version" in said
    assert "such as {'invoice_id': " in refused.error.in_terminal
    assert "invoice_id" not in str(refused.error)  # it is logged
    assert refused.readable_when_failed == refused.readable
    assert sorted(run["name"] for run in refused.runs) == ["assert_nothing_is_sold", "stg_items"]
    assert {run["outcome"] for run in refused.runs} == {"failed"}
    assert not any("invoice_id" in run["message"] for run in refused.runs)
    assert [event["eventType"] for event in refused.told] == ["FAIL", "FAIL"]
    why = refused.told[0]["run"]["facets"]["errorMessage"]["message"]
    assert "test assert_nothing_is_sold: Got" in why
    assert "model stg_items: [DELTA_NEW_CHECK_CONSTRAINT_VIOLATION]" in why
    assert "invoice_id" not in why  # no rows


def test_later_builds_write_what_differs(changes: Changes, shop_lake: ShopLake) -> None:
    settings = shop_lake.settings
    assert_gold_is_right(shop_lake)
    after = published(settings)
    assert all(after[name] != changes.before[name] for name in REWARDS)
    for name in KEPT:
        built = DeltaTable(settings.table_path("gold_build", name))
        assert not built.history(1)[0]["operation"].startswith("CREATE"), name


def test_models_wait_while_the_others_follow_and_are_computed_when_they_are_due(
    waited: Waited,
) -> None:
    build, rows = waited.waiting
    said = {node.name: str(node.message) for node in build.models}
    waits = {name for name, message in said.items() if message.startswith("WAITS (until 20")}
    assert waits == {"int_customer_scores", "int_recommendations"}
    for name in ("reward_points", "customers", "user_recommendations"):
        assert rows[name] != waited.before[name]
    assert build.due_at is not None
    assert build.published is not None
    assert dt.timedelta() < build.due_at - build.published.published_at < dt.timedelta(minutes=15)

    build, later = waited.due
    said = {node.name: str(node.message) for node in build.models}
    assert all(said[name].startswith("WHOLE") for name in waits)
    assert said["reward_points"] == "UNCHANGED"
    assert build.due_at is None
    assert later["customers"] != rows["customers"]


def test_a_build_without_changes_writes_nothing_and_its_tests_are_known_to_pass(
    changes: Changes, shop_lake: ShopLake
) -> None:
    settings = shop_lake.settings
    before = published(settings), versions(settings)
    again = build_gold(Lake(settings))
    assert {node.message for node in again.models} == {"UNCHANGED"}
    assert {node.status for node in again.tests} == {"pass"}
    assert (published(settings), versions(settings)) == before
    results = json.loads((target_path(settings) / "run_results.json").read_text())["results"]
    said = [r["adapter_response"] for r in results if r["unique_id"].startswith("test.")]
    assert said == [{"_message": "known to pass"}] * len(again.tests)


@pytest.mark.nightly
def test_a_full_refresh_gives_the_same_as_later_builds(
    changes: Changes, shop_lake: ShopLake
) -> None:
    settings = shop_lake.settings
    after = published(settings)
    build_gold(Lake(settings), full_refresh=True)
    assert published(settings) == after
    ledger = DeltaTable(settings.table_path("gold_build", "reward_ledger"))
    assert ledger.history(1)[0]["operation"] == "CREATE OR REPLACE TABLE AS SELECT"


@pytest.mark.nightly
def test_a_killed_or_disturbed_build_publishes_nothing_and_the_next_one_repairs_it(
    interrupted: Interrupted, shop_lake: ShopLake
) -> None:
    assert interrupted.readable_when_killed == interrupted.readable
    assert interrupted.bare.returncode != 0
    assert "belongs to `lakehouse gold`" in interrupted.bare.stdout
    assert "LAKEHOUSE_DBT_SCHEMA=gold_build_" in interrupted.bare.stdout
    assert "gold_build.stg_orders" in interrupted.disturbed
    assert "RESTORE" in interrupted.disturbed
    assert interrupted.readable_when_disturbed == interrupted.readable
    assert_gold_is_right(shop_lake)


@pytest.mark.nightly
def test_plain_dbt_with_its_own_schema_works_beside_a_build(
    interrupted: Interrupted, shop_lake: ShopLake
) -> None:
    assert interrupted.own.returncode == 0, interrupted.own.stdout
    for name in ("stg_users", "int_order_lines"):
        own, built = (
            DeltaTable(shop_lake.settings.table_path(schema, name)).to_pyarrow_table().to_pylist()
            for schema in ("gold_build_ann", "gold_build")
        )
        assert built
        assert sorted(map(str, own)) == sorted(map(str, built))


def test_a_partial_build_also_runs_unit_tests_and_is_not_published(
    gold: BuildResult, endpoint: LakeSettings
) -> None:
    before = last_published(Lake(endpoint))
    part = build_gold(Lake(endpoint), select="stg_orders int_order_lines")
    assert [node.name for node in part.models] == ["stg_orders", "int_order_lines"]
    assert {node.name for node in part.tests if node.kind == "unit_test"} == {"int_order_lines"}
    assert {node.status for node in part.tests} == {"pass"}
    assert part.published is None
    assert last_published(Lake(endpoint)) == before


@pytest.mark.nightly
def test_every_unit_test_passes(gold: BuildResult, endpoint: LakeSettings) -> None:
    part = build_gold(Lake(endpoint), select="*")
    of_rules = [node for node in part.tests if node.kind == "unit_test"]
    assert {node.name for node in of_rules} >= {"int_purchases", "customers", "reward_ledger"}
    assert {node.status for node in of_rules} == {"pass"}
    assert len(of_rules) == 16


def test_results_without_a_model_are_refused(tmp_path: Path) -> None:
    """They are those of dbt for a selection of nothing, for which dbt has no error."""
    settings = load_settings(home=tmp_path, dbt_project=SHOP_DBT)
    results = tmp_path / "run_results.json"
    hook = {"unique_id": "operation.lakehouse.hook", "status": "success", "message": None}

    class Ended:
        def run(self, *_: Any) -> int:
            results.write_text(json.dumps({"results": [{**hook, "execution_time": 1}]}))
            return 0

    dbt = DbtProject.of(settings)
    process: Any = Ended()
    log = tmp_path / "dbt.log"
    build = PreparedBuild(Lake(settings), dbt, "id", process, tmp_path, log, "nothing", False)
    with pytest.raises(GoldError, match="'nothing' selects no model"):
        build._run_dbt([], results, {})  # noqa: SLF001 - what precedes it needs an endpoint


class NoDbt:
    """A waiting dbt that ends without results, and notes what it was told."""

    told: Any = None

    def run(self, _: list[str], variables: dict[str, str]) -> int:
        self.told = variables
        return 2


def test_tests_that_change_while_dbt_waits_are_not_known_to_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    shutil.copytree(SHOP_DBT, project, ignore=shutil.ignore_patterns("target", "logs"))
    settings = load_settings(home=tmp_path / "home", dbt_project=project)
    lake, target = Lake(settings), tmp_path / "target"
    target.mkdir()
    at = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
    before = GoldSnapshot(at, 1, {}, {}, {}, "p")
    monkeypatch.setattr("gold.build.has_snapshot", lambda _: True)
    monkeypatch.setattr("gold.build.last_published", lambda _: before)
    monkeypatch.setattr("gold.build.endpoint_running", lambda _: True)
    monkeypatch.setattr("gold.build.protection", lambda _: {})
    log = tmp_path / "dbt.log"
    log.touch()

    def are_known() -> bool:
        process: Any = NoDbt()
        dbt = DbtProject.of(settings)
        build = PreparedBuild(lake, dbt, "id", process, target, log, None, full_refresh=False)
        with pytest.raises(GoldError, match="dbt did not run"):
            build.run()
        return bool(process.told["LAKEHOUSE_TESTS_KNOWN"] == "true")

    assert not are_known()
    passed = f"{at.isoformat()} {DbtProject.of(settings).checksum_of_tests()}"
    (target / PASSED).write_text(passed)
    assert are_known()
    before = replace(before, published_at=at + dt.timedelta(seconds=1))
    assert not are_known(), "other tables may not have passed them"
    before = replace(before, published_at=at)
    (project / "tests" / "new.sql").write_text("select 1")
    assert not are_known()


@pytest.mark.nightly
def test_a_selection_without_models_is_refused(endpoint: LakeSettings) -> None:
    with pytest.raises(GoldError, match="'no_such_model' selects no model"):
        build_gold(Lake(endpoint), select="no_such_model")


def test_a_missing_endpoint_is_reported(endpoint: LakeSettings) -> None:
    nowhere = endpoint.model_copy(update={"sql_port": 1})
    with pytest.raises(GoldError, match=r"no SQL endpoint answers at 127\.0\.0\.1:1\."):
        build_gold(Lake(nowhere), select="reward_ledger")


def test_refreshing_gold_ends_before_a_build_if_the_endpoint_must_change(
    gold: BuildResult, endpoint: LakeSettings
) -> None:
    before = last_published(Lake(endpoint))
    assert list(keep_fresh(Lake(endpoint), Event(), leave=lambda: True)) == []
    assert last_published(Lake(endpoint)) == before


def test_gold_is_plain_delta_that_every_reader_can_open(
    gold: BuildResult, shop_lake: ShopLake
) -> None:
    for name in versions(shop_lake.settings):
        path = shop_lake.settings.table_path("gold", name)
        delta = DeltaTable(path)
        assert delta.protocol().min_reader_version == 1, name
        rows = delta.to_pyarrow_table().num_rows
        assert rows > 0
        assert pl.read_delta(delta, use_pyarrow=True).height == rows
        assert len(delta.to_pandas()) == rows
        dataset = delta.to_pyarrow_dataset()  # noqa: F841 - duckdb finds it by its name
        assert duckdb.sql("select count(*) from dataset").fetchall() == [(rows,)]
    of_points = DeltaTable(shop_lake.settings.table_path("gold", "reward_points"))
    points = pl.read_delta(of_points, use_pyarrow=True)  # Polars finds no path with a space
    total = sum(row["points"] for row in shop_lake.mart("reward_points"))
    assert points["points"].sum() == total


def test_each_model_and_column_is_documented(gold: BuildResult, endpoint: LakeSettings) -> None:
    manifest = json.loads((endpoint.home_dir / "dbt" / "manifest.json").read_text())
    models = [node for node in manifest["nodes"].values() if node["resource_type"] == "model"]
    for model in models:
        assert model["description"], model["name"]
        built = DeltaTable(endpoint.table_path("gold_build", model["name"])).schema().fields
        assert [field.name for field in built] == list(model["columns"]), model["name"]
        assert all(column["description"] for column in model["columns"].values()), model["name"]
