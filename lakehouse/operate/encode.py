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
BAD_CELL = (ValueError, TypeError, KeyError)
REMEDY = "Correct the row, or leave such rows out with --skip-bad."


class EncodeError(LakehouseError):
    """A file does not fit the topic it is published to."""


class RowError(EncodeError):
    """A row does not fit the topic. Other rows of the file may."""


class Encoded(NamedTuple):
    """A message to send.

    key: the message key; None for a message that concerns all keys.
    event_time_ms: epoch milliseconds; None if the message has no event time, or one before 1970,
        which Pulsar cannot carry.
    """

    key: str | None
    event_time_ms: int | None
    value: bytes


def why_not_sent(topic: Topic) -> str | None:
    """Why rows cannot be sent to a topic as flat JSON, as the predicate of a sentence.

    None if they can. Called by `publish` and by `generate`, which writes files for `publish`.
    """
    if topic.format != "json":
        return (
            f"is declared with schema = '{topic.format}', but `lakehouse publish` sends JSON "
            "without a schema"
        )
    if topic.envelope:
        return (
            f"is declared with envelope = '{topic.envelope}', but `lakehouse publish` sends rows "
            "without an envelope"
        )
    return None


def cell_fits(spec: FieldSpec, cell: str) -> bool:
    """Whether `RowEncoder` accepts a cell of a field."""
    try:
        _to_json(spec)(cell)
    except BAD_CELL:
        return False
    return True


def event_time_ms(text: str) -> int | None:
    """The event time of a message, from epoch milliseconds or ISO 8601 text.

    None for a time before 1970, which Pulsar cannot carry.

    Raises:
        ValueError: the text is neither, or Pulsar cannot carry it.
    """
    return carried(_instant(text))


def carried(moment: int) -> int | None:
    """The event time for an instant in epoch milliseconds; None if Pulsar cannot carry it.

    Raises:
        ValueError: the instant is later than any that Pulsar carries.
    """
    if moment >= 1 << 63:
        raise ValueError(moment)
    return moment if moment > 0 else None


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
        self._columns = {name: _column(topic, name, columns, file) for name in topic.fields}
        self._key_columns = [_needed(topic, name, columns, file) for name in key_fields(topic)]
        self._fragments = [
            (name, column, f"{json.dumps(name)}:", _to_json(topic.fields[name]))
            for name, column in self._columns.items()
            if column is not None
        ]

    def encode(self, row: Mapping[str, str], line: int) -> Encoded:
        """The message for a row.

        Raises:
            RowError: a cell does not fit its field. Names file, line and column.
        """
        parts = []
        for name, column, prefix, to_json in self._fragments:
            cell = row[column]
            try:
                text = to_json(cell)
            except BAD_CELL as error:
                raise self._error(line, column, cell, self._topic.fields[name].type) from error
            if text is not OMIT:
                parts.append(prefix + text)
        key = "|".join(row[column] for column in self._key_columns)
        return Encoded(key, self._event_time(row, line), ("{" + ",".join(parts) + "}").encode())

    def _event_time(self, row: Mapping[str, str], line: int) -> int | None:
        column = self._columns[self._topic.event_time] if self._topic.event_time else None
        if column is None or not row[column]:
            return None
        try:
            return event_time_ms(row[column])
        except ValueError as error:
            raise self._error(line, column, row[column], "event time") from error

    def _error(self, line: int, column: str, cell: str, kind: str) -> RowError:
        shown = "is empty" if cell == "" else f"has '{cell}', which is not a valid {kind}"
        return RowError(f"{self._file}:{line}: column '{column}' {shown}.", REMEDY)


def key_fields(topic: Topic) -> list[str]:
    """The fields whose values, with `|` between them, are the message key."""
    return [topic.message_key] if topic.message_key else topic.key


def _column(topic: Topic, name: str, columns: Sequence[str], file: str) -> str | None:
    if topic.fields[name].required:
        return _needed(topic, name, columns, file)
    return _found(name, columns)


def _needed(topic: Topic, name: str, columns: Sequence[str], file: str) -> str:
    if (found := _found(name, columns)) is not None:
        return found
    message = (
        f"{file} has no column '{snake_case(name)}' for field '{name}' of topic '{topic.name}'. "
        f"Its columns are {', '.join(columns)}."
    )
    raise EncodeError(message)


def _found(name: str, columns: Sequence[str]) -> str | None:
    return next((each for each in (snake_case(name), name) if each in columns), None)


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
