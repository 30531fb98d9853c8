"""Tests that the keys of a plan are all that a change affects, with random models in DuckDB."""

import dataclasses
import functools
import random
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

import duckdb
import pytest
import sqlglot
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from random_models import ROW, TABLES, Row, changes, models

from lake.kept.planner import Plan, declared_plan, make_plan
from lake.kept.query import Query, Unkept, read_query
from lake.kept.statements import keys_sql, restricted_sql

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
    touched = named.keys() & {term.table for term in plan.terms}
    keys = set(run(database, keys_sql(query, plan, named))) if touched else set()
    moved = (before - after) + (after - before)
    if missed := {scope_of(plan, query, row) for row in moved} - keys:
        return f"the keys {missed} changed and are not in {keys}"
    names = ", ".join(f"k{number} int" for number in range(len(plan.scope)))
    fill(database, "_keys", names, keys)
    restricted = Counter(run(database, restricted_sql(query.text, plan)))
    wanted = Counter(
        {row: times for row, times in after.items() if scope_of(plan, query, row) in keys}
    )
    return None if restricted == wanted else f"{restricted} is not {wanted}"


MODELS = {
    "filter": ("select a, b + 1 as d from db.t1 where c > 0", ["a"]),
    "inner join": ("select x.a, y.b from db.t1 as x join db.t2 as y on x.c = y.c", ["a"]),
    "left join": ("select x.a, y.b from db.t1 as x left join db.t2 as y on x.c = y.c", ["a"]),
    "chain of joins": (
        "select x.a, z.c from db.t1 as x left join db.t2 as y on x.b = y.b "
        "left join db.t3 as z on y.c = z.a",
        ["a"],
    ),
    "join with itself": (
        "with t as (select * from db.t1) select x.a, y.c from t as x join t as y on x.b = y.a",
        ["a"],
    ),
    "semi join": ("select a, b from db.t1 where c in (select a from db.t2 where b > 0)", ["a"]),
    "anti join": ("select x.a from db.t1 as x left anti join db.t2 as y on x.b <=> y.b", ["a"]),
    "group": ("select a, sum(b) as s from db.t1 group by a having count(*) > 1", ["a"]),
    "join of a group": (
        "with g as (select a, min(b) as m from db.t1 group by a) "
        "select g.a, y.c from g join db.t2 as y on g.m = y.b",
        ["a"],
    ),
    "join of a sum": (
        "with g as (select a, sum(b) as m from db.t1 group by a) "
        "select g.a, y.c from g join db.t2 as y on g.m = y.b",
        ["a"],
    ),
    "best of each key": (
        "select a, b, c from (select *, row_number() over (partition by a order by b, c) as n "
        "from db.t1) where n = 1",
        ["a"],
    ),
    "union": ("select a, b from db.t1 union select c as a, b from db.t2", ["a"]),
    "join using": ("select a, x.b, y.c from db.t1 as x left join db.t2 as y using (a)", ["a"]),
}


def first_wrong(database: duckdb.DuckDBPyConnection, query: Query, plan: Plan) -> str | None:
    """What is wrong after one of many random changes."""
    chance = random.Random(7)

    def row() -> Row:
        return tuple(chance.choice([None, 0, 1, 2]) for _ in range(3))

    rows = {name: [row() for _ in range(5)] for name in TABLES}
    for name in TABLES:
        fill(database, name, COLUMNS, rows[name])
    for _ in range(30):
        name = chance.choice(sorted(rows))
        new, old = row(), rows[name].pop(chance.randrange(5))
        rows[name].append(new)
        feed = [("update_preimage", old), ("update_postimage", new)]
        if wrong := wrong_keys(database, query, plan, rows, {name: feed}):
            return wrong
    return None


