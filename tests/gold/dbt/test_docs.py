"""Tests the docs of the dbt models."""

from gold.dbt.docs import docs_page, write_docs
from gold.dbt.results import BuildResult
from lake.settings.settings import LakeSettings


def test_the_docs_are_one_page_and_need_no_endpoint(
    gold: BuildResult, endpoint: LakeSettings
) -> None:
    page = write_docs(endpoint.model_copy(update={"sql_port": 1}))
    assert page == docs_page(endpoint)
    assert "model.lakehouse.reward_points" in page.read_text()
