"""Finds the types of a topic file for Avro types, which Pulsar's schemas of JSON also have."""

import json
from collections.abc import Mapping
from typing import Any

from lake.topics.field_type import field_type

DEEPEST = 8  # objects within one another
AVRO = {
    **{name: name for name in ("boolean", "int", "long", "float", "double", "string")},
    **{"bytes": "binary", "enum": "string", "timestamp-millis": "timestamp_ms", "date": "date"},
}


def definition_of(text: str) -> dict[str, Any]:
    """The content of a schema in the registry; empty if it is no object, as of old JSON clients."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def one_of(declared: Any, known: dict[str, Any]) -> tuple[Any, bool]:
    """What an Avro type is besides null, and whether it cannot be null.

    Names of types in `known` are replaced by their definitions.
    """
    kinds = declared if isinstance(declared, list) else [declared]
    others = [kind for kind in kinds if kind != "null"]
    found = others[0] if len(others) == 1 else " or ".join(map(str, others)) or "null"
    if isinstance(found, str):
        found = known.get(found, found)
    return found, len(others) == len(kinds)


def type_of(declared: Any, known: dict[str, Any], depth: int = 0) -> str | None:
    """The type of an Avro type in a topic file; None if none fits.

    Args:
        declared: the Avro type.
        known: the definitions of named types, by name. Those in `declared` are added.
        depth: how many types it is within.
    """
    kind, _ = one_of(declared, known)
    if depth > DEEPEST:  # a record that contains itself
        return None
    if not isinstance(kind, dict):
        return AVRO.get(str(kind))
    plain = kind.get("logicalType", kind["type"])
    if plain == "decimal":
        return f"decimal({kind['precision']},{kind.get('scale', 0)})"
    if plain == "record":
        known[kind["name"]] = kind
        members = {x["name"]: type_of(x["type"], known, depth + 1) for x in kind["fields"]}
        return struct_of(members)
    if plain in ("array", "map"):
        inner = type_of(kind["items" if plain == "array" else "values"], known, depth + 1)
        return checked(f"{plain}<{'string, ' if plain == 'map' else ''}{inner}>")
    return AVRO.get(str(plain))


def struct_of(members: Mapping[str, str | None]) -> str | None:
    """The type of an object with these members, of those that have a type; None if none fits."""
    found = (f"{name}: {kind}" for name, kind in members.items() if kind)
    return checked(f"struct<{', '.join(found)}>")


def checked(text: str) -> str | None:
    """The type that a text names; None if there is none."""
    try:
        return str(field_type(text))
    except ValueError:
        return None
