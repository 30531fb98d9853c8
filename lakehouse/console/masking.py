"""Masks personal data in payloads, keys and rows, by the declarations of the topic file.

A value is masked by the name of its field, wherever in the payload it is: rather too much than too
little. What cannot be taken apart is not shown if the topic declares personal fields.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from lake.topics.topic import Topic, hash_column, snake_case
from lake.topics.topic_file import TopicFile

MASK = "***"
HIDDEN = "hidden, because it may hold personal fields"
LONGEST = 4000


class Masking:
    """What a page shows of the values of a lake.

    topics: the declarations. shows_all: whether personal values are allowed on the pages.
    """

    def __init__(self, topics: TopicFile, *, shows_all: bool) -> None:
        self._topics = topics
        self._shows_all = shows_all
        self._columns = _personal_columns(topics)

    def payload(self, topic: str, payload: bytes | None) -> str:
        """Show a payload: JSON with indents, other text unchanged, and bytes in base64."""
        if payload is None:
            return ""
        found = self._object(topic, payload)
        if found is None:
            return HIDDEN if self.hides(topic) else _text(payload)
        return json.dumps(found, ensure_ascii=False, indent=2)[:LONGEST]

    def line(self, topic: str, text: str) -> tuple[str, Any]:
        """Show a payload in JSON on one line. Also returns what is shown as an object, if it is."""
        found = self._object(topic, text)
        if found is None:
            return (HIDDEN if self.hides(topic) else text), None
        return json.dumps(found, ensure_ascii=False), found

    def _object(self, topic: str, payload: bytes | str) -> Any:
        """An object or array in JSON, with its personal members masked; None if it is neither."""
        try:
            value = json.loads(payload if isinstance(payload, str) else payload.decode())
        except (ValueError, RecursionError):
            return None
        return _masked(value, self._names(topic)) if isinstance(value, dict | list) else None

    def hides(self, topic: str) -> bool:
        """Whether payloads that cannot be taken apart are not shown."""
        return bool(self._names(topic))

    def key(self, topic: str, key: str | None) -> str:
        """The key of a message. It is masked if a part of it is personal."""
        declared = self._topics.topics.get(topic)
        if key is None:
            return ""
        if declared is None or self._shows_all:
            return MASK if self._names(topic) else key
        in_key = {*declared.key}
        if declared.message_key:
            in_key = {declared.message_key}
        in_key |= {n for n, spec in declared.fields.items() if spec.from_message == "key"}
        return MASK if any(declared.fields[name].personal for name in in_key) else key

    def row(self, table: str, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row of a table, with its personal columns and members masked."""
        layer, _, name = table.partition(".")
        if layer == "bronze":
            return self._message(name, row)
        if table == "silver.quarantine":
            return self._message(str(row.get("topic")), row)
        return {each: self._value(each, value) for each, value in row.items()}

    def masks(self, column: str) -> bool:
        """Whether a column of silver or gold is masked."""
        return not self._shows_all and column.lower() in self._columns

    @property
    def columns(self) -> list[str]:
        """The columns of silver and gold that are masked, in lower case."""
        return [] if self._shows_all else sorted(self._columns)

    def _message(self, topic: str, row: Mapping[str, Any]) -> dict[str, Any]:
        found = dict(row)
        if "key" in found:
            found["key"] = self.key(topic, found["key"])
        if isinstance(found.get("payload"), bytes):
            found["payload"] = self.payload(topic, found["payload"])
        if found.get("properties") and self._names(topic):
            found["properties"] = HIDDEN
        return found

    def _value(self, name: str, value: Any) -> Any:
        if self.masks(name) and value is not None:
            return MASK
        if isinstance(value, Mapping):
            return {key: self._value(str(key), each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._value("", each) for each in value]
        return value

    def _names(self, topic: str) -> frozenset[str]:
        """The names of members that hold personal values; those of all topics for a former one."""
        if self._shows_all:
            return frozenset()
        declared = self._topics.topics.get(topic)
        if declared is not None:
            return _personal(declared)
        return frozenset().union(*map(_personal, self._topics.topics.values()))


def _personal_columns(topics: TopicFile) -> frozenset[str]:
    """The columns of silver and gold that hold personal values, in lower case."""
    found: set[str] = set()
    for topic in topics.topics.values():
        for name, spec in topic.fields.items():
            if spec.personal:
                found |= {snake_case(name), hash_column(name)}
    for join in topics.joined.values():
        theirs = {snake_case(name) for name, spec in join.right.fields.items() if spec.personal}
        found |= {join.join.of_right(name) for name in theirs}
    return frozenset(name.lower() for name in found)


def _personal(topic: Topic) -> frozenset[str]:
    names: set[str] = set()
    for name, spec in topic.fields.items():
        if spec.personal:
            names.add(name.lower())
            if spec.path:
                names.add(spec.path[-1].lower())
    return frozenset(names)


def _masked(value: Any, names: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {
            name: MASK if name.lower() in names and each is not None else _masked(each, names)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [_masked(each, names) for each in value]
    return value


def _text(payload: bytes) -> str:
    try:
        return payload.decode()[:LONGEST]
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(payload[:LONGEST]).decode()}"
