"""Tests how results are printed for people and for programs."""

import csv
import datetime as dt
import io
import json
from decimal import Decimal

import pytest
from rich.console import Console

from lake.settings import log_format
from lakehouse.runtime.terminal import as_table, jar_progress, print_rows, step

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
    table = as_table((*COLUMNS, "flag"), [(*row, True) for row in ROWS], width=80)
    assert [column.justify for column in table.columns] == ["left", "right", *["left"] * 3]


def test_a_step_says_how_long_it_took(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with step("Working"):
        pass
    assert capsys.readouterr().err == "Working 0.0 s\n"
    told: list[str] = []
    monkeypatch.setattr("lakehouse.runtime.terminal.log.info", told.append, raising=False)
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


def lines_of(columns: tuple[str, ...], rows: list[tuple[object, ...]], width: int) -> list[str]:
    shown = Console(width=width, file=io.StringIO())
    with shown.capture() as captured:
        shown.print(as_table(columns, rows, width=width))
    return captured.get().splitlines()


def test_names_stay_whole_on_a_line_of_80_characters() -> None:
    columns = ("table", "rows", "newest message", "lag (messages)", "note")
    note = "117178 in = 117178 applied; set LAKEHOUSE_URL"
    rows: list[tuple[object, ...]] = [
        ("silver.enriched_orders", 47402, "86400 s", 0, note),
        ("silver.missing_item", 117178, None, None, ""),
    ]
    lines = lines_of(columns, rows, 80)
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for word in ("silver.enriched_orders", "silver.missing_item", "LAKEHOUSE_URL", "117178"):
        assert word in text
    assert "silver.enriched_orders" in "\n".join(lines_of(columns, rows, 70))


def test_a_line_that_is_wide_enough_wraps_nothing() -> None:
    rows: list[tuple[object, ...]] = [("a b", "some words of a note", 1)]
    assert len(lines_of(("one column", "note", "n"), rows, 60)) == 5
    assert len(lines_of(("one column", "note", "n"), rows, 25)) > 5


def test_a_word_longer_than_the_line_is_folded() -> None:
    lines = lines_of(("a", "b"), [("x" * 100, "y")], 40)
    assert max(map(len, lines)) <= 40
    assert "".join(lines).count("x") == 100


def test_cells_are_neither_markup_nor_commands_for_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cells = ("[true]", "[null, 1]", "[/x]", "[bold]a", "a\x1b[31mb\x07\r\x9b", "\udc80")
    print_rows(("value",), [(cell,) for cell in cells])
    shown = [line.strip("│ ") for line in capsys.readouterr().out.splitlines()[3:-1]]
    assert shown == [*cells[:4], "a\\x1b[31mb\\x07\\r\\x9b", "\\udc80"]
