"""Converts payloads of all formats to JSON text, according to the topic's format and schema.

`decode.py` therefore detects missing fields and wrong types in one way for all formats. Only topics
that use the schema registry are converted in Spark's Python workers; topics with JSON text, the
default, never are.
"""

import base64
import datetime as dt
import functools
import io
import json
import re
import struct
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from typing import Any, NamedTuple, cast

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from lake.topics.topic import Topic

_MEMBER = re.compile(r'\s*,?\s*("(?:[^"\\]|\\.)*")\s*:\s*')
UTF8 = "payload is not valid UTF-8"
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
TEXT_TYPE = "struct<json:string,is_bare:boolean,problem:string>"


class Schema(NamedTuple):
    """One version of a topic's schema in the broker's registry.

    type: Pulsar's name of the type, such as `AVRO`.
    definition: the definition of the schema; empty for primitives.
    """

    type: str
    definition: str


class PayloadError(Exception):
    """A payload does not match its schema. The text becomes part of the reason to reject it."""


def rewritten(
    payload: bytes, kept: Collection[str], changed: Mapping[str, Mapping[str, str]]
) -> bytes:
    """A JSON object reduced to some of its fields, with some values replaced.

    The other values are kept exactly as written.

    Args:
        payload: a JSON object. If it has a field twice, the last one counts.
        kept: the fields to keep. A field with a replaced value is always kept.
        changed: by field, the replacement for each value, both as text.
    """
    text, found = payload.decode(), dict[str, str]()
    scanner, place = json.JSONDecoder(), text.index("{") + 1
    while (match := _MEMBER.match(text, place)) is not None:
        name, begin = scanner.raw_decode(text, match.start(1))[0], match.end()
        value, place = scanner.raw_decode(text, begin)
        other = changed.get(name, {}).get(str(value))
        if other is not None:
            found[name] = json.dumps(other) if isinstance(value, str) else other
        elif name in kept:
            found[name] = text[begin:place]
    return f"{{{','.join(f'{json.dumps(n)}:{v}' for n, v in found.items())}}}".encode()


def text_of_payload(topic: Topic, schemas: Mapping[int, Schema]) -> Column:
    """The payload as JSON text, of type `TEXT_TYPE`. The text is NULL if the payload is empty.

    Args:
        topic: the topic of the messages, which have the columns `payload` and `schema_version`.
        schemas: the known versions of the topic's schema.
    """
    if topic.format == "registry":
        return _by_registry(topic, schemas)
    text = F.col("payload").cast("string")
    bare, problem = topic.format != "json", F.when(~F.is_valid_utf8(text), UTF8)
    if topic.format == "bytes":
        text, problem = F.base64("payload"), F.lit(None)
    if bare:
        text = F.to_json(F.struct(F.when(problem.isNull(), text).alias(topic.values[0])))
    parts = {"json": text, "is_bare": F.lit(bare), "problem": problem.cast("string")}
    present = F.length("payload") > 0
    return F.struct(*(F.when(present, part).alias(name) for name, part in parts.items()))


def _by_registry(topic: Topic, schemas: Mapping[int, Schema]) -> Column:
    known = dict(schemas)
    types = {name: spec.type for name, spec in topic.fields.items()}

    def text_of(payload: bytes, schema: Schema) -> tuple[str, bool]:
        try:
            return _text(payload, schema, topic.values, types=types)
        except PayloadError:
            raise
        except Exception as error:  # no payload may stop the stream
            message = f"is unreadable ({type(error).__name__})"
            raise PayloadError(message) from error

    def read(payloads: pa.Array, versions: pa.Array) -> pa.Array:
        rows = []
        for payload, version in zip(payloads.to_pylist(), versions.to_pylist(), strict=True):
            row: tuple[str | None, bool, str | None] = (None, False, None)
            if payload:
                try:
                    row = (*text_of(payload, _schema(known, version)), None)
                except PayloadError as error:
                    row = (None, False, f"payload of schema version {version} {error}")
            rows.append(row)
        texts, bare, problems = zip(*rows, strict=True) if rows else ((), (), ())
        return pa.StructArray.from_arrays(
            [pa.array(texts, pa.string()), pa.array(bare), pa.array(problems, pa.string())],
            ["json", "is_bare", "problem"],
        )

    decoder = arrow_udf(read, TEXT_TYPE)  # type: ignore[call-overload]  # its stubs lack this form
    return cast(Column, decoder("payload", "schema_version"))


def _schema(known: Mapping[int, Schema], version: int | None) -> Schema:
    if version is None or version not in known:
        message = "cannot be read: the registry has no such version of the topic's schema"
        raise PayloadError(message)
    return known[version]


def _text(
    payload: bytes, schema: Schema, values: list[str], *, types: Mapping[str, str]
) -> tuple[str, bool]:
    """A payload as JSON text, and whether it is a bare value.

    Raises:
        PayloadError: the payload does not match its schema.
    """
    if schema.type == "JSON":
        try:
            return payload.decode(), False
        except UnicodeDecodeError:
            message = "is not valid UTF-8"
            raise PayloadError(message) from None
    if schema.type == "AVRO":
        record = _avro(payload, schema.definition)
        if isinstance(record, dict):
            fields = (f"{json.dumps(n)}:{_json(v, types.get(n))}" for n, v in record.items())
            return f"{{{','.join(fields)}}}", False
        value = record
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
    return f"{{{json.dumps(values[0])}:{_json(value, types[values[0]])}}}", True


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


def _json(value: Any, kind: str | None) -> str:
    """A value as JSON text from which a field of the declared type can be read."""
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
    """The text of a value that JSON cannot express, at the top level or in a list or record."""
    if isinstance(value, dt.date | dt.time):  # a datetime is a date
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
