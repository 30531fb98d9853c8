"""Checks a message against the declaration of its topic, as silver will, before it is sent.

Used by `lakehouse produce`. The text is sent as it was given, so that numbers keep their digits.
"""

import difflib
from collections.abc import Mapping
from typing import Any

from lake.topics.topic import Rule, Topic
from lakehouse.messages.encode import NO_PROPERTIES, Encoded, carried, key_fields
from lakehouse.messages.json_types import Number, accepts, accepts_key, milliseconds, read_object
from pulsar_spark.errors import LakehouseError

RAW = "Correct it, or send it unchecked with --raw."
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
    _check_names(topic, row, text)
    values = {
        name: _at(message, spec.path) if spec.path else row.get(name)
        for name, spec in topic.payload_fields.items()
    }
    for name, value in values.items():
        if not _fits(topic, name, value):
            kind = topic.fields[name].type
            raise _error(topic, f"field '{name}' is {_shown(value)}, which is not of type {kind}")
    for name, spec in topic.message_fields.items():
        sent = spec.message_property
        if sent and spec.required and sent not in properties:
            what = f"{topic.name}: the message has no property '{sent}', which is field '{name}'."
            raise RecordError(what, f"Add --property {sent}=VALUE.")
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
        if isinstance(topic.truncate, Rule) and _follows(topic.truncate, message):
            return "t", message
        is_delete = isinstance(topic.delete, Rule) and _follows(topic.delete, message)
        return "d" if is_delete else "u", message
    op = message.get("op")
    if op == "t":
        return "t", {}
    if op not in SIDES:
        text = f"has the op {_shown(op)}, which is not one of {', '.join(SIDES)}, t"
        raise ValueError(text)
    row = message.get(SIDES[op])
    if not isinstance(row, dict):
        text = f"has no row in '{SIDES[op]}', which the op {op} needs"
        raise ValueError(text)
    return op, row


def _follows(rule: Rule, row: dict[str, Any]) -> bool:
    value = row.get(rule.field)
    if isinstance(value, Number) and not isinstance(rule.equals, str):
        return float(value) == rule.equals
    return _text(value) == _text(rule.equals)


def _check_names(topic: Topic, row: dict[str, Any], text: str) -> None:
    inside = {name for name, spec in topic.payload_fields.items() if not spec.path}
    unknown = [name for name in row if name not in inside]
    if unknown:
        near = [difflib.get_close_matches(name, inside, n=1) for name in unknown]
        hint = "".join(f", did you mean '{found[0]}'?" for found in near[:1] if found)
        known = ", ".join(each for each in topic.fields if each in inside)
        verb = "is not" if len(unknown) == 1 else "are not"
        what = f"{_quoted(unknown)} {verb} declared{hint or '.'} Its fields are {known}"
        raise _error(topic, what)
    escaped = [name for name in row if f'"{name}"' not in text]
    if escaped:
        raise _error(topic, f"the name of {_quoted(escaped)} is written with escapes")


def _at(message: dict[str, Any], path: str) -> Any:
    found: Any = message
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _fits(topic: Topic, name: str, value: Any) -> bool:
    spec = topic.fields[name]
    is_absent = spec.absent is not None and _text(value) == str(spec.absent)
    return is_absent or accepts(spec.type, value)


def _needed(topic: Topic, op: str, row: dict[str, Any]) -> list[str]:
    """The fields that must have a value. For a delete, the key is enough."""
    required = [name for name, spec in topic.payload_fields.items() if spec.required]
    if op == "t":
        return topic.sequence
    if op == "d":
        return [*topic.key_in_message_key, *topic.sequence]
    if topic.updates == "partial":
        identifying = (*topic.key, *topic.sequence)
        return [name for name in required if name in row or name in identifying]
    return required


def _key(topic: Topic, values: dict[str, Any], op: str) -> str | None:
    names = key_fields(topic)
    missing = [name for name in names if values.get(name) is None]
    if missing and op == "t":
        return None  # a truncation concerns all keys
    if missing:
        what = f"{topic.name}: {_fields(missing)} missing, so there is no message key."
        raise RecordError(what, "Add the field, or set --key.")
    return "|".join(_text(values[name]) for name in names)


def _event_time(topic: Topic, values: dict[str, Any]) -> int | None:
    name = topic.event_time
    if name is None or values.get(name) is None:
        return None
    value, spec = values[name], topic.fields[name]
    if spec.absent is not None and _text(value) == str(spec.absent):
        return None
    try:
        return carried(milliseconds(spec.type, value))
    except ValueError as error:
        raise _error(topic, f"field '{name}' is {_shown(value)}, which is no event time") from error


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(value: Any) -> str:
    """A value as in an error, with the marks that tell a string from a number."""
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
