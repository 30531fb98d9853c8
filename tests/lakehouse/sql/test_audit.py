"""Tests what the audit of statements keeps, and when. `test_access.py` tests it at an endpoint."""

import json
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from lake.settings.settings import load_settings
from lakehouse.sql.audit import AuditLog, record, without_values


@pytest.mark.parametrize(
    ("statement", "kept"),
    [
        ("select 'Anna', 17 from t where a = -1.5e3", "select ?, ? from t where a = -?"),
        (
            "select * from t where n = 'O''Neil' and m = 'a\\'b'",
            "select * from t where n = ? and m = ?",
        ),
        ('select "Anna"', "select ?"),
        ("select 1 as `anna@x.org`, `user`.first_name", "select ? as ?, `user`.first_name"),
        ("select 1 -- Anna\n from t /* Anna */", "select ? ? from t ?"),
        ("select 'Anna", "select ?"),
        ("select * from t2 where x1 = 3", "select * from t2 where x1 = ?"),
        ("set spark.hadoop.fs.s3a.secret.key=Anna", "set spark.hadoop.fs.s3a.secret.key= ?"),
        ("select date'2026-01-01', X'4142', r'Anna'", "select date?, X?, r?"),
        (r"select r'\', 'Anna', R" + '"\\", "Anna"', "select r?, ?, R?, ?"),
        ("select 1 -- a \\\nAnna\n from t", "select ? ? from t"),
        ("select 1 /* a /* b */ Anna */ from t", "select ? ?"),
    ],
)
def test_no_value_of_a_statement_is_kept(statement: str, kept: str) -> None:
    assert without_values(statement) == kept


def test_of_text_that_is_no_sql_only_the_first_word_is_kept() -> None:
    assert without_values("slect Anna Kent", is_sql=False) == "slect ?"
    assert len(without_values("select a" + ", a" * 10_000)) == 4000


def note(message: str | None) -> str:
    return json.dumps(
        {
            **{"user": "rita", "role": "reader", "statement": "select 'x'", "address": "::1"},
            **{"begun_ms": 1000, "took_ms": 500, "rows": 3, "message": message},
        }
    )


@pytest.mark.parametrize(
    ("message", "outcome", "error"),
    [
        (None, "done", None),
        ("Error: lakehouse.Access$AccessDenied: The role 'reader' may not", "refused", None),
        ("[CAST_INVALID_INPUT] The value 'Anna' of", "failed", "CAST_INVALID_INPUT"),
        ("[PARSE_SYNTAX_ERROR] at Anna", "failed", "PARSE_SYNTAX_ERROR"),
    ],
)
def test_an_outcome_has_no_message(message: str | None, outcome: str, error: str | None) -> None:
    row = record(note(message))
    assert (row["outcome"], row["error"], row["rows"], row["seconds"]) == (outcome, error, 3, 0.5)
    assert "Anna" not in str(row)
    assert row["begun_at"].timestamp() == 1


def test_the_audit_goes_on_after_a_failed_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries, written = list[Any](), Event()

    def append(_: object, rows: list[dict[str, Any]], *__: object) -> None:
        tries.append(rows)
        if len(tries) <= 2:
            message = "not written"
            raise pa.ArrowInvalid(message)
        written.set()

    monkeypatch.setattr("lake.tables.table.Table.create", lambda _: None)  # which needs Spark
    monkeypatch.setattr("lakehouse.sql.audit.append_record", append)
    monkeypatch.setattr("lakehouse.sql.audit.WRITE_SECONDS", 0.01)
    monkeypatch.setattr("lakehouse.sql.audit.MOST_WAITING", 2)
    notes = [[note(None), note("[A_B] later"), note("[A_C] last")]]
    server = SimpleNamespace(endedStatements=lambda: notes.pop() if notes else [])
    log = AuditLog(cast(Any, SimpleNamespace(sql=lambda _: None)), load_settings(home=tmp_path))
    log.start(server)
    assert written.wait(10), "the audit has ended"
    log.stop()
    assert [row["error"] for row in tries[-1]] == ["A_B", "A_C"]
