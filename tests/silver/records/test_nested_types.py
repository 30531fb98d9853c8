"""Tests nested fields: Spark and plain Python decode the same random payloads."""

import datetime as dt
import itertools
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from nested_model import Declared, ddl, row_of, snake
from odd_values import TOKENS
from pyspark.sql import SparkSession
from silver_lake import PUBLISHED
from topic import declared
from types_model import RefusedError

from lake.topics.topic import Topic
from pulsar_spark.schema import ENVELOPE_DDL
from silver.records.decode import Decoder

PAYLOADS = 1_500  # of each topic
SCALARS = {
    "boolean": ["true", "false"],
    "int": ["0", "-7", "2147483647"],
    "long": ["1", "9007199254740993"],
    "float": ["0.1", "-2.5", "3", "1e3"],
    "double": ["0.1", "1e300", "12"],
    "decimal(12,2)": ["13.755", '"7.10"', "-3", "1e3"],
    "string": ['"x"', '"[1]"', '"12"', '"true"', '"{}"', '""', '"a\\"b]"', '"\\u00e4"', '"a}x"'],
    "binary": ['"AAEC"', '""'],
    "date": ['"2026-02-28"'],
    "timestamp": ['"2026-01-05T12:30:00Z"', '"2026-01-05"'],
    "timestamp_ms": ["1767616200000", "0"],
}
NAMES = ["a", "bC", "geo", "value", "lat", "sku"]
ODD_NAMES = ["x.y", "größe", "user-agent", "a b", "q/r", "日本"]
SPACES = ["", "", "", " ", "\n\t"]


