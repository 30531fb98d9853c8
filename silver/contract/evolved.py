"""Adds fields of the registry's schema to topics that take over new ones (`evolve = "add"`).

Which fields are new follows from the schema versions in `silver.schemas`: optional ones that the
first version of a topic's schema does not have, and that the topic file does not declare. All
processes, rebuilds and restored lakes therefore find the same ones, and nothing else is stored.

Nobody has said yet whether a new field is personal. It is therefore treated as one that is, and
that gold must not see: gold gets `***` or NULL, and `lakehouse forget` erases it. Declaring the
field in the topic file replaces this.
"""

from collections.abc import Iterator
from typing import Any

from lake.tables.lake import Lake
from lake.topics.field_spec import FieldSpec
from lake.topics.field_type import NAME
from lake.topics.topic import ORDERS, OWN_COLUMNS, Topic, hash_column, snake_case
from lake.topics.topic_file import TopicFile
from pulsar_spark.errors import LakehouseError
from silver.contract.avro import definition_of, one_of, type_of
from silver.contract.tables import SCHEMAS

RECORDS = ("AVRO", "JSON")


class AddedField(FieldSpec):
    """A field that the topic file does not declare."""


def evolved(lake: Lake, *, strict: bool = False) -> Lake:
    """The lake with the fields that its topics have taken over.

    Called when silver starts, and wherever the topic file is read.

    Args:
        lake: the lake. Fields that it has already stay as they are.
        strict: whether to raise an error for a new field that cannot be a column. Otherwise it is
            left out.

    Raises:
        LakehouseError: a new field cannot be a column.
    """
    topics = lake.topics
    if not any(topic.evolve for topic in topics.topics.values()):
        return lake
    if not (table := lake.table(SCHEMAS)).exists():
        return lake
    stored = table.arrow.rows(["topic", "version", "type", "definition"])
    stored.sort(key=lambda row: (row["topic"], row["version"]))
    found = dict(topics.topics)
    for topic in topics.topics.values():
        if topic.evolve:
            mine = [row for row in stored if _is_of(row["topic"], topic, lake)]
            if added := dict(_added(topic, mine, strict=strict)):
                fields = {**topic.fields, **added}
                found[topic.name] = topic.model_copy(update={"fields": fields})
    if found == topics.topics:
        return lake
    return lake.declaring(topics.replacing(found))


def declared_only(topics: TopicFile) -> TopicFile:
    """The topics without the fields that were taken over."""
    found = {}
    for name, topic in topics.topics.items():
        fields = {n: spec for n, spec in topic.fields.items() if not isinstance(spec, AddedField)}
        found[name] = topic.model_copy(update={"fields": fields})
    return topics.replacing(found)


def _is_of(source: str, topic: Topic, lake: Lake) -> bool:
    """Whether schemas stored under a name are those of a declared topic; see `SchemaRegistry`."""
    if not topic.has_several:
        return source == topic.name
    return lake.address(topic.name).holds(source)


def _added(
    topic: Topic, stored: list[dict[str, Any]], *, strict: bool
) -> Iterator[tuple[str, FieldSpec]]:
    """The new fields of a topic, each as it was when it first was optional."""
    declared = {topic.place(name)[0] for name in topic.payload_fields}
    first: dict[str, set[str]] = {}  # the fields of the first version, by topic on the broker
    columns = {snake_case(name) for name in topic.fields} | {*OWN_COLUMNS, ORDERS, *topic.lookups}
    columns |= {hash_column(name) for name in topic.hashed}
    for row in stored:
        if row["type"] not in RECORDS:
            continue
        listed = definition_of(row["definition"]).get("fields") or []
        fields = [each for each in listed if {"name", "type"} <= each.keys()]
        known = first.setdefault(row["topic"], {each["name"] for each in fields})
        named: dict[str, Any] = {}
        for each in fields:
            name, (_, is_required) = each["name"], one_of(each["type"], named)
            kind = type_of(each["type"], named)
            if name in known or name in declared or (is_required and "default" not in each):
                continue
            problem = _problem(name, kind, columns)
            if problem is None:
                declared.add(name)
                columns.add(snake_case(name))
                yield name, AddedField(type=str(kind), required=False, personal="mask")
            elif strict:
                message = (
                    f"Version {row['version']} of the schema of {row['topic']} adds the field "
                    f"'{name}', which topic '{topic.name}' should take over (evolve = 'add'), but "
                    f"{problem}. Declare the field in the topic file, under another name with "
                    f"path = '{name}', or remove 'evolve'."
                )
                raise LakehouseError(message)


def _problem(name: str, kind: str | None, columns: set[str]) -> str | None:
    """Why a field cannot be a column; None if it can."""
    if kind is None:
        return "there is no type for its values"
    if not NAME.fullmatch(name):
        return "a field cannot have this name"
    if snake_case(name) in columns:
        return f"the column {snake_case(name)} is taken"
    return None
