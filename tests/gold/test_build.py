"""Gold by a real dbt through a real endpoint, compared with plain Python; all runs on one lake."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import gold_model
import polars as pl
import pytest
from deltalake import DeltaTable
from shop_lake import ShopLake

from bronze.settings import LakeSettings
from gold.build import PROJECT, BuildResult, build_gold
from gold.errors import GoldError
from gold.keep import silver_versions
from lakehouse.sql_endpoint import query_endpoint

Rows = list[dict[str, Any]]


def table(lake: ShopLake, name: str) -> Rows:
    found: Rows = DeltaTable(lake.settings.table_path("gold", name)).to_pyarrow_table().to_pylist()
    return found


def ledger(lake: ShopLake) -> dict[tuple[int, int], tuple[int, str]]:
    rows = table(lake, "reward_ledger")
    keyed = {(r["invoice_id"], r["line_item_id"]): (r["points"], r["reason"]) for r in rows}
    assert len(keyed) == len(rows)
    return keyed


def assert_gold_is_right(lake: ShopLake) -> None:
    lines, users = lake.enriched(), lake.current("users").values()
    assert ledger(lake) == gold_model.reward_ledger(lines)
    points = gold_model.reward_points(lines, users)
    assert {r["user_id"]: r["points"] for r in table(lake, "reward_points")} == points
    assert {
        r["user_id"]: (r["is_eligible"], r["reason"], r["points_to_go"])
        for r in table(lake, "coupon_eligibility")
    } == gold_model.coupons(points, users)
    found: dict[int, list[tuple[int, int, int]]] = {}
    for row in sorted(table(lake, "similar_items"), key=lambda r: (r["item_id"], r["rank"])):
        entry = (row["similar_item_id"], row["count_invoices"], row["count_shared_traits"])
        found.setdefault(row["item_id"], []).append(entry)
    assert found == gold_model.similar_items(lines.values(), lake.current("items").values())


def test_the_first_build_makes_and_tests_every_model(
    gold: BuildResult, shop_lake: ShopLake
) -> None:
    models = {"reward_ledger", "reward_points", "coupon_eligibility", "similar_items"}
    assert {node.name for node in gold.models} == models
    assert {node.kind for node in gold.tests} == {"test", "unit_test"}
    assert {node.status for node in gold.models} == {"success"}
    assert {node.status for node in gold.tests} == {"pass"}
    assert_gold_is_right(shop_lake)


def test_later_builds_merge_what_changed_and_a_full_refresh_gives_the_same(
    gold: BuildResult, shop_lake: ShopLake, shop_files: Path, tmp_path: Path
) -> None:
    before, versions = ledger(shop_lake), silver_versions(shop_lake.settings)
    publish_changes(shop_lake, shop_files, tmp_path)
    assert silver_versions(shop_lake.settings) != versions
    build_gold(shop_lake.settings)
    after = ledger(shop_lake)
    assert len(after) == len(before) + 1
    assert sum(after[key] != row for key, row in before.items()) >= 2
    assert_gold_is_right(shop_lake)
    history = DeltaTable(shop_lake.settings.table_path("gold", "reward_ledger")).history()
    assert [entry["operation"] for entry in history][:1] == ["MERGE"]

    bare = subprocess.run(
        [Path(sys.executable).with_name("dbt"), "build", "--select", "reward_ledger"],
        cwd=PROJECT,
        env={
            **os.environ,
            "LAKEHOUSE_SQL_PORT": str(shop_lake.settings.sql_port),
            "DBT_TARGET_PATH": str(tmp_path / "target"),
            "DBT_LOG_PATH": str(tmp_path / "logs"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert bare.returncode == 0, bare.stdout
    assert ledger(shop_lake) == after

    build_gold(shop_lake.settings, select="reward_ledger", full_refresh=True)
    assert ledger(shop_lake) == after


def publish_changes(lake: ShopLake, shop_files: Path, folder: Path) -> None:
    """A user who comes late, a line that is paid now, and a new line."""
    with (shop_files / "orders.csv").open() as lines:
        orders = list(csv.DictReader(lines))
    known = lake.current("users")
    waiting = next(line for line in orders if int(line["user_id"]) not in known)
    paid = next(line for line in orders if line["paid_at"] and int(line["user_id"]) in known)
    unpaid = {**paid, "paid_at": ""}
    new = {**paid, "line_item_id": "99999999", "price": "12.345"}
    write(folder / "orders.csv", [unpaid, new])
    with (shop_files / "users.csv").open() as rows:
        late = {**next(csv.DictReader(rows)), "id": waiting["user_id"], "deleted_at": ""}
    write(folder / "users.csv", [late])
    lake.fill(folder)


def write(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def test_a_test_that_fails_is_named_with_what_it_found(
    gold: BuildResult, endpoint: LakeSettings
) -> None:
    twice = "insert into gold.similar_items select * from gold.similar_items limit 1"
    query_endpoint(endpoint, twice)
    with pytest.raises(GoldError, match="test assert_item_and_rank.*: Got 1 res") as error:
        build_gold(endpoint, select="assert_item_and_rank_are_unique")
    assert "dbt.log" in str(error.value)
    build_gold(endpoint, select="similar_items")


def test_a_selection_without_models_is_refused(endpoint: LakeSettings) -> None:
    with pytest.raises(GoldError, match="'no_such_model' selects no model"):
        build_gold(endpoint, select="no_such_model")


def test_an_absent_endpoint_is_named(endpoint: LakeSettings) -> None:
    nowhere = endpoint.model_copy(update={"sql_port": 1})
    with pytest.raises(GoldError, match="Gold was not built|dbt did not run"):
        build_gold(nowhere, select="reward_ledger")


def test_gold_is_plain_delta_that_every_reader_opens(
    gold: BuildResult, shop_lake: ShopLake
) -> None:
    for name in ("reward_ledger", "reward_points", "coupon_eligibility", "similar_items"):
        path = shop_lake.settings.table_path("gold", name)
        delta = DeltaTable(path)
        assert delta.protocol().min_reader_version == 1, name
        rows = delta.to_pyarrow_table().num_rows
        assert rows > 0
        assert pl.read_delta(path).height == rows
        assert len(delta.to_pandas()) == rows
        dataset = delta.to_pyarrow_dataset()  # noqa: F841 - duckdb finds it by its name
        assert duckdb.sql("select count(*) from dataset").fetchall() == [(rows,)]
    points = pl.read_delta(shop_lake.settings.table_path("gold", "reward_points"))
    total = sum(row["points"] for row in table(shop_lake, "reward_points"))
    assert points["points"].sum() == total


def test_each_model_and_column_is_documented(gold: BuildResult, endpoint: LakeSettings) -> None:
    manifest = json.loads((endpoint.home_dir / "dbt" / "manifest.json").read_text())
    models = [node for node in manifest["nodes"].values() if node["resource_type"] == "model"]
    for model in models:
        assert model["description"], model["name"]
        if model["config"]["materialized"] != "ephemeral":
            built = DeltaTable(endpoint.table_path("gold", model["name"])).schema().fields
            assert {field.name for field in built} == set(model["columns"])
            assert all(column["description"] for column in model["columns"].values())
