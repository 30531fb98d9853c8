"""Tests the sources that are written from the topic file."""

from pathlib import Path

import pytest
import yaml

from gold.dbt.project import DbtProject
from gold.dbt.sources import keep_in_step, sources_yaml, write_sources
from gold.errors import GoldError
from lake.settings.settings import SHOP_TOPICS
from lake.topics.topic_file import TopicFile, load_topics

MORE = """
[topics.prices]
kind = "changelog"
key = ["id"]
history = true
event_time = "since"
[topics.prices.fields]
id = "long"
since = "timestamp_ms"
[views.by_item]
description = "Orders by item. Grain: one item"
key = ["item_id"]
columns = { item_id = "bigint", orders = "bigint" }
sources = { enriched_orders = ["item_id"] }
sql = "SELECT item_id, count(*) AS orders FROM enriched_orders GROUP BY item_id"
"""


@pytest.fixture
def topics() -> TopicFile:
    return load_topics(SHOP_TOPICS)


@pytest.fixture
def more(tmp_path: Path) -> TopicFile:
    (tmp_path / "more.toml").write_text(SHOP_TOPICS.read_text() + MORE)
    return load_topics(tmp_path / "more.toml")


@pytest.fixture
def project(tmp_path: Path) -> DbtProject:
    folder = tmp_path / "dbt"
    (folder / "models" / "staging").mkdir(parents=True)
    (folder / "dbt_project.yml").write_text("name: x\nprofile: y\n")
    return DbtProject(folder)


def test_each_table_that_gold_may_read_is_a_source_with_its_columns(more: TopicFile) -> None:
    [source] = yaml.safe_load(sources_yaml(more))["sources"]
    assert (source["name"], source["schema"]) == ("silver", "cut_{{ target.schema }}")
    tables = {table["name"]: table for table in source["tables"]}
    assert [*tables] == [
        *("users_state", "items_state", "prices_state", "prices_history", "enriched_orders"),
        "by_item",
    ]
    columns = {name: [c["name"] for c in table["columns"]] for name, table in tables.items()}
    assert columns["users_state"][:3] == ["id", "first_name", "last_name"]
    assert {"user", "item_position", "missing_lookups"} <= {*columns["enriched_orders"]}
    assert columns["by_item"] == ["item_id", "orders", "silver_batch"]
    assert tables["by_item"]["config"] == {"freshness": None}  # it has no publish_time
    assert all(c["description"] for table in source["tables"] for c in table["columns"])


def test_the_file_is_written_once_and_then_kept_in_step(
    project: DbtProject, topics: TopicFile, more: TopicFile
) -> None:
    keep_in_step(project, topics)
    file = project.folder / "models" / "staging" / "_silver__sources.yml"
    assert not file.exists(), "a project that has not asked for it keeps its own sources"
    assert write_sources(project, topics) == file
    assert write_sources(project, topics) is None
    moved = file.rename(project.folder / "models" / "sources.yml")
    keep_in_step(project, more)
    assert "prices_history" in moved.read_text()
    assert not file.exists()


def test_sources_of_the_project_itself_are_not_touched(
    project: DbtProject, topics: TopicFile
) -> None:
    own = project.folder / "models" / "own.yml"
    own.write_text("sources: [{name: silver, tables: [{name: users_state}]}]\n")
    with pytest.raises(GoldError, match="own.yml declares the source silver itself"):
        write_sources(project, topics)
    keep_in_step(project, topics)
    assert {*project.folder.rglob("*.yml")} == {project.folder / "dbt_project.yml", own}


def test_a_project_without_a_folder_for_models_is_refused(
    tmp_path: Path, topics: TopicFile
) -> None:
    (tmp_path / "dbt_project.yml").write_text("name: x\nmodel-paths: [sql]\n")
    with pytest.raises(GoldError, match="has no folder for models"):
        write_sources(DbtProject(tmp_path), topics)
