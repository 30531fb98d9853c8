"""Tests which values each type accepts: Spark and plain Python decode the same odd values."""

import datetime as dt
import io
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import fastavro
import pytest
from odd_values import AVRO, PRIMITIVES, TEXTS, TOKENS, UNREADABLE
from pyspark.sql import DataFrame, SparkSession
from silver_lake import PUBLISHED
from topic import declared
from types_model import (
    RefusedError,
    read_json,
    value_of,
    value_of_avro,
    value_of_key,
    value_of_primitive,
)

from lake.topics.topic import Topic
from pulsar_spark.schema import ENVELOPE_DDL
from silver.records.by_schema import Schema
from silver.records.decode import Decoder

TYPES = (
    *(
        "boolean",
        "int",
        "long",
        "float",
        "double",
        "decimal(12,2)",
        "decimal(38,0)",
        "decimal(38,18)",
    ),
    *("string", "binary", "date", "timestamp", "timestamp_ms"),
)
FIELDS = {f"f{number}": kind for number, kind in enumerate(TYPES)}
REFUSED = "refused"


def topic(name: str, declaration: str, fields: Iterable[str], folder: Path) -> Topic:
    text = f"[topics.{name}]\n{declaration}\n[topics.{name}.fields]\n" + "\n".join(fields)
    return declared(folder, text).topics[name]


Sent = tuple[str | None, bytes | None] | tuple[str | None, bytes | None, int | None]


def messages(spark: SparkSession, sent: Iterable[Sent]) -> DataFrame:
    """Return messages with a key, a payload and an optional schema version."""
    rows = [
        (
            "t",
            0,
            1,
            n,
            0,
            *each[:2],
            None,
            PUBLISHED,
            None,
            {},
            *(each[2:] or (None,)),
            None,
            None,
            None,
        )
        for n, each in enumerate(sent)
    ]
    return spark.createDataFrame(rows, ENVELOPE_DDL)


