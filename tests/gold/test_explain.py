"""Tests that `lakehouse gold explain` says how the shop's models are kept."""

import pytest

from gold.dbt.results import BuildResult
from gold.errors import GoldError
from gold.explain import explain
from lake.settings.settings import LakeSettings

WHOLE = {"customers", "item_affinity", "user_recommendations"}


def test_all_models_but_three_are_kept(
    gold: BuildResult, endpoint: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {text.split()[0]: text for text in explain(endpoint)}
    assert told.keys() == {node.name for node in gold.models}
    assert {name for name, text in told.items() if "is computed whole" in text} == WHOLE
    assert "window function does not partition by" in told["customers"]
    assert "of the compiled SQL: ntile(5) over" in told["customers"]
    mails = told["thank_you_mails"].splitlines()
    assert mails[0] == "thank_you_mails is kept by invoice_id."
    assert any("stg_users" in x and "looked up in gold_build.int_order_lines" in x for x in mails)

    # The models are compiled now.
    monkeypatch.setattr("gold.explain.run_dbt", lambda *_: (0, endpoint.home_dir))
    with pytest.raises(GoldError, match=r"no kept model 'orders'\. The kept models are coupon_"):
        list(explain(endpoint, "orders"))
