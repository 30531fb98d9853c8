"""What the live page shows of a message or of a changed row, and which of them somebody wants."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LONGEST = 2000  # characters of a line
FIELD = re.compile(r"([\w.]+)\s*=\s*(.*)", re.DOTALL)


@dataclass(frozen=True)
class Line:
    """A message or a changed row, with personal values masked.

    at: when it was published or committed, in seconds since 1970; None if unknown.
    kind: `message`, `tombstone`, or how the row changed: `insert`, `update` or `delete`.
    place: the position of a message, or the version of the table.
    key: the message key; empty if there is none.
    text: the payload or the row.
    values: the fields by which it can be filtered.
    """

    at: float | None
    kind: str
    place: str
    key: str
    text: str
    values: Any = None

    def as_json(self) -> list[Any]:
        """What the page gets."""
        text = self.text
        if len(text) > LONGEST:
            text = f"{text[: LONGEST - 1]}…"
        return [self.at, self.kind, self.place, self.key, text]


@dataclass(frozen=True)
class Filter:
    """Which lines somebody wants: those that hold a text, in any case, or have a value in a field.

    It sees only what the page would show, so that nobody finds out masked values by trying.

    field: the path of the field, with dots; empty to look for the text anywhere. `key` is also
        that of the message.
    """

    text: str = ""
    field: str = ""

    @classmethod
    def parse(cls, given: str) -> Filter:
        """The filter that somebody has typed: a text, or `field=value`."""
        found = FIELD.fullmatch(given.strip())
        return cls(found[2].strip(), found[1]) if found else cls(given.strip())

    def fits(self, line: Line) -> bool:
        """Whether the line is wanted."""
        if self.field:
            if self.field == "key" and line.key == self.text:
                return True
            return any(_shown(each) == self.text for each in _at(line.values, self.field))
        wanted = self.text.lower()
        return wanted in line.text.lower() or wanted in line.key.lower()


def _at(values: Any, path: str) -> list[Any]:
    """The values of a field, whose names are compared in any case; several within a list."""
    if not path:
        return [values]
    if isinstance(values, list):
        return [found for each in values for found in _at(each, path)]
    if not isinstance(values, Mapping):
        return []
    found = []
    for name, value in values.items():
        name = str(name).lower()
        rest = path.lower().removeprefix(name)
        if path.lower().startswith(name) and (not rest or rest.startswith(".")):
            found += _at(value, rest.removeprefix("."))
    return found


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