def decoded(
    spark: SparkSession,
    declared: Topic,
    sent: Iterable[Sent],
    versions: Mapping[int, Schema] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """Return the decoded rows in message order; `_reason` is set for refused messages."""
    schemas = {(None, version): schema for version, schema in versions.items()}
    found = Decoder(declared, schemas).rows(messages(spark, sent))
    rows: list[dict[str, Any]] = found.toArrow().to_pylist()
    return sorted(rows, key=lambda row: row["position"]["entry"])


def outcome(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except RefusedError:
        return REFUSED


def expected(kind: str, token: str) -> Any:
    return outcome(lambda: value_of(kind, read_json(f'{{"v": {token}}}')["v"]))


def differences(cases: Iterable[tuple[str, str, Any, Any]]) -> str:
    """Return the first values that differ from the oracle's, as text."""
    odd = [
        f"{kind} {token[:80]!r}: {str(found)[:80]!r}, expected {str(right)[:80]!r}"
        for kind, token, found, right in cases
        if (type(found), found) != (type(right), right)
    ]
    return "\n".join([f"{len(odd)} differ", *odd[:40]]) if odd else ""


def found(row: dict[str, Any], name: str) -> Any:
    if row["_reason"] is not None:
        return REFUSED
    value = row[name]
    return value.astimezone(dt.timezone.utc) if isinstance(value, dt.datetime) else value


SHAPES: dict[str, tuple[str, str, Callable[[str, str], str]]] = {
    "flat": ("", "", lambda name, token: f'{{"id": 1, "{name}": {token}}}'),
    "after": (
        'envelope = "debezium"',
        "",
        lambda name, token: f'{{"op": "c", "after": {{"id": 1, "{name}": {token}}}}}',
    ),
    "at a path": (
        'envelope = "debezium"',
        ', path = "source.at.{name}"',
        lambda name, token: (
            f'{{"op":"c","after":{{"id":1}},"source":{{"at":{{"{name}" :\t{token}}}}}}}'
        ),
    ),
    "partial": ('updates = "partial"', "", lambda name, token: f'{{"id":1,"{name}":{token} }}'),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_field_is_read_as_documented_or_refused(
    spark: SparkSession, tmp_path: Path, shape: str
) -> None:
    """More than 400 values for each type, in every place where a field may be."""
    options, at, payload = SHAPES[shape]
    fields = [
        f'{name} = {{ type = "{kind}", required = false{at.format(name=name)} }}'
        for name, kind in FIELDS.items()
    ]
    declaration = f'kind = "changelog"\nkey = ["id"]\n{options}'
    odd = topic("odd", declaration, ['id = "int"', *fields], tmp_path)
    cases = [(name, kind, token) for name, kind in FIELDS.items() for token in TOKENS]
    rows = decoded(
        spark,
        odd,
        [(None, payload(name, token).encode("utf-8", "surrogatepass")) for name, _, token in cases],
    )
    wrong = differences(
        (kind, token, found(row, name), expected(kind, token))
        for row, (name, kind, token) in zip(rows, cases, strict=True)
    )
    assert not wrong, wrong
    reasons = {row["_reason"] for row in rows if row["_reason"]}
    assert {f"field '{name}' is not of type {kind}" for name, kind in FIELDS.items()} <= reasons


def record(name: str, kind: Any) -> dict[str, Any]:
    fields = [{"name": "id", "type": "int"}, {"name": name, "type": kind}]
    return {"type": "record", "name": "Odd", "fields": fields}


def avro(definition: Any, value: Any) -> bytes:
    content = io.BytesIO()
    fastavro.schemaless_writer(content, definition, value)
    return content.getvalue()


def test_an_avro_value_is_read_as_documented_or_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """More than 300 values for each type, as fields of records."""
    fields = [f'{n} = {{ type = "{kind}", required = false }}' for n, kind in FIELDS.items()]
    declaration = 'kind = "changelog"\nkey = ["id"]\nschema = "registry"'
    odd = topic("odd", declaration, ['id = "int"', *fields], tmp_path)
    schemas: dict[int, Schema] = {}
    sent: list[Sent] = []
    cases = []
    for name, kind in FIELDS.items():
        for declared_type, written, value in [(t, t, v) for t, v in AVRO] + UNREADABLE:
            definition = record(name, declared_type)
            payload = avro(record(name, written), {"id": 1, name: value})
            schemas[len(sent)] = Schema("AVRO", json.dumps(definition))
            sent.append((None, payload, len(sent)))
            cases.append((kind, name, declared_type, written, value))
    wrong = []
    for row, (kind, name, declared_type, written, value) in zip(
        decoded(spark, odd, sent, schemas), cases, strict=True
    ):
        is_refused = declared_type != written
        right = REFUSED if is_refused else outcome(lambda k=kind, v=value: value_of_avro(k, v))
        wrong.append((kind, f"{declared_type} {value!r}", found(row, name), right))
    assert not differences(wrong), differences(wrong)


def bare(kind: str, schema: str, folder: Path) -> Topic:
    declaration = f'kind = "changelog"\nkey = ["key"]\nschema = "{schema}"'
    fields = ['key = "string"', f'value = {{ type = "{kind}", required = false }}']
    return topic("odd", declaration, fields, folder)


@pytest.mark.parametrize("kind", TYPES)
def test_a_bare_value_from_the_registry_is_read_as_documented_or_refused(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """More than 1,300 payloads for each type: Pulsar's primitives, and bare Avro values."""
    names = list(dict.fromkeys(schema for schema, _ in PRIMITIVES))
    schemas = {version: Schema(name, "") for version, name in enumerate(names)}
    sent: list[Sent] = [("k", payload, names.index(name)) for name, payload in PRIMITIVES]
    cases = [
        (f"{name} {payload!r}", outcome(lambda n=name, p=payload: value_of_primitive(kind, n, p)))
        for name, payload in PRIMITIVES
    ]
    for declared_type, written, value in [(t, t, v) for t, v in AVRO] + UNREADABLE:
        schemas[len(schemas)] = Schema("AVRO", json.dumps(declared_type))
        sent.append(("k", avro(written, value), len(schemas) - 1))
        # A map or a record is no bare value, and these have no field that is the key.
        is_refused = declared_type != written or isinstance(value, dict)
        right = REFUSED if is_refused else outcome(lambda v=value: value_of_avro(kind, v))
        cases.append((f"{declared_type} {value!r}", right))
    rows = decoded(spark, bare(kind, "registry", tmp_path), sent, schemas)
    wrong = differences(
        (kind, case, found(row, "value"), right)
        for row, (case, right) in zip(rows, cases, strict=True)
    )
    assert not wrong, wrong


@pytest.mark.parametrize(("schema", "kind"), [("string", "string"), ("bytes", "binary")])
def test_a_bare_value_without_a_registry_is_read_as_documented_or_refused(
    spark: SparkSession, tmp_path: Path, schema: str, kind: str
) -> None:
    """The bytes are the value: more than 400 texts, and some that are not UTF-8."""
    sent = [payload for name, payload in PRIMITIVES if name == "STRING"]
    rows = decoded(spark, bare(kind, schema, tmp_path), [("k", payload) for payload in sent])
    wrong = differences(
        (
            kind,
            repr(payload),
            found(row, "value"),
            payload or None
            if kind == "binary"
            else outcome(lambda p=payload: value_of_primitive(kind, "STRING", p)),
        )
        for row, payload in zip(rows, sent, strict=True)
    )
    assert not wrong, wrong


def test_a_message_key_is_read_as_documented_or_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The messages are tombstones, whose key is text for every type."""
    texts = [*TEXTS, *(token for token in TOKENS if not token.startswith('"'))]
    wrong: list[tuple[str, str, Any, Any]] = []
    for name, kind in FIELDS.items():
        keyed = topic(name, 'kind = "changelog"\nkey = ["key"]', [f'key = "{kind}"'], tmp_path)
        for row, text in zip(decoded(spark, keyed, [(t, b"") for t in texts]), texts, strict=True):
            right = value_of_key(kind, text)
            wrong.append((kind, text, found(row, "key"), REFUSED if right is None else right))
    assert not differences(wrong), differences(wrong)


@pytest.mark.parametrize("fields", [1, 2])
def test_a_message_key_is_split_only_where_the_key_has_several_fields(
    spark: SparkSession, tmp_path: Path, fields: int
) -> None:
    """A wrong number of parts is refused, for tombstones and for bare values."""
    names = ["a", "b"][:fields]
    keys = ["A", "A|1", "|", "A|", "|1", "A|1|", "A||1", "", None, "12|34", "A|1|x"]
    for format_, payload in (("json", None), ("json", b""), ("string", b"value")):
        kept = topic(
            "kept",
            f'kind = "changelog"\nkey = {json.dumps(names)}\nschema = "{format_}"',
            [f'{name} = "string"' for name in (*names, "value")],
            tmp_path,
        )
        rows = decoded(spark, kept, [(key, payload) for key in keys])
        read = {
            key: None if row["_reason"] else tuple(row[name] for name in names)
            for key, row in zip(keys, rows, strict=True)
        }
        parts = {
            key: (key,) if fields == 1 else tuple(key.split("|")) for key in keys if key is not None
        }
        right = {key: value if len(value) == fields else None for key, value in parts.items()}
        assert read == {**right, None: None}
