"""Converts payloads of all formats to JSON text, according to the topic's format and schema.

`decode.py` therefore detects missing fields and wrong types in one way for all formats. Only topics
that use the schema registry are converted in Spark's Python workers; topics with JSON text, the
default, never are.
"""

import json
import re
from collections.abc import Collection, Mapping
from typing import cast

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from lake.topics.topic import Topic
from silver.records.by_schema import PayloadError, Schema, Schemas, schema_of, text_of

_MEMBER = re.compile(r'\s*,?\s*("(?:[^"\\]|\\.)*")\s*:\s*')
UTF8 = "payload is not valid UTF-8"
TEXT_TYPE = "struct<json:string,is_bare:boolean,problem:string>"


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
    types = {name: spec.type for name, spec in topic.fields.items()}

    def read(payloads: pa.Array, versions: pa.Array, topics: pa.Array) -> pa.Array:
        rows = []
        columns = (each.to_pylist() for each in (payloads, versions, topics))
        for payload, version, source in zip(*columns, strict=True):
            row: tuple[str | None, bool, str | None] = (None, False, None)
            if payload:
                try:
                    schema = schema_of(known.get(source, {}), version)
                    row = (*text_of(payload, schema, topic.values, types=types), None)
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
