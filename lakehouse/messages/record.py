"""Checks a message against the declaration of its topic, as silver will, before it is sent.

Used by `lakehouse produce`. The text is sent as it was given, so that numbers keep their digits.
"""

import difflib
import re
from collections.abc import Mapping
from typing import Any

from lake.topics.field_type import FieldType
from lake.topics.nested import Place, Tree, leaves, shown
from lake.topics.topic import ELEMENTS, Rule, Topic
from lakehouse.messages.encode import NO_PROPERTIES, Encoded, carried, is_unicode, key_fields
from lakehouse.messages.json_types import Number, accepts_key, milliseconds, misfit, read_object
from pulsar_spark.errors import LakehouseError

RAW = "Correct it, or send it unchecked with --raw."
PLAIN = re.compile(r"\w+", re.ASCII)  # names that must not have escapes
SIDES = {"c": "after", "u": "after", "r": "after", "d": "before"}  # by op of the envelope


class RecordError(LakehouseError):
    """A message does not fit its topic. Silver would put it into quarantine."""


def checked(
    topic: Topic,
    text: str,
    key: str | None = None,
    properties: Mapping[str, str] = NO_PROPERTIES,
) -> Encoded:
    """Check a JSON text, and make it a message of its topic.

    Args:
        topic: the topic.
        text: a JSON object: a row or, if the topic has an envelope, the envelope.
        key: the message key. None: it is computed from the fields that the topic declares.
        properties: the properties of the message.

    Raises:
        RecordError: the topic does not have JSON without a schema; the text is not a JSON object; a
            field is unknown, missing or of another type; or a field of the key has no value.
    """
    if topic.format != "json":
        what = f"{topic.name} is declared with schema = '{topic.format}', and a JSON text has none."
        raise RecordError(what, "Send the bytes of the payload with --raw and --key.")
    try:
        message = read_object(text)
        op, row = _row(topic, message)
    except ValueError as error:
        raise _error(topic, f"the message {error}") from error
    declared, topic = topic, topic.whole
    _check_names(topic, row, text)
    values = {
        name: _at(topic, message if spec.path else row, topic.place(name))
        for name, spec in topic.payload_fields.items()
    }
    for name, value in values.items():
        label = shown(topic.place(name)) if name == ELEMENTS else name
        odd = misfit(topic.fields[name].kind, value, label)
        if odd and not _is_absent(topic, name, value):
            place, part = odd
            where = "" if place == label else f", because {place} is {_shown(part)}"
            kind = topic.fields[name].type
            what = f"field '{label}' is {_shown(value)}, which is not of type {kind}{where}"
            raise _error(topic, what)
    for name, spec in topic.message_fields.items():
        sent = spec.message_property
        if sent and spec.required and sent not in properties:
            what = f"{topic.name}: the message has no property '{sent}', which is field '{name}'."
            raise RecordError(what, f"Add --property {sent}=VALUE.")
    _check_elements(declared, values.get(ELEMENTS) or [])
    missing = [name for name in _needed(topic, op, row) if values.get(name) is None]
    if missing:
        raise _error(topic, f"{_fields(missing)} missing or null, but required")
    found = _key(topic, values, op) if key is None else key
    return Encoded(found, _event_time(topic, values), text.encode(), properties)


def tombstone(topic: Topic, key: str) -> Encoded:
    """A message without payload, which deletes a key of a changelog.

    Raises:
        RecordError: the topic has no tombstones, or the key is not one of its keys.
    """
    why = None
    if topic.kind == "events":
        why = "it has events, which are all kept"
    elif topic.delete == "never":
        why = "it is declared with delete = 'never'"
    elif topic.sequence and not topic.envelope:
        why = "it has a sequence, and a message without payload has none"
    if why:
        what = f"{topic.name}: the topic takes no tombstones, because {why}."
        raise RecordError(what, "Send a message that deletes the key, if the topic declares one.")
    names = topic.key_in_message_key
    parts = [key] if len(names) == 1 else key.split("|")
    kinds = [topic.fields[name].type for name in names]
    if len(parts) != len(kinds) or not all(map(accepts_key, kinds, parts)):
        form = "|".join(f"<{name}: {kind}>" for name, kind in zip(names, kinds, strict=True))
        what = f"{topic.name}: '{key}' is not a key of the topic, whose keys have the form {form}."
        raise RecordError(what, "Correct --key.")
    return Encoded(key, None, b"")


def _error(topic: Topic, what: str) -> RecordError:
    return RecordError(f"{topic.name}: {what}.", RAW)


