"""Encodes a CSV row as a JSON message of a topic, according to the topic's declaration."""

import base64
import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, cast

from lake.topics.address import Address
from lake.topics.field_type import FieldType
from lake.topics.nested import Place, shown
from lake.topics.topic import ELEMENTS, FieldSpec, Topic, snake_case
from lakehouse.messages.json_types import misfit, read_value
from pulsar_spark.errors import LakehouseError

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
OMIT = ""
NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})
NOWHERE = Address()  # enough for a declaration of one topic
UNSENT = ("publish_time", "topic")  # set by the client and the broker
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
    topic: the full name of the topic to send it to, if the declaration has several.
    """

    key: str | None
    event_time_ms: int | None
    value: bytes
    properties: Mapping[str, str] = NO_PROPERTIES
    topic: str | None = None


def why_not_sent(topic: Topic) -> str | None:
    """Why rows cannot be sent to a topic as JSON, as the predicate of a sentence.

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
    if topic.has_several and topic_field(topic) is None:
        return (
            "is read from several topics, but has no field with from_message = 'topic', whose "
            "values would say where to send each row"
        )
    return None


def is_unicode(text: str) -> bool:
    """Whether a text can be a key or a property: Pulsar takes no half of a surrogate pair.

    Python has such halves for `\\udc80` in JSON, and for arguments that are not UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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


_Parts = dict[str, "str | _Parts"]  # the members of an object, each as JSON or an object


def _put(parts: _Parts, place: Place, text: str) -> None:
    for name in place[:-1]:
        parts = cast(_Parts, parts.setdefault(name, _Parts()))
    parts[place[-1]] = text


def _object(parts: _Parts) -> str:
    members = (
        f"{json.dumps(name)}:{each if isinstance(each, str) else _object(each)}"
        for name, each in parts.items()
    )
    return f"{{{','.join(members)}}}"


class RowEncoder:
    """Encodes the rows of one CSV file.

    Raises:
        EncodeError: the file has no column for a required field, or has a column twice.
    """

    def __init__(
        self, topic: Topic, columns: Sequence[str], file: str, address: Address = NOWHERE
    ) -> None:
        self._topic = topic = topic.whole  # one row for each message
        self._file = file
        self._address = address
        if twice := [name for name in dict.fromkeys(columns) if list(columns).count(name) > 1]:
            message = f"{file} has the column '{twice[0]}' twice."
            raise EncodeError(message, "Remove one, or give it another name.")
        self._columns = {name: _column(topic, name, columns, file) for name in sent_fields(topic)}
        self._key_cells = [
            (_needed(topic, name, columns, file), _to_json(topic.fields[name]))
            for name in key_fields(topic)
        ]
        self._fragments = [
            (name, column, _to_json(topic.fields[name]))
            for name, column in self._columns.items()
            if column is not None
        ]

    def encode(self, row: Mapping[str, str], line: int) -> Encoded:
        """The message for a row.

        Raises:
            RowError: a cell does not fit its field. Names file, line and column.
        """
        parts, properties, to = _Parts(), {}, None
        for name, column, to_json in self._fragments:
            cell, spec = row[column], self._topic.fields[name]
            try:
                text = to_json(cell)
            except BAD_CELL as error:
                raise self._error(line, column, cell, spec.type) from error
            if text is OMIT:
                continue
            if spec.is_in_payload:
                _put(parts, self._topic.place(name), text)
            elif spec.message_property:
                properties[spec.message_property] = _bare(text)
            elif spec.from_message == "topic":
                to = self._address.named(cell)
                if to is None:
                    raise self._error(line, column, cell, f"name in {self._address}")
        # As in the payload: `07` and `7` are one key.
        key = "|".join(_bare(to_json(row[column])) for column, to_json in self._key_cells)
        value = _object(parts).encode()
        return Encoded(key, self._event_time(row, line), value, properties, to)

    def _event_time(self, row: Mapping[str, str], line: int) -> int | None:
        column = self._columns.get(event_time_field(self._topic) or "")
        if column is None or not row[column]:
            return None
        try:
            return event_time_ms(row[column])
        except ValueError as error:
            raise self._error(line, column, row[column], "event time") from error

    def _error(self, line: int, column: str, cell: str, kind: str) -> RowError:
        shown = "is empty" if cell == "" else f"has '{cell}', which is not a valid {kind}"
        return RowError(f"{self._file}:{line}: column '{column}' {shown}.", REMEDY)


def sent_fields(topic: Topic) -> list[str]:
    """The fields that a producer sends: neither computed, nor set by the client or the broker.

    If there are several topics, the name of the topic is sent, too: it says which one. If an
    array is exploded, the message has the array.
    """
    topic = topic.whole
    chosen = topic_field(topic) if topic.has_several else None
    return [
        name
        for name, spec in topic.fields.items()
        if name == chosen or (spec.from_message not in UNSENT and not spec.is_computed)
    ]


def topic_field(topic: Topic) -> str | None:
    """The field whose value is the name of the topic on the broker."""
    return next((n for n, spec in topic.fields.items() if spec.from_message == "topic"), None)


def key_fields(topic: Topic) -> list[str]:
    """The fields whose values, with `|` between them, are the message key."""
    from_key = [name for name, spec in topic.fields.items() if spec.from_message == "key"]
    return from_key or ([topic.message_key] if topic.message_key else topic.key_in_message_key)


def event_time_field(topic: Topic) -> str | None:
    """The field whose value is the event time of the message."""
    fields = topic.fields.items()
    found = next((name for name, spec in fields if spec.from_message == "event_time"), None)
    return found or topic.event_time


def _column(topic: Topic, name: str, columns: Sequence[str], file: str) -> str | None:
    if topic.fields[name].required:
        return _needed(topic, name, columns, file)
    return _found(topic, name, columns)


def _needed(topic: Topic, name: str, columns: Sequence[str], file: str) -> str:
    if (found := _found(topic, name, columns)) is not None:
        return found
    message = (
        f"{file} has no column '{snake_case(name)}' for field '{name}' of topic '{topic.name}'. "
        f"Its columns are {', '.join(columns)}."
    )
    raise EncodeError(message)


def _bare(text: str) -> str:
    """A value in JSON as the text of a property, which has no quotes around strings."""
    return str(json.loads(text)) if text.startswith('"') else text


def column_of(topic: Topic, name: str) -> str:
    """The column of a field: that of silver, or the path of the array that is exploded."""
    return shown(topic.place(name)) if name == ELEMENTS else snake_case(name)


def _found(topic: Topic, name: str, columns: Sequence[str]) -> str | None:
    return next((each for each in (column_of(topic, name), name) if each in columns), None)


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


def _nested(kind: FieldType, cell: str) -> str:
    """A cell that holds JSON, unchanged."""
    odd = misfit(kind, read_value(cell), "value")
    if odd:
        raise ValueError(odd)
    return " ".join(cell.split("\n"))


def _boolean(cell: str) -> str:
    return json.dumps({"true": True, "false": False, "1": True, "0": False}[cell.lower()])


ENCODERS: dict[str, Callable[[str], str]] = {
    "int": lambda cell: str(int(cell)),
    "long": lambda cell: str(int(cell)),
    "float": _number,
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
    encode = ENCODERS.get(spec.type.partition("(")[0]) or partial(_nested, spec.kind)
    empty = None if spec.absent is None else json.dumps(spec.absent)
    if spec.absent is None and not spec.required:
        empty = OMIT

    def to_json(cell: str) -> str:
        if cell == "" and spec.type != "string" and empty is not None:
            return empty
        return encode(cell)

    return to_json
