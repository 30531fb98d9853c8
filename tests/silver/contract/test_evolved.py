"""Tests which fields of the registry are taken over, and what else may see of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from quiet_lake import append
from registry import record
from topic import declared

from lake.settings.settings import load_settings
from lake.tables.lake import Lake
from lake.topics.topic_file import TopicFile
from pulsar_spark.errors import LakehouseError, SettingsError
from silver.contract.evolved import declared_only, evolved
from silver.contract.tables import PERSONAL, SCHEMAS, enriched_table, state_table
from silver.records.pseudonymize import is_about_people

TOPICS = """
[topics.people]
kind = "changelog"
key = ["id"]
schema = "registry"
evolve = "add"
[topics.people.fields]
id = "long"
town = { type = "string", path = "home.town", required = false }

[topics.visits]
kind = "events"
key = ["id"]
[topics.visits.fields]
id = "long"
person = "long"
[topics.visits.lookups]
visitor = { topic = "people", on = "person" }
"""
HOME = {"type": "record", "name": "Home", "fields": [{"name": "town", "type": "string"}]}
FIRST = record(id="long", shoe=["null", "int"])


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(load_settings(home=tmp_path), declared(tmp_path, TOPICS))


def store(lake: Lake, *definitions: dict[str, Any], topic: str = "people") -> None:
    rows = [
        {"topic": topic, "version": n, "type": "AVRO", "definition": json.dumps(each)}
        for n, each in enumerate(definitions)
    ]
    append(lake, SCHEMAS, rows)


def fields(topics: TopicFile) -> dict[str, str]:
    return {name: spec.type for name, spec in topics.topics["people"].fields.items()}


def test_optional_fields_of_later_versions_are_added(lake: Lake) -> None:
    assert evolved(lake) is lake
    store(lake, FIRST, topic="other")
    rows = [{"topic": "people", "version": 9, "type": "JSON", "definition": "old"}]
    append(lake, SCHEMAS, rows)
    assert evolved(lake) is lake
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    later = {
        **{"email": ["null", "string"], "paid": ["null", decimal], "home": ["null", HOME]},
        **{"must": "string", "tags": ["null", {"type": "array", "items": "string"}]},
    }
    rated = record(id="long", email=["null", "int"])
    rated["fields"].append({"name": "rating", "type": "double", "default": 0.0})
    store(lake, FIRST, record(id="long", shoe=["null", "int"], **later), rated)
    found = evolved(lake)
    assert fields(found.topics) == {
        **{"id": "long", "town": "string", "email": "string", "paid": "decimal(9,2)"},
        **{"tags": "array<string>", "rating": "double"},
    }
    assert evolved(found) is found
    assert fields(declared_only(found.topics)) == {"id": "long", "town": "string"}
    assert fields(lake.topics) == {"id": "long", "town": "string"}


def test_gold_sees_nothing_of_them_until_they_are_declared(lake: Lake, tmp_path: Path) -> None:
    store(lake, FIRST, record(id="long", email=["null", "string"], age=["null", "int"]))
    topics = evolved(lake).topics
    people = state_table(topics.topics["people"])
    assert json.loads(people.properties[PERSONAL]) == {"email": "mask", "age": "null"}
    assert not is_about_people(topics.topics["people"]), "which only a declaration can say"
    visits = enriched_table(topics.topics["visits"], topics)
    assert json.loads(visits.properties[PERSONAL]) == {
        "visitor.email": "leave out",
        "visitor.age": "leave out",
    }
    own = TOPICS.replace("town =", 'email = { type = "string", required = false }\ntown =')
    again = evolved(Lake(lake.settings, declared(tmp_path, own)))
    people = state_table(again.topics.topics["people"])
    assert json.loads(people.properties[PERSONAL]) == {"age": "null"}


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("position", "int", "the column position is taken"),
        ("ID", "int", "the column id is taken"),
        ("_own", "int", "a field cannot have this name"),
        ("mixed", ["null", "int", "string"], "there is no type for its values"),
    ],
)
def test_a_field_that_cannot_be_a_column_is_refused(
    lake: Lake, name: str, kind: Any, says: str
) -> None:
    optional = kind if isinstance(kind, list) else ["null", kind]
    store(lake, FIRST, record(id="long", good=["null", "int"], **{name: optional}))
    with pytest.raises(
        LakehouseError, match=f"Version 1 of the schema of people.*'{name}'.*{says}"
    ):
        evolved(lake, strict=True)
    assert [*fields(evolved(lake).topics)] == ["id", "town", "good"]


@pytest.mark.parametrize(
    ("was", "becomes", "says"),
    [
        ('schema = "registry"\n', "", "only the registry says which fields are new"),
        ("evolve =", "updates = 'partial'\nevolve =", "cannot be combined with 'updates'"),
        ("evolve =", "ignore_null_updates = true\nevolve =", "with 'ignore_null_updates'"),
        ("evolve =", "history = { columns = ['town'] }\nevolve =", "or except of history'"),
        ('"add"', '"all"', ":6: topics.people.evolve"),
    ],
)
def test_a_declaration_that_does_not_fit_is_refused(
    tmp_path: Path, was: str, becomes: str, says: str
) -> None:
    with pytest.raises(SettingsError, match=says):
        declared(tmp_path, TOPICS.replace(was, becomes, 1))