def _row(topic: Topic, message: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """What a message does to its key, as an op of Debezium, and its row.

    Raises:
        ValueError: the message is no envelope. The text is the end of a sentence.
    """
    if not topic.envelope:
        if topic.truncation and _follows(topic, topic.truncation, message):
            return "t", message
        is_delete = isinstance(topic.delete, Rule) and _follows(topic, topic.delete, message)
        return "d" if is_delete else "u", message
    op = message.get("op")
    if op == "t":
        return "t", {}
    if not isinstance(op, str) or op not in SIDES:
        text = f"has the op {_shown(op)}, which is not one of {', '.join(SIDES)}, t"
        raise ValueError(text)
    row = message.get(SIDES[op])
    if not isinstance(row, dict):
        text = f"has no row in '{SIDES[op]}', which the op {op} needs"
        raise ValueError(text)
    return op, row


def _follows(topic: Topic, rule: Rule, row: dict[str, Any]) -> bool:
    value = _at(topic, row, topic.place(rule.field))
    if isinstance(value, Number) and not isinstance(rule.equals, str):
        return float(value) == rule.equals
    return _text(value) == _text(rule.equals)


def _check_names(topic: Topic, row: dict[str, Any], text: str) -> None:
    _check_members(topic, topic.row_tree, row, ())
    there = [place for place, _ in leaves(topic.row_tree) if _has(row, place)]
    plain = (name for place in there for name in place if PLAIN.fullmatch(name))
    escaped = [name for name in dict.fromkeys(plain) if f'"{name}"' not in text]
    if escaped:
        raise _error(topic, f"the name of {_quoted(escaped)} is written with escapes")


def _check_members(topic: Topic, tree: Tree, row: dict[str, Any], within: Place) -> None:
    """Check that an object has declared members only."""
    unknown = [name for name in row if name not in tree]
    if unknown:
        near = [difflib.get_close_matches(name, tree, n=1) for name in unknown]
        hint = "".join(f", did you mean '{found[0]}'?" for found in near[:1] if found)
        verb = "is not" if len(unknown) == 1 else "are not"
        names = _quoted([shown((*within, name)) for name in unknown])
        whose = f"The fields in '{shown(within)}'" if within else "Its fields"
        what = f"{names} {verb} declared{hint or '.'} {whose} are {', '.join(tree)}"
        raise _error(topic, what)
    for name, inner in tree.items():
        if not isinstance(inner, FieldType) and isinstance(row.get(name), dict):
            _check_members(topic, inner, row[name], (*within, name))


def _check_elements(topic: Topic, elements: list[Any]) -> None:
    """Check that each element of an exploded array has its required fields."""
    path = topic.explode.path if topic.explode else ()
    for number, element in enumerate(elements):
        place = f"{shown(path)}[{number}]"
        if element is None:
            raise _error(topic, f"{place} is null, but must be an element")
        for name, spec in topic.element_fields.items():
            if spec.required and _at(topic, element, topic.place(name)[len(path) :]) is None:
                raise _error(topic, f"field '{name}' is missing or null in {place}, but required")


def _at(topic: Topic, message: dict[str, Any], place: Place) -> Any:
    found: Any = message
    for number, part in enumerate(place):
        if not isinstance(found, dict | None):
            what = f"'{shown(place[:number])}' is {_shown(found)}, but must be an object"
            raise _error(topic, what)
        found = found.get(part) if found else None
    return found


def _is_absent(topic: Topic, name: str, value: Any) -> bool:
    absent = topic.fields[name].absent
    return absent is not None and _text(value) == str(absent)


def _has(row: Any, place: Place) -> bool:
    """Whether an object has the member at a path, even if it is null."""
    for part in place:
        if not isinstance(row, dict) or part not in row:
            return False
        row = row[part]
    return True


def _needed(topic: Topic, op: str, row: dict[str, Any]) -> list[str]:
    """The fields that must have a value. For a delete, the key is enough."""
    required = [name for name, spec in topic.payload_fields.items() if spec.required]
    if op == "t":
        return topic.sequence
    if op == "d":
        return [*topic.key_in_message_key, *topic.sequence]
    identifying = (*topic.key, *topic.sequence)
    if ignored := topic.ignore_null_updates:
        required = [n for n in required if n in identifying or not ignored.has(n)]
    if topic.updates == "partial":
        return [n for n in required if _has(row, topic.place(n)) or n in identifying]
    return required


def _key(topic: Topic, values: dict[str, Any], op: str) -> str | None:
    names = key_fields(topic)
    missing = [name for name in names if values.get(name) is None]
    if missing and op == "t":
        return None  # a truncation concerns all keys
    if missing:
        what = f"{topic.name}: {_fields(missing)} missing, so there is no message key."
        raise RecordError(what, "Add the field, or set --key.")
    key = "|".join(_text(values[name]) for name in names)
    if not is_unicode(key):
        what = f"the message key {key!a} has half of a surrogate pair, which a key cannot have"
        raise _error(topic, what)
    return key


def _event_time(topic: Topic, values: dict[str, Any]) -> int | None:
    name = topic.event_time
    if name is None or values.get(name) is None:
        return None
    value, spec = values[name], topic.fields[name]
    if _is_absent(topic, name, value):
        return None
    try:
        return carried(milliseconds(spec.type, value))
    except ValueError as error:
        raise _error(topic, f"field '{name}' is {_shown(value)}, which is no event time") from error


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(value: Any) -> str:
    """A value for an error, with quotes around a string, so that it differs from a number."""
    if value is None:
        return "null"
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    is_text = isinstance(value, str) and not isinstance(value, Number)
    return f'"{value[:60]}"' if is_text else _text(value)[:60]


def _quoted(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _fields(names: list[str]) -> str:
    return f"field {_quoted(names)} is" if len(names) == 1 else f"fields {_quoted(names)} are"
