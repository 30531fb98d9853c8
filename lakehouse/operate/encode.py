"""Encodes a CSV row as a JSON message of a topic, according to the topic's declaration."""

import base64
import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from lake.topics.topic import FieldSpec, Topic, snake_case
from pulsar_spark.errors import LakehouseError

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
OMIT = ""
UNSENT = ("publish_time", "topic")  # set by the client and the broker


class EncodeError(LakehouseError):
    """A file does not fit the topic it is published to."""


class Encoded(NamedTuple):
    """A message to send. `event_time_ms` is in epoch milliseconds."""

    key: str
    event_time_ms: int | None
    value: bytes
    properties: Mapping[str, str]


def epoch_ms(text: str) -> int:
    """Epoch milliseconds of an ISO 8601 date and time, which is in UTC if it has no offset."""
    moment = dt.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.timezone.utc)
    return (moment - EPOCH) // dt.timedelta(milliseconds=1)


class RowEncoder:
    """Encodes the rows of one CSV file.

    Raises:
        EncodeError: the file has no column for a required field.
    """

    def __init__(self, topic: Topic, columns: Sequence[str], file: str) -> None:
        self._topic = topic
        self._file = file
        sent = [
            name
            for name, spec in topic.fields.items()
            if spec.from_message not in UNSENT and not spec.sql
        ]
        self._columns = {name: _column(topic, name, columns, file) for name in sent}
        self._fragments = [
            (name, column, _to_json(topic.fields[name]))
            for name, column in self._columns.items()
            if column is not None
        ]

    def encode(self, row: Mapping[str, str], line: int) -> Encoded:
        """The message for a row.

        Raises:
            EncodeError: a cell does not fit its field. Names file, line and column.
        """
        parts, properties = [], {}
        for name, column, to_json in self._fragments:
            cell, spec = row[column], self._topic.fields[name]
            try:
                text = to_json(cell)
            except (ValueError, TypeError) as error:
                kind = self._topic.fields[name].type
                shown = "is empty" if cell == "" else f"has '{cell}', which is not a valid {kind}"
                message = f"{self._file}:{line}: column '{column}' {shown}. Correct it."
                raise EncodeError(message) from error
            if text is OMIT:
                continue
            if spec.is_in_payload:
                parts.append(f"{json.dumps(name)}:{text}")
            elif spec.message_property:
                properties[spec.message_property] = _bare(text)
        value = ("{" + ",".join(parts) + "}").encode()
        return Encoded(self._key(row), self._event_time(row), value, properties)

    def _key(self, row: Mapping[str, str]) -> str:
        from_key = [n for n, spec in self._topic.fields.items() if spec.from_message == "key"]
        own = [self._topic.message_key] if self._topic.message_key else self._topic.key
        names = from_key or own
        return "|".join(row[self._columns[name] or name] for name in names)

    def _event_time(self, row: Mapping[str, str]) -> int | None:
        fields = self._topic.fields.items()
        name = next((n for n, spec in fields if spec.from_message == "event_time"), None)
        name = name or self._topic.event_time
        if name is None or name not in self._columns:
            return None
        cell = row.get(self._columns[name] or name)
        return _instant(cell) if cell else None


def _column(topic: Topic, name: str, columns: Sequence[str], file: str) -> str | None:
    for candidate in (snake_case(name), name):
        if candidate in columns:
            return candidate
    if not topic.fields[name].required:
        return None
    message = (
        f"{file} has no column '{snake_case(name)}' for field '{name}' of topic '{topic.name}'. "
        f"Its columns are {', '.join(columns)}."
    )
    raise EncodeError(message)


def _bare(text: str) -> str:
    """A value in JSON as the text of a property, which has no quotes around strings."""
    return str(json.loads(text)) if text.startswith('"') else text


def _instant(cell: str) -> int:
    return int(cell) if cell.lstrip("-").isdigit() else epoch_ms(cell)


def _refuse(constant: str) -> None:
    raise ValueError(constant)  # Python accepts NaN and Infinity, which JSON does not have


def _number(cell: str) -> str:
    # Returned as written, so that 13.750000000000002 keeps all its digits.
    number = json.loads(cell, parse_constant=_refuse)
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise TypeError(cell)
    return cell


def _bytes(cell: str) -> bytes:
    return base64.b64decode(cell, validate=True)


def _boolean(cell: str) -> str:
    return json.dumps({"true": True, "false": False, "1": True, "0": False}[cell.lower()])


ENCODERS: dict[str, Callable[[str], str]] = {
    "int": lambda cell: str(int(cell)),
    "long": lambda cell: str(int(cell)),
    "double": _number,
    "decimal": _number,
    "boolean": _boolean,
    "timestamp_ms": lambda cell: str(_instant(cell)),
    "timestamp": lambda cell: json.dumps(dt.datetime.fromisoformat(cell).isoformat()),
    "date": lambda cell: json.dumps(dt.date.fromisoformat(cell).isoformat()),
    "string": json.dumps,
    "binary": lambda cell: json.dumps(base64.b64encode(_bytes(cell)).decode()),
}


def _to_json(spec: FieldSpec) -> Callable[[str], str]:
    encode = ENCODERS[spec.type.partition("(")[0]]
    empty = None if spec.absent is None else json.dumps(spec.absent)
    if spec.absent is None and not spec.required:
        empty = OMIT

    def to_json(cell: str) -> str:
        if cell == "" and spec.type != "string" and empty is not None:
            return empty
        return encode(cell)

    return to_json
