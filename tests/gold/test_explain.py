"""Tests that `lakehouse gold explain` says how the shop's models are kept."""

import datetime as dt
import json
from pathlib import Path

import pytest
from quiet_lake import UTC, QuietLake

from gold.dbt.manifest import Manifest
from gold.dbt.results import BuildResult
from gold.errors import GoldError
from gold.explain import explain, explain_built
from lake.settings.settings import LakeSettings, load_settings
from lake.tables.lake import Lake

WHOLE = {"int_customer_scores", "item_affinity", "int_recommendations"}


def test_all_models_but_three_are_kept(
    gold: BuildResult, endpoint: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {text.split()[0]: text for text in explain(endpoint)}
    assert told.keys() == {node.name for node in gold.models}
    assert {name for name, text in told.items() if "is computed whole" in text} == WHOLE
    assert "window function does not partition by" in told["int_customer_scores"]
    assert "of the compiled SQL: ntile(5) over" in told["int_customer_scores"]
    waits = {name for name, text in told.items() if "It waits 15 minutes after each time." in text}
    assert waits == WHOLE
    mails = told["thank_you_mails"].splitlines()
    assert mails[0] == "thank_you_mails is kept by invoice_id."
    compiled = Manifest(endpoint.home_dir / "dbt-explain")
    assert {name: explain_built(Lake(endpoint), compiled, name) for name in told} == told
    assert any("stg_users" in x and "looked up in gold_build.int_order_lines" in x for x in mails)

    # The models are compiled now.
    monkeypatch.setattr("gold.explain.run_dbt", lambda *_: (0, endpoint.home_dir))
    with pytest.raises(GoldError, match=r"no kept model 'orders'\. The kept models are coupon_"):
        list(explain(endpoint, "orders"))


def test_a_model_is_explained_from_the_last_build_and_the_logs_of_tables(tmp_path: Path) -> None:
    quiet = QuietLake(load_settings(home=tmp_path))
    quiet.keep("users", [{"id": 1}], dt.datetime(2026, 1, 1, tzinfo=UTC))
    reads, name = "source.p.silver.users_state", "cut_gold_build.users_state"
    node = {
        **{"name": "points", "unique_id": "model.p.points", "resource_type": "model"},
        **{
            "config": {"materialized": "kept", "unique_key": "id"},
            "depends_on": {"nodes": [reads]},
        },
    }
    built = {**node, "name": "built", "unique_id": "b", "compiled_code": f"select id from {name}"}
    sources = {reads: {"unique_id": reads, "relation_name": name}}
    nodes = {"p": node, "b": built}
    (tmp_path / "manifest.json").write_text(json.dumps({"nodes": nodes, "sources": sources}))
    manifest = Manifest(tmp_path)
    assert explain_built(quiet.lake, manifest, "built").splitlines() == [
        "built is kept by id.",
        f"  {name} (line 1): the keys of the changed rows",
    ]
    for model, says in (("points", "has not been built yet"), ("x", "no kept model 'x'")):
        with pytest.raises(GoldError, match=says):
            explain_built(quiet.lake, manifest, model)
