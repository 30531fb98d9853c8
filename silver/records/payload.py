"""Converts payloads of all formats to JSON text, according to the topic's format and schema.

`decode.py` therefore detects missing fields and wrong types in one way for all formats. Only topics
that use the schema registry are converted in Spark's Python workers; topics with JSON text, the
default, never are.
"""

import json
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import cast

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from lake.topics.field_type import FieldType
from lake.topics.nested import Place, Tree
from lake.topics.topic import Topic
from silver.records.by_schema import PayloadError, Schema, Schemas, schema_of, text_of

_MEMBER = re.compile(r'\s*,?\s*("(?:[^"\\]|\\.)*")\s*:\s*')
_ELEMENT = re.compile(r"\s*,?\s*(?=[^\s\]])")
_JSON = json.JSONDecoder()
UTF8 = "payload is not valid UTF-8"
TEXT_TYPE = "struct<json:string,is_bare:boolean,problem:string>"


def rewritten(
    payload: bytes, kept: Tree, changed: Mapping[Place, Mapping[str, str]] = MappingProxyType({})
) -> bytes:
    """A JSON object reduced to some of its fields, with some values replaced.

    The other values are kept exactly as written. Of a struct, only the declared members are kept.

    Args:
        payload: a JSON object. If it has a field twice, the last one counts.
        kept: the fields to keep, as the payload nests them.
        changed: by path, the replacement for each value of a field that is kept, both as text.
    """
    text = payload.decode()
    return _reduced(text[text.index("{") :], kept, changed, ()).encode()


def _reduced(
    text: str, kept: Tree | FieldType, changed: Mapping[Place, Mapping[str, str]], place: Place
) -> str:
    """The text of a value without what is not declared, and with replaced values."""
    if isinstance(kept, FieldType) and kept.is_scalar:
        value, _ = _JSON.raw_decode(text)
        other = changed.get(place, {}).get(str(value))
        if other is None:
            return text
        return json.dumps(other) if isinstance(value, str) else other
    if isinstance(kept, FieldType) and kept.name == "array" and text.startswith("["):
        parts = (_reduced(each, kept.element, {}, ()) for _, each in _parts(text, _ELEMENT))
        return f"[{','.join(parts)}]"
    if not text.startswith("{"):
        return "null"  # no field can be read in it
    found = dict[str, str]()
    is_map = isinstance(kept, FieldType) and kept.name == "map"
    declared = dict(kept.parts) if isinstance(kept, FieldType) else kept
    for name, each in _parts(text, _MEMBER):
        inner = cast(FieldType, kept).element if is_map else declared.get(name)
        if inner is not None:
            found[name] = _reduced(each, inner, changed, (*place, name))
    return f"{{{','.join(f'{json.dumps(n)}:{v}' for n, v in found.items())}}}"


def _parts(text: str, before: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """The name and the text of each member of an object; the name is empty for elements."""
    place = 1
    while (match := before.match(text, place)) is not None:
        name = _JSON.raw_decode(text, match.start(1))[0] if match.groups() else ""
        _, place = _JSON.raw_decode(text, match.end())
        yield name, text[match.end() : place]


def registered_topic(topic: Topic) -> Column:
    """The full name of a message's topic if its declaration has several, else NULL.

    Each topic has schema versions of its own.
    """
    return F.col("topic") if topic.has_several else F.lit(None).cast("string")


def text_of_payload(topic: Topic, schemas: Schemas) -> Column:
    """The payload as JSON text, of type `TEXT_TYPE`. The text is NULL if the payload is empty.

    Args:
        topic: the topic of the messages, which have the columns `topic`, `payload` and
            `schema_version`.
        schemas: the known versions of the topic's schema, as `SchemaRegistry.schemas` returns them.
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


def _by_registry(topic: Topic, schemas: Schemas) -> Column:
    known: dict[str | None, dict[int, Schema]] = {}
    for (source, version), schema in schemas.items():
        known.setdefault(source, {})[version] = schema
    tree = topic.payload_tree if topic.values else {}

    def read(payloads: pa.Array, versions: pa.Array, topics: pa.Array) -> pa.Array:
        rows = []
        columns = (each.to_pylist() for each in (payloads, versions, topics))
        for payload, version, source in zip(*columns, strict=True):
            row: tuple[str | None, bool, str | None] = (None, False, None)
            if payload:
                try:
                    schema = schema_of(known.get(source, {}), version)
                    row = (*text_of(payload, schema, topic.values, tree=tree), None)
                except PayloadError as error:
                    row = (None, False, f"payload of schema version {version} {error}")
            rows.append(row)
        texts, bare, problems = zip(*rows, strict=True) if rows else ((), (), ())
        return pa.StructArray.from_arrays(
            [pa.array(texts, pa.string()), pa.array(bare), pa.array(problems, pa.string())],
            ["json", "is_bare", "problem"],
        )

    decoder = arrow_udf(read, TEXT_TYPE)  # type: ignore[call-overload]  # its stubs lack this form
    return cast(Column, decoder("payload", "schema_version", registered_topic(topic)))
