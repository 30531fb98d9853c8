"""Reads payloads by the schema version with which they were published, without Spark.

Used by `payload.py` in Spark's Python workers, and by `lakehouse consume`.
"""

import base64
import datetime as dt
import functools
import io
import json
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from lake.topics.field_type import FieldType
from lake.topics.nested import Tree, part
from silver.records.protobuf import ProtobufError, protobuf_record

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


class Schema(NamedTuple):
    """One version of a topic's schema in the broker's registry.

    type: Pulsar's name of the type, such as `AVRO`.
    definition: the definition of the schema; empty for primitives.
    """

    type: str
    definition: str


# By the full name of the topic on the broker if its declaration has several, else None, and by
# version: each topic has versions of its own.
Version: TypeAlias = tuple[str | None, int]
Schemas: TypeAlias = Mapping[Version, Schema]


class PayloadError(Exception):
    """A payload does not match its schema. The text becomes part of the reason to reject it."""


def schema_of(known: Mapping[int, Schema], version: int | None) -> Schema:
    """The schema of a version.

    Raises:
        PayloadError: the version is not known, or the message has none.
    """
    if version is None or version not in known:
        message = "cannot be read: the registry has no such version of the topic's schema"
        raise PayloadError(message)
    return known[version]


def text_of(payload: bytes, schema: Schema, values: list[str], *, tree: Tree) -> tuple[str, bool]:
    """A payload as JSON text, and whether it is a bare value.

    Args:
        payload: the payload.
        schema: the schema version with which it was published.
        values: the topic's fields besides its key. A bare value is the only one.
        tree: the declared fields, as a payload nests them.

    Raises:
        PayloadError: the payload does not match its schema. Nothing else is raised.
    """
    try:
        return _text(payload, schema, values, tree)
    except PayloadError:
        raise
    except Exception as error:  # no payload may stop the stream
        message = f"is unreadable ({type(error).__name__})"
        raise PayloadError(message) from error


def _text(payload: bytes, schema: Schema, values: list[str], tree: Tree) -> tuple[str, bool]:
    if schema.type == "JSON":
        try:
            return payload.decode(), False
        except UnicodeDecodeError:
            message = "is not valid UTF-8"
            raise PayloadError(message) from None
    if schema.type == "AVRO":
        record = _avro(payload, schema.definition)
        if isinstance(record, dict):
            return _json(record, tree), False
        value = record
    elif schema.type == "PROTOBUF_NATIVE":
        try:
            return _json(protobuf_record(payload, schema.definition, tree), tree), False
        except ProtobufError as error:
            raise PayloadError(str(error)) from error
    elif schema.type == "PROTOBUF":
        message = (
            "has a schema of type PROTOBUF, which does not have the numbers of its fields; publish "
            "with PROTOBUF_NATIVE"
        )
        raise PayloadError(message)
    elif schema.type in PRIMITIVES:
        value = _primitive(payload, schema.type)
    else:
        message = f"has a schema of type {schema.type}, which silver cannot read"
        raise PayloadError(message)
    if len(values) != 1:
        message = (
            f"is a bare {schema.type}, but the topic declares {len(values)} fields besides its key"
        )
        raise PayloadError(message)
    declared = tree.get(values[0])
    if not isinstance(declared, FieldType):
        message = f"is a bare {schema.type}, but the topic declares '{values[0]}' at a path"
        raise PayloadError(message)
    return f"{{{json.dumps(values[0])}:{_json(value, declared)}}}", True


@functools.lru_cache(maxsize=1000)
def _parsed(definition: str) -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(definition))


def _avro(payload: bytes, definition: str) -> Any:
    import fastavro

    content = io.BytesIO(payload)
    try:
        record = fastavro.schemaless_reader(content, _parsed(definition), None)
    except Exception as error:
        # For garbage, the reader may raise anything: EOFError, IndexError, MemoryError, ...
        message = f"does not match its Avro schema ({type(error).__name__})"
        raise PayloadError(message) from error
    if content.read(1):
        message = "continues after its Avro record"
        raise PayloadError(message)
    return record


def _number(form: str) -> Callable[[bytes], Any]:
    return lambda payload: struct.unpack(form, payload)[0]


def _instant(milliseconds: int) -> dt.datetime:
    return EPOCH + dt.timedelta(milliseconds=milliseconds)


# As the Java client encodes them: org.apache.pulsar.client.impl.schema.*Schema.
PRIMITIVES: dict[str, Callable[[bytes], Any]] = {
    "STRING": bytes.decode,
    "BYTES": bytes,
    "BOOLEAN": _number(">?"),
    "INT8": _number(">b"),
    "INT16": _number(">h"),
    "INT32": _number(">i"),
    "INT64": _number(">q"),
    "FLOAT": _number(">f"),
    "DOUBLE": _number(">d"),
    "DATE": lambda payload: _instant(_number(">q")(payload)),
    "TIMESTAMP": lambda payload: _instant(_number(">q")(payload)),
    "LOCAL_DATE": lambda payload: EPOCH.date() + dt.timedelta(days=_number(">q")(payload)),
}


def _primitive(payload: bytes, kind: str) -> Any:
    try:
        return PRIMITIVES[kind](payload)
    except (struct.error, ValueError, OverflowError) as error:
        message = f"is not a valid {kind}"
        raise PayloadError(message) from error


def _json(value: Any, declared: Tree | FieldType | None) -> str:
    """A value as JSON text from which the declared fields can be read."""
    if isinstance(value, dict):
        members = (f"{json.dumps(n)}:{_json(v, part(declared, n))}" for n, v in value.items())
        return f"{{{','.join(members)}}}"
    if isinstance(value, list):
        return f"[{','.join(_json(each, part(declared, None)) for each in value)}]"
    kind = declared.name if isinstance(declared, FieldType) else None
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:  # a local timestamp is UTC, like all times without an offset
            value = value.replace(tzinfo=dt.timezone.utc)
        if kind == "timestamp_ms":
            return str((value - EPOCH) // dt.timedelta(milliseconds=1))
        value = value.date() if kind == "date" else value
    if isinstance(value, Decimal):
        return format(value, "f")
    return json.dumps(value, default=_text_of)


def _text_of(value: Any) -> str:
    """The text of a value that JSON cannot express."""
    if isinstance(value, dt.date | dt.time):  # a datetime is a date
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
