"""Tests that the keys of a plan are all that a change affects, with random models in DuckDB."""

import functools
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

import duckdb
import pytest
import sqlglot
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from random_models import ROW, TABLES, Row, changes, models

from gold.kept.planner import Plan, make_plan
from gold.kept.query import Query, Unkept, read_query
from gold.kept.statements import keys_sql, restricted_sql

COLUMNS = "a int, b int, c int"


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("create schema db")
        connection.execute("set threads = 1")
        yield connection


def run(database: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    return database.execute(for_duckdb(sql)).fetchall()


@functools.lru_cache(maxsize=100)
def for_duckdb(sql: str) -> str:
    (text,) = sqlglot.transpile(sql, read="spark", write="duckdb")
    return text


def fill(
    database: duckdb.DuckDBPyConnection, name: str, columns: str, rows: Collection[tuple[Any, ...]]
) -> None:
    database.execute(f"create or replace table {name} ({columns})")
    if rows:
        values = ", ".join("(" + ", ".join(map(shown, row)) + ")" for row in rows)
        database.execute(f"insert into {name} values {values}")


def shown(value: Any) -> str:
    return "null" if value is None else repr(value)


def scope_of(plan: Plan, query: Query, row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(row[query.root.names.index(name)] for name in plan.scope)


def wrong_keys(
    database: duckdb.DuckDBPyConnection,
    query: Query,
    plan: Plan,
    rows: dict[str, list[Row]],
    feeds: dict[str, list[tuple[str, Row]]],
) -> str | None:
    """Apply changes, and compare what the plan finds with two full runs of the query."""
    before = Counter(run(database, query.text))
    named = {}
    for table, feed in feeds.items():
        fill(database, table, COLUMNS, rows[table])
        changed = [(kind, *row) for kind, row in feed]
        fill(database, f"f_{table[3:]}", f"_change_type text, {COLUMNS}", changed)
        named[table] = f"select * from f_{table[3:]}"
    after = Counter(run(database, query.text))
    found = keys_sql(query, plan, named)
    keys = set(run(database, found)) if found else set()
    moved = (before - after) + (after - before)
    if missed := {scope_of(plan, query, row) for row in moved} - keys:
        return f"the keys {missed} changed and are not in {keys}"
    names = ", ".join(f"k{number} int" for number in range(len(plan.scope)))
    fill(database, "_keys", names, keys)
    restricted = Counter(run(database, restricted_sql(query, plan)))
    wanted = Counter(
        {row: times for row, times in after.items() if scope_of(plan, query, row) in keys}
    )
    return None if restricted == wanted else f"{restricted} is not {wanted}"


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_no_other_rows_of_a_random_model_change(
    database: duckdb.DuckDBPyConnection, data: st.DataObject
) -> None:
    text, key = data.draw(models())
    try:
        query = read_query(text, TABLES)
        plan = make_plan(query, key)
    except Unkept as error:
        event(f"full: {error.reason[:30]}")
        return
    event("kept")
    rows = {name: data.draw(st.lists(ROW, max_size=6)) for name in TABLES}
    for name in TABLES:
        fill(database, name, COLUMNS, rows[name])
    for _ in range(4):
        feeds = data.draw(changes(rows))
        wrong = wrong_keys(database, query, plan, rows, feeds)
        assert wrong is None, f"{wrong}\n{text}\nscope {plan.scope}"
