"""The rows that nested JSON payloads have, in plain Python. Shares no code with the product.

docs/topic-files.md, "Nested fields", describes the rules.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from types_model import Constant, RefusedError, _number, value_of


class Declared(NamedTuple):
    """A field: its type as a nested tuple, and the names that lead to it.

    A type is a text for a scalar, ("array", type), ("map", type) or ("struct", {name: type}).
    """

    kind: Any
    path: tuple[str, ...]
    is_required: bool = False


class Object(list[tuple[str, Any]]):
    """A JSON object with all its members, even if a name is there twice."""


def read_object(text: str) -> Object:
    """Parse a JSON object.

    Raises:
        RefusedError: the text is not one JSON object.
    """
    try:
        value = json.loads(
            text,
            parse_int=_number,
            parse_float=_number,
            parse_constant=Constant,
            object_pairs_hook=Object,
        )
    except (ValueError, RecursionError) as error:
        raise RefusedError(text) from error
    if not isinstance(value, Object):
        raise RefusedError(text)
    return value


def row_of(fields: Mapping[str, Declared], text: str) -> dict[str, Any]:
    """Return the values of all fields.

    Raises:
        RefusedError: silver must put the message into quarantine.
    """
    payload = read_object(text)
    row = {name: _at(payload, each.path, each.kind) for name, each in fields.items()}
    for name, each in fields.items():
        if each.is_required and row[name] is None:
            raise RefusedError(name)
    return row


def _at(value: Any, path: tuple[str, ...], kind: Any) -> Any:
    if not path:
        return nested_value(kind, value)
    if value is None:
        return None
    if not isinstance(value, Object):
        raise RefusedError(value)
    # Every member of the name must fit, but the last one counts.
    found = [_at(inner, path[1:], kind) for name, inner in value if name == path[0]]
    return found[-1] if found else None


def nested_value(kind: Any, value: Any) -> Any:
    """Return the value of a column, as PyArrow gives it: maps as lists of pairs.

    Raises:
        RefusedError: the type does not accept the value.
    """
    if isinstance(kind, str):
        return value_of(kind, value)
    if value is None:
        return None
    form, inner = kind
    if form == "array":
        if not isinstance(value, list) or isinstance(value, Object):
            raise RefusedError(value)
        return [nested_value(inner, each) for each in value]
    if not isinstance(value, Object):
        raise RefusedError(value)
    if form == "map":
        found = [(value_of("string", name), nested_value(inner, each)) for name, each in value]
        if len({name for name, _ in found}) < len(found):
            raise RefusedError(value)
        return found
    members = {name: _at(value, (name,), each) for name, each in inner.items()}
    return {snake(name): each for name, each in members.items()}


def snake(name: str) -> str:
    """Return the column of a member: `lineNumber` is `line_number`."""
    return "".join(f"_{c.lower()}" if c.isupper() and n else c for n, c in enumerate(name))


def ddl(kind: Any) -> str:
    """Return a type as a topic file writes it."""
    if isinstance(kind, str):
        return kind
    form, inner = kind
    if form == "struct":
        return f"struct<{', '.join(f'{name}: {ddl(each)}' for name, each in inner.items())}>"
    return f"array<{ddl(inner)}>" if form == "array" else f"map<string, {ddl(inner)}>"
