"""Tests the calls of functions: their values, and that a failure rejects one row only."""

import datetime as dt
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from lake.functions.calls import FunctionCalls, is_of_type
from pulsar_spark.errors import SettingsError

UTC = dt.timezone.utc
NOON = dt.datetime(2026, 3, 1, 12, tzinfo=UTC)
SOURCE = """from __future__ import annotations
from dataclasses import dataclass

@dataclass
class Parts:
    first: str

def first(text, n=1):
    if n == 0:
        raise SystemExit("secret " + text)
    return Parts(text[n - 1]).first

def same(value):
    return value
"""


def calls(name: str, kinds: list[pa.DataType], returns: pa.DataType, **more: Any) -> FunctionCalls:
    more = {"skips_nulls": True, "source": SOURCE, **more}
    return FunctionCalls(name, "own/text.py", more.pop("source"), kinds, returns, **more)


def results(function: FunctionCalls, *arguments: pa.Array, wanted: Any = None) -> list[Any]:
    given = wanted or [True] * len(arguments[0])
    found = function.results(pa.array(given), *arguments).to_pylist()
    return [(row["value"], row["failure"]) for row in found]


def test_each_row_has_a_value_or_says_why_not() -> None:
    function = calls("first", [pa.string(), pa.int64()], pa.string())
    texts, numbers = pa.array(["ab", "cd", "e", None, "f", ""]), pa.array([1, 2, 0, 1, None, 1])
    assert results(function, texts, numbers) == [
        *(("a", None), ("d", None)),
        (None, "first raised SystemExit in own/text.py, line 10"),
        *((None, None), (None, None)),
        (None, "first raised IndexError in own/text.py, line 11"),
    ]
    assert (
        results(function, texts, numbers, wanted=[False, None, False, True, True, False])
        == [(None, None)] * 6
    )


def test_null_is_passed_if_declared() -> None:
    source = "def is_none(value): return value is None"
    function = calls("is_none", [pa.int32()], pa.bool_(), skips_nulls=False, source=source)
    assert results(function, pa.array([None, 1], pa.int32())) == [(True, None), (False, None)]


MANY = pa.struct(
    {
        "list": pa.list_(pa.timestamp("us", "UTC")),
        "map": pa.map_(pa.string(), pa.decimal128(5, 2)),
        "day": pa.date32(),
        "bytes": pa.binary(),
    }
)


def test_values_keep_their_types_and_instants_are_in_utc() -> None:
    source = "def kinds(value, at): return f'{value!r} {at!r}'"
    value = {"list": [NOON], "map": {"k": Decimal("1.50")}, "day": NOON.date(), "bytes": b"\0"}
    berlin = pa.array([NOON], pa.timestamp("us", "Europe/Berlin"))
    one = pa.array([value], MANY)
    [(same, failure)] = results(calls("same", [MANY], MANY), one)
    assert failure is None
    assert {**same, "map": dict(same["map"])} == value
    function = calls("kinds", [MANY, pa.timestamp("us", "UTC")], pa.string(), source=source)
    [(text, _)] = results(function, one, berlin)
    assert "'map': {'k': Decimal('1.50')}" in text
    assert text.count("datetime.datetime(2026, 3, 1, 12, 0") == 2


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (pa.int32(), [5, -1], [True, 1.0, "1", Decimal(1), 2**31]),
        (pa.int64(), [2**63 - 1], [2**63]),
        (pa.float64(), [1, 0.5], ["1", True, Decimal(1)]),
        (pa.decimal128(4, 1), [1, Decimal("1.5")], [1.5, "1", Decimal("1.55"), Decimal(5000)]),
        (pa.string(), ["", "ü"], [b"x", 1, "\ud800"]),
        (pa.binary(), [b"\xff"], ["x"]),
        (pa.bool_(), [True], [1, "true"]),
        (pa.date32(), [NOON.date()], [NOON, 5, "2026-01-01"]),
        (pa.timestamp("us", "UTC"), [NOON], [NOON.date(), 5]),
        (pa.list_(pa.int64()), [[1, None], (2,), []], [{1}, "ab", [1.5], 1]),
        (pa.struct({"a": pa.int64()}), [{"a": 1}, {}], [{"b": 1}, [1], {"a": "x"}]),
        (pa.map_(pa.string(), pa.int64()), [{"k": 1}], [{1: 1}, {"k": "x"}, [("k", 1)]]),
    ],
)
def test_a_result_of_another_type_rejects_the_row(
    kind: pa.DataType, good: list[Any], bad: list[Any]
) -> None:
    each = [*good, *bad]
    source = f"import datetime\nfrom decimal import Decimal\nEACH = {each!r}\n"
    source += "def at(n): return EACH[n]"
    found = results(calls("at", [pa.int64()], kind, source=source), pa.array(range(len(each))))
    assert [failure for _, failure in found[: len(good)]] == [None] * len(good)
    assert all("returned a value" in str(failure) for _, failure in found[len(good) :]), found
    assert is_of_type(None, kind)


def test_a_file_that_cannot_be_loaded_rejects_nothing() -> None:
    source = "import os\nimport nothing_like_this\ndef f(a): ..."
    with pytest.raises(SettingsError, match=r"own/text.py, line 2: cannot be loaded: ModuleNot"):
        results(calls("f", [pa.int64()], pa.int64(), source=source), pa.array([1]))
    source = "def f(a): ...\nf = 3"
    with pytest.raises(SettingsError, match="'f' is no function once the file has been loaded"):
        calls("f", [], pa.int64(), source=source).load()


def test_a_process_without_the_project_can_call_it(tmp_path: Path) -> None:
    """As a Python worker on another machine, which has this package but not the project."""
    function = calls("first", [pa.string(), pa.int64()], pa.string())
    (tmp_path / "pickled").write_bytes(cloudpickle.dumps(function))
    program = (
        "import pickle, sys, pyarrow as pa\n"
        "function = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print(function.results(pa.array([True]), pa.array(['xy']), pa.array([2])).to_pylist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "pickled"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[{'value': 'y', 'failure': None}]"
