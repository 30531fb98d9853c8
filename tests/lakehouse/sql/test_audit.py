"""Tests what the audit of statements keeps of a statement. `test_access.py` tests the table."""

import json

import pytest

from lakehouse.sql.audit import record, without_values


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
        (r"select r'\', 'Anna', R"+'"\\", "Anna"', "select r?, ?, R?, ?"),
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