class Maker:
    """Makes random declarations, and payloads for them of which some are broken."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        # Without a map, no text can have the name of a decimal.
        self._forms = ["array", "struct", "map"] if seed % 2 == 0 else ["array", "struct"]

    def kind(self, depth: int = 0, *, is_element: bool = False, has_decimal: bool = False) -> Any:
        rng = self._rng
        if depth < 3 and rng.random() < (0.75 if depth == 0 else 0.4):
            form = rng.choice(self._forms)
            if form != "struct":
                return form, self.kind(depth + 1, is_element=True, has_decimal=has_decimal)
            names = rng.sample(NAMES, rng.randint(1, 3))
            return form, {n: self.kind(depth + 1, has_decimal=has_decimal) for n in names}
        scalars = [k for k in SCALARS if has_decimal or not k.startswith("decimal")]
        if has_decimal and is_element:
            scalars = ["long", "boolean", "double"]
        elif has_decimal:  # beside texts of the same name, it would be refused
            scalars = ["decimal(12,2)", "long", "boolean"]
        return rng.choice(scalars)

    def fields(self) -> dict[str, Declared]:
        found = {"id": Declared("long", ("id",), is_required=True)}
        roots = itertools.cycle(["device", "meta", "x.y", "größe"])
        for number in range(8):
            name = f"f{number}"
            kind = self.kind(has_decimal=number % 4 == 3)
            if number % 2:
                kind = self._rng.choice([*SCALARS]) if number != 3 else "decimal(12,2)"
            inner = self._rng.sample(["in", "user-agent", "日本"], self._rng.randint(0, 2))
            leaf = self._rng.choice(ODD_NAMES) + str(number)
            path = (next(roots), *inner, leaf) if number % 2 else (name,)
            found[name] = Declared(kind, path, is_required=number == 1)
        if "map" in self._forms:  # a text in it may have the name of a decimal
            found["labels"] = Declared(("map", "string"), ("labels",))
        return found

    def payload(self, fields: dict[str, Declared]) -> str:
        rng = self._rng
        how = rng.random()
        tree: dict[str, Any] = {}
        errors = 0.0 if how < 0.5 else 0.03
        for each in fields.values():
            if rng.random() < 0.15 and not each.is_required:
                continue
            inner = tree
            for name in each.path[:-1]:
                inner = inner.setdefault(name, {})
            inner[each.path[-1]] = self._value(each.kind, errors)
        if "labels" in tree and how > 0.3:
            names = [each.path[-1] for each in fields.values() if "decimal" in str(each.kind)]
            tree["labels"] = self._object({names[0]: rng.choice(['"13,75"', '"n/a"'])})
        text = self._object(tree, errors)
        if how > 0.95:
            text += rng.choice([" x", "}", "]", ',{"id":2}', '{"id":2}', '],"rows":[{"id":2}', " "])
        return text

    def _object(self, members: dict[str, Any], errors: float = 0.0) -> str:
        rng = self._rng
        parts = []
        for name, value in members.items():
            if isinstance(value, dict):
                wrong = ["null", "7", "[]", '"{}"', "true", '[{"in": 1}]']
                inner = self._object(value, errors)
                value = rng.choice(wrong) if rng.random() < errors else inner
            key = json.dumps(name, ensure_ascii=rng.random() < 0.5)
            part = f"{key}{rng.choice(SPACES)}:{rng.choice(SPACES)}{value}"
            parts += [part] * (2 if rng.random() < errors / 2 else 1)
        if rng.random() < 0.2:
            extra = ['"more": {"a": [{"f0": "13,75"}]}', '"other": "}"', '"more":{"x":1,"x":2}']
            parts.append(rng.choice(extra))
        return f"{{{rng.choice(SPACES)}{', '.join(parts)}{rng.choice(SPACES)}}}"

    def _value(self, kind: Any, errors: float) -> Any:
        rng = self._rng
        if rng.random() < errors:
            return rng.choice([*TOKENS, "null", "[]", "{}", '"[1]"', "[null]", '{"a":null}'])
        if rng.random() < 0.05:
            return "null"
        if isinstance(kind, str):
            return rng.choice(SCALARS[kind])
        form, inner = kind
        if form == "struct":
            names = [name for name in inner if rng.random() < 0.9]
            return self._object({n: self._value(inner[n], errors) for n in names}, errors)
        values = [self._value(inner, errors) for _ in range(rng.randint(0, 3))]
        if form == "array":
            return f"[{rng.choice(SPACES)}{', '.join(values)}{rng.choice(SPACES)}]"
        keys = rng.sample(["a", "b", "f3", "13,75", "x y", "ü", "lat"], len(values))
        return self._object(dict(zip(keys, values, strict=True)))


def topic_of(fields: dict[str, Declared], folder: Path) -> Topic:
    lines = [
        f"{name} = {{ type = {json.dumps(ddl(each.kind))}, required = "
        f"{json.dumps(each.is_required)}, path = {json.dumps([*each.path])} }}"
        for name, each in fields.items()
    ]
    text = '[topics.t]\nkind = "events"\nkey = ["id"]\n[topics.t.fields]\n' + "\n".join(lines)
    return declared(folder, text).topics["t"]


def decoded(
    spark: SparkSession, topic: Topic, payloads: Sequence[str | bytes]
) -> list[dict[str, Any]]:
    """Return the decoded rows in message order; `_reason` is set for refused messages."""
    raw = [p.encode("utf-8", "surrogatepass") if isinstance(p, str) else p for p in payloads]
    rows = [
        ("t", 0, 1, n, 0, None, p, None, PUBLISHED, None, {}, None, None, None, None)
        for n, p in enumerate(raw)
    ]
    found = Decoder(topic).rows(spark.createDataFrame(rows, ENVELOPE_DDL))
    read: list[dict[str, Any]] = found.toArrow().to_pylist()
    return sorted(read, key=lambda row: row["position"]["entry"])


def plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.timezone.utc)
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(plain, value))
    return value


def differences(
    fields: dict[str, Declared], payloads: list[str], rows: list[dict[str, Any]]
) -> Iterator[str]:
    for payload, row in zip(payloads, rows, strict=True):
        try:
            right: Any = row_of(fields, payload)
        except RefusedError:
            right = "refused"
        found: Any = "refused"
        if row["_reason"] is None:
            found = {name: plain(row[snake(name)]) for name in fields}
        if repr(found) != repr(right):
            yield f"{payload}\n  {found}\n  is not {right}\n  ({row['_reason']})"


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 4))]
)
def test_silver_and_plain_python_decode_the_same_payloads(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    maker = Maker(seed)
    fields = maker.fields()
    payloads = [maker.payload(fields) for _ in range(PAYLOADS)]
    rows = decoded(spark, topic_of(fields, tmp_path), payloads)
    odd = [*differences(fields, payloads, rows)]
    assert not odd, "\n".join([f"{len(odd)} differ", *map(str, fields.items()), *odd[:5]])
    refused = sum(row["_reason"] is not None for row in rows)
    assert PAYLOADS // 10 < refused < PAYLOADS * 3 // 4