@pytest.mark.parametrize("name", MODELS)
def test_each_class_of_sql_is_kept_and_no_term_is_dispensable(
    database: duckdb.DuckDBPyConnection, name: str
) -> None:
    text, key = MODELS[name]
    query = read_query(text, TABLES)
    plan = make_plan(query, key)
    assert first_wrong(database, query, plan) is None
    terms = list({(t.table, t.select.sql()): t for t in plan.terms}.values())
    for term in terms:
        rest = tuple(each for each in terms if each is not term)
        assert first_wrong(database, query, dataclasses.replace(plan, terms=rest)), term


@pytest.mark.parametrize(
    ("sql", "key", "reason"),
    [
        ("select a, count(*) over () as n from db.t1", ["a"], "does not partition by"),
        ("select count(*) as n from db.t1", ["n"], "made by an aggregate"),
        ("select count(*) as n from db.t1 group by a", ["n"], "made by an aggregate"),
        ("select x.a, y.b from db.t1 as x cross join db.t2 as y", ["a"], "without an equality"),
        ("select x.a from db.t1 as x join db.t2 as y on x.a < y.a", ["a"], "without an equality"),
        ("select y.a from db.t1 as x left join db.t2 as y on x.a = y.a", ["a"], "an outer join"),
        ("select x.a + y.b as k from db.t1 as x join db.t2 as y on x.c = y.c", ["k"], "several"),
        ("select explode(array(1, b)) as e from db.t1", ["e"], "made by explode"),
        (
            "select a, row_number() over (partition by b order by a) as n from db.t1",
            ["a"],
            "does not partition by",
        ),
        ("select a, sum(b) over (order by a) as s, c from db.t1", ["a"], "does not partition by"),
        ("select a from db.t1", ["z"], "does not return z"),
        ("select 1 as a", ["a"], "its key has no table"),
    ],
)
def test_a_key_that_cannot_be_followed_is_refused(sql: str, key: list[str], reason: str) -> None:
    with pytest.raises(Unkept, match=reason):
        make_plan(read_query(sql, TABLES), key)


def test_the_scope_is_the_largest_with_the_fewest_lookups() -> None:
    text = "select x.a, y.b, x.c from db.t1 as x join db.t2 as y on x.a = y.a"
    plan = make_plan(read_query(text, TABLES), ["a", "b", "c"])
    assert plan.scope == ("a",)  # with c, changes of t2 would be looked up in t1
    assert [term.through for term in plan.terms] == [(), ()]
    numbers = "select a, b, row_number() over (partition by b order by a) as n from db.t1"
    assert make_plan(read_query(numbers, TABLES), ["a"]).scope == ("b",)
    wide = make_plan(read_query("select a, b, c from db.t1", TABLES), ["a", "b"])
    assert wide.scope == ("a", "b")


def test_names_may_be_written_in_any_case() -> None:
    tables = {"db.t": {"userId": "int", "b": "int"}}
    plan = make_plan(read_query("select userId, B from DB.t", tables), ["userID"])
    assert [name.lower() for name in plan.scope] == ["userid"]


def test_a_query_that_names_the_database_of_a_column_is_restricted_from_outside_only() -> None:
    plan = make_plan(read_query("select db.t1.a from db.t1", TABLES), ["a"])
    assert plan.splices == ()
    assert make_plan(read_query("select t1.a from db.t1", TABLES), ["a"]).splices != ()


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("select b as a, count(*) as n from db.t1 group by a, b", None),
        ("select a + 1 as a, count(*) as n from db.t1 group by a", ("a",)),
        ("select a as b, b as a, count(*) as n from db.t1 group by a, b", ("a",)),
    ],
)
def test_group_by_takes_a_column_before_an_alias(
    database: duckdb.DuckDBPyConnection, text: str, scope: tuple[str, ...] | None
) -> None:
    """As Spark does."""
    query = read_query(text, TABLES)
    grouped = query.tree.args["group"].expressions
    assert {each.sql().replace("t1.", "") for each in grouped} <= {"a", "b"}


