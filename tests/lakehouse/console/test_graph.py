"""Tests which tables are made from which."""

import json
from pathlib import Path

from topic import declared

from gold.dbt.manifest import Manifest
from lake.settings.settings import load_settings
from lake.tables.lake import Lake
from lakehouse.console.graph import Node, flow_graph

TOPICS = """
[topics.people]
kind = "changelog"
key = ["id"]
event_time = "at"
history = true
[topics.people.fields]
id = "long"
at = "timestamp"
[topics.visits]
kind = "events"
key = ["id"]
event_time = "at"
[topics.visits.fields]
id = "long"
person = "long"
at = "timestamp"
[topics.visits.lookups]
who = { topic = "people", on = "person" }
then = { topic = "people", on = "person", mode = "as_of" }
[views.regulars]
description = "Visits by person"
key = ["person"]
columns = { person = "bigint", visits = "bigint" }
sql = "select person, count(*) as visits from enriched_visits group by person"
[publish.regulars]
from = "silver.regulars"
key = ["person"]
"""


def test_the_graph_follows_topics_lookups_views_models_and_sinks(tmp_path: Path) -> None:
    lake = Lake(load_settings(home=tmp_path), declared(tmp_path, TOPICS))
    config = {"materialized": "kept"}
    model = {"resource_type": "model", "config": config, "access": "public", "columns": {}}
    source = {"unique_id": "source.p.silver.v", "schema": "cut_gold_build", "name": "regulars"}
    hidden = {
        "name": "mid",
        "unique_id": "model.p.mid",
        "depends_on": {"nodes": [source["unique_id"]]},
    }
    mart = {"name": "top", "unique_id": "model.p.top", "depends_on": {"nodes": ["model.p.mid"]}}
    other = {
        **{"name": "best", "unique_id": "model.p.best", "depends_on": {"nodes": ["model.p.top"]}},
        "config": {**config, "schema": "bi"},
    }
    nodes = {each["unique_id"]: {**model, **each} for each in (hidden, mart, other)}
    sources = {source["unique_id"]: source}
    (tmp_path / "manifest.json").write_text(json.dumps({"nodes": nodes, "sources": sources}))
    graph = flow_graph(lake, Manifest(tmp_path), ["gold.top", "bi.best", "gold.unknown"])
    assert graph.edges == {
        ("topic.people", "bronze.people"),
        ("topic.visits", "bronze.visits"),
        ("bronze.people", "silver.people_state"),
        ("bronze.people", "silver.people_history"),
        ("bronze.visits", "silver.enriched_visits"),
        ("silver.people_state", "silver.enriched_visits"),
        ("silver.people_history", "silver.enriched_visits"),
        ("silver.enriched_visits", "silver.regulars"),
        ("silver.regulars", "gold.top"),
        ("gold.top", "bi.best"),
        ("silver.regulars", "publish.regulars"),
    }
    assert graph.nodes["silver.regulars"] == Node("silver.regulars", "silver", "silver")
    assert [node.name for node in graph.sources("gold.top")] == ["silver.regulars"]
    assert [node.name for node in graph.readers("silver.regulars")] == [
        "gold.top",
        "publish.regulars",
    ]
    assert graph.nodes["bi.best"].label == "bi.best"
    assert graph.nodes["gold.top"].label == "top"
    assert graph.nodes["publish.regulars"].label == "publish.regulars"


def test_a_lake_without_models_has_a_graph(tmp_path: Path) -> None:
    graph = flow_graph(Lake(load_settings(home=tmp_path)), Manifest(tmp_path), [])
    assert {node.stage for node in graph.nodes.values()} == {"topic", "bronze", "silver"}
