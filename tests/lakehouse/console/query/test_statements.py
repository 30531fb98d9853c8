"""Tests how statements are run, kept, limited and cancelled, without Spark.

What readers may do is tested in `tests/lakehouse/sql/test_reader.py`.
"""

import csv
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from quiet_lake import QuietLake
from served_console import quiet_settings

from lakehouse.console.masking import Masking
from lakehouse.console.query.statements import AT_ONCE, KEPT, StatementError, Statements
from lakehouse.sql.reader import OFFER, Answer, Refusal

GONE = "Java is gone"


class Endless:
    """Stands for Spark: answers `select NUMBER`, and runs other statements until they are ended."""

    most_rows, most_seconds = 1000, 60

    def __init__(self) -> None:
        self.cancelled: dict[str, threading.Event] = {}
        self.masked: list[str] = []

    def run(
        self, topics: object, personal: list[str], key: str, statement: str, address: str
    ) -> Answer | Refusal:
        self.masked = personal
        if statement.startswith("select "):
            return Answer(["a", "b"], ["int", "string"], [[statement[7:], None]], False, 10)
        if statement == "break":
            raise OSError(GONE)
        assert self.cancelled.setdefault(key, threading.Event()).wait(30)
        return Refusal("Job cancelled", is_cancelled=True)

    def cancel(self, key: str) -> None:
        self.cancelled.setdefault(key, threading.Event()).set()

    def close(self) -> None:
        for event in self.cancelled.values():
            event.set()


@contextmanager
def statements(
    home: Path, *, has_token: bool = False, **own: Any
) -> Iterator[tuple[Statements, Endless]]:
    reader: Any = Endless()
    lake = QuietLake(quiet_settings(home, **own)).lake
    with OFFER.of(reader):
        found = Statements(lake, Masking(lake.topics, shows_all=False), has_token=has_token)
        yield found, reader
        found.stop()


def test_a_statement_runs_and_its_result_is_kept(tmp_path: Path) -> None:
    with statements(tmp_path) as (found, reader):
        one = found.begin('select 1,"', "127.0.0.1")
        assert one.ended.wait(10)
        assert found.get(one.key) is one
        assert [*csv.reader(one.as_csv().splitlines())] == [["a", "b"], ['1,"', ""]]
        assert one.seconds is not None
        assert "email_address" in reader.masked
        later = []
        for number in range(KEPT):
            later.append(found.begin(f"select {number}", ""))
            assert later[-1].ended.wait(10)
        assert found.get(one.key) is None
        assert found.get(later[-1].key) is later[-1]


def test_only_a_few_run_at_a_time_and_each_can_be_cancelled(tmp_path: Path) -> None:
    with statements(tmp_path) as (found, _):
        running = [found.begin("forever", "") for _ in range(AT_ONCE)]
        with pytest.raises(StatementError, match="2 statements are running"):
            found.begin("select 1", "")
        found.cancel(running[0].key)
        assert running[0].ended.wait(10)
        assert running[0].refusal == Refusal("The statement was cancelled.", is_cancelled=True)
        assert found.begin("select 1", "").ended.wait(10)
        assert found.running == running[1:]
    assert running[1].ended.wait(10)


def test_a_statement_that_takes_too_long_is_cancelled(tmp_path: Path) -> None:
    with statements(tmp_path) as (found, reader):
        reader.most_seconds = 0.05  # type: ignore[misc, assignment]
        slow = found.begin("forever", "")
        assert slow.ended.wait(10)
        assert slow.refusal is not None
        assert "cancelled after 0.05 s" in slow.refusal.why


@pytest.mark.parametrize(
    ("text", "says"),
    [(" \n", "no statement"), ("x" * 20_001, "20,000")],
    ids=["empty", "too long"],
)
def test_what_is_no_statement_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with statements(tmp_path) as (found, _), pytest.raises(StatementError, match=says):
        found.begin(text, "")


def test_an_error_of_ours_ends_the_statement(tmp_path: Path) -> None:
    with statements(tmp_path) as (found, _):
        broken = found.begin("break", "")
        assert broken.ended.wait(10)
        assert broken.refusal == Refusal(GONE)


def test_it_says_why_no_statement_can_run(tmp_path: Path) -> None:
    with statements(tmp_path) as (found, _):
        assert not found.obstacle
    assert "lakehouse up" in found.obstacle
    assert found.reader is None
    with pytest.raises(StatementError, match="No SQL endpoint runs"):
        found.begin("select 1", "")


def test_an_endpoint_with_passwords_needs_a_console_with_a_token(tmp_path: Path) -> None:
    own = {"sql_authentication": "password"}
    with statements(tmp_path / "a", **own) as (found, _):
        assert "LAKEHOUSE_CONSOLE_TOKEN_FILE" in found.obstacle
        with pytest.raises(StatementError):
            found.begin("select 1", "")
    with statements(tmp_path / "b", has_token=True, **own) as (found, _):
        assert not found.obstacle