def test_a_union_may_not_convert_its_key() -> None:
    tables = {"t": {"a": "int", "b": "string"}}
    plan = make_plan(read_query("select a from t union all select null from t", tables), ["a"])
    assert len(plan.terms) == 2
    for text in (
        "select a from t union all select b from t",
        "select a from (select a from t union select a from t union all select b from t)",
    ):
        with pytest.raises(Unkept, match="the branches of a UNION give a different types"):
            make_plan(read_query(text, tables), ["a"])


def test_a_cte_may_not_hide_a_table_from_a_term() -> None:
    """Terms that look up in a CTE are run beside all CTEs; other terms know only tables."""
    tables = {"t": {"a": "int", "b": "int"}, "u": {"b": "int", "c": "int"}}
    filtered = "with t as (select * from t where b > 0) select a, count(*) as n from t group by a"
    assert [term.columns for term in make_plan(read_query(filtered, tables), ["a"]).terms] == [
        ["a"]
    ]
    text = """with t as (select a, sum(b) as b from t group by a)
        select t.a, u.c from t left join u on t.b = u.b"""
    with pytest.raises(Unkept, match="it has a CTE t with the name of a table"):
        make_plan(read_query(text, tables), ["a"])
    plan = make_plan(
        read_query(text.replace("with t ", "with s ").replace(" t left", " s as t left"), tables),
        ["a"],
    )
    assert [term.through for term in plan.terms] == [(), ("",)]


def test_a_declared_plan_restricts_each_occurrence_of_a_table() -> None:
    text = "select a from t where b > (select max(b) from `T` as x) -- no table: u"
    plan = declared_plan(text, ["a"], {"t": ["b"]})
    assert [(term.table, term.columns) for term in plan.terms] == [("t", ["b"])]
    assert [text[s.start : s.end] for s in plan.splices] == ["t", "`T`"]
    same = "left semi join _keys on `b` <=> _keys.k0"
    assert restricted_sql(text, plan).count(same) == 2
    assert declared_plan("selec a from t", ["a"], {"t": ["b"]}).splices == ()


def test_columns_of_other_types_are_compared_by_the_join_itself() -> None:
    """A number and its text may be equal in a join, and are different keys."""
    tables = {"db.t": {"a": "int"}, "db.u": {"a": "string", "b": "int"}}
    text = "select t.a, u.b from db.t as t left join db.u as u on t.a = u.a"
    plan = make_plan(read_query(text, tables), ["a"])
    assert [term.through for term in plan.terms] == [(), ("db.t",)]


def compare(database: duckdb.DuckDBPyConnection, data: st.DataObject) -> None:
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


SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=15, deadline=None, suppress_health_check=SLOW)
@given(data=st.data())
def test_no_other_rows_of_a_random_model_change(
    database: duckdb.DuckDBPyConnection, data: st.DataObject
) -> None:
    compare(database, data)


@pytest.mark.nightly
@pytest.mark.timeout(5400)
@settings(max_examples=5000, deadline=None, suppress_health_check=SLOW)
@given(data=st.data())
def test_no_other_rows_of_many_random_models_change(
    database: duckdb.DuckDBPyConnection, data: st.DataObject
) -> None:
    compare(database, data)


HOURS = "window(timestamp_seconds(b), '1 hour')"


def test_only_rows_of_the_same_tumbling_window_are_read_again() -> None:
    """Spark decides in test_keeper.py whether the rows are right."""
    columns = {name: {"a": "int", "b": "int", "c": "int"} for name in TABLES}
    for window, count in ((HOURS, 1), (HOURS.replace("hour'", "hour', '1 minute'"), 0)):
        sql = f"select window.start as w, count(*) as n from db.t1 group by {window}"
        plan = make_plan(read_query(sql, columns), ["w"])
        assert (plan.scope, len(plan.splices)) == (("w",), count)
    sql = f"""with o as (select a, {HOURS}.start as w from db.t1)
        select distinct a from o join (select c as d from db.t2) as y on o.w = y.d"""
    with pytest.raises(Unkept, match=r"a join by window\(\) is not supported"):
        make_plan(read_query(sql, columns), ["a"])
