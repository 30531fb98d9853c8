"""Tests how results are printed for people and for programs."""

import csv
import datetime as dt
import io
import json
from decimal import Decimal

import pytest

from lake.settings import log_format
from lakehouse.runtime.console import as_table, jar_progress, print_rows, step

COLUMNS = ("name", "number", "when", "deep")
ROWS = [
    ('a "b", c', Decimal("1.50"), dt.date(2026, 1, 2), {"x": [1, None]}),
    (None, 2, None, None),
]


def test_csv_can_be_read_by_other_programs(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(COLUMNS, ROWS, "csv", title="not printed")
    assert list(csv.reader(io.StringIO(capsys.readouterr().out))) == [
        [*COLUMNS],
        ['a "b", c', "1.50", "2026-01-02", '{"x": [1, null]}'],
        ["", "2", "", ""],
    ]


def test_json_keeps_null_and_the_digits_of_decimals(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(
        ("id", "price", "bytes", "yes"), [(1, Decimal("1.50"), b"\xff", True), [None] * 4], "json"
    )
    assert json.loads(capsys.readouterr().out) == [
        {"id": 1, "price": "1.50", "bytes": "\\xff", "yes": True},
        dict.fromkeys(("id", "price", "bytes", "yes")),
    ]


def test_only_columns_with_numbers_are_aligned_to_the_right() -> None:
    table = as_table((*COLUMNS, "flag"), [(*row, True) for row in ROWS])
    assert [column.justify for column in table.columns] == ["left", "right", *["left"] * 3]


def test_a_step_says_how_long_it_took(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with step("Working"):
        pass
    assert capsys.readouterr().err == "Working 0.0 s\n"
    told: list[str] = []
    monkeypatch.setattr("lakehouse.runtime.console.log.info", told.append, raising=False)
    log_format.use_format("json")
    try:
        with step("Working"):
            pass
    finally:
        log_format.use_format("text")
    assert told == ["Working 0.0 s"]


def test_progress_in_a_log_is_shown_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    with jar_progress("Fetching") as show:
        for done in range(1, 121):
            show(done, 120, f"{done}.jar")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"Fetching: {n} of 120 ({n}.jar)" for n in (50, 100, 120)]
