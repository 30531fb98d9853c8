"""Tests what is read from dbt's manifest."""

import json
from pathlib import Path
from typing import Any

from gold.dbt.manifest import Manifest
from lake.settings.settings import SHOP_TOPICS
from lake.topics.topic_file import load_topics

COLUMN = {"name": "who", "meta": {}}


def model(name: str, **given: Any) -> dict[str, Any]:
    config = {"materialized": "kept", "schema": given.pop("schema", None)}
    columns = {name: {**COLUMN, **more} for name, more in given.pop("columns", {}).items()}
    plain = {"resource_type": "model", "name": name, "alias": name, "access": "protected"}
    return {**plain, "config": config, "columns": columns, **given}


def manifest(folder: Path, *models: dict[str, Any]) -> Manifest:
    nodes = {f"model.x.{each['name']}": each for each in models}
    (folder / "manifest.json").write_text(json.dumps({"nodes": nodes}))
    return Manifest(folder)


def test_the_marts_are_the_public_tables_or_all_if_none_is_public(tmp_path: Path) -> None:
    view = model("of_all", access="public")
    view["config"]["materialized"] = "view"
    some = manifest(tmp_path, model("stg_x"), model("x", access="public"), view)
    assert [node["name"] for node in some.tables] == ["stg_x", "x"]
    assert [node["name"] for node in some.marts] == ["x"]
    none = manifest(tmp_path, model("stg_x"), model("x"))
    assert [node["name"] for node in none.marts] == ["stg_x", "x"]


def test_people_are_declared_by_the_meta_of_columns_in_both_places(tmp_path: Path) -> None:
    old = {"meta": {"person": "users"}}
    new = {"config": {"meta": {"person": "items"}}}
    found = manifest(tmp_path, model("x", columns={"a": old, "b": new, "c": {}}))
    assert [*found.people()] == [("x", "a", "users"), ("x", "b", "items")]


def test_declarations_that_cannot_be_followed_are_said(tmp_path: Path) -> None:
    wrong = {"config": {"meta": {"person": "custmers"}}}
    models = [model("x", columns={"a": wrong})]
    models += [model(f"in_{n}", schema=s) for n, s in enumerate(("silver", "Marketing", "cut_x"))]
    models += [model("fine", schema="marketing"), model("also_fine", schema="gold")]
    problems = manifest(tmp_path, *models).problems(load_topics(SHOP_TOPICS))
    assert len(problems) == 4
    assert problems[0] == (
        "The column a of the model x declares person: custmers, but the changelogs of the topic "
        "file are users, items."
    )
    assert problems[1].startswith("The model in_0 has the schema 'silver', which the lakehouse or")


def test_without_a_manifest_there_is_nothing(tmp_path: Path) -> None:
    found = Manifest(tmp_path)
    assert (found.tables, found.marts, found.sources, found.exposures) == ([], [], [], [])
