"""Tests which queries are refused, with which reason and line."""

import pytest

from lake.kept.query import Block, Unkept, read_query

TABLES = {"db.t": {"a": "int", "b": "int", "s": "string"}, "db.u": {"a": "int", "c": "int"}}


@pytest.mark.parametrize(
    ("sql", "reason", "line"),
    [
        ("select a from db.t limit 3", "LIMIT is not supported", None),
        ("select a,\n rand() as r from db.t", "the function rand is not known", 2),
        ("select a, current_timestamp as t from db.t", "another value in each run", None),
        ("select a, my_function(b) as x from db.t", "the function my_function is not known", 1),
        ("select a, `rand`() as x from db.t", "the function rand is not known", 1),
        ("select a, unix_timestamp() as x from db.t", "another value in each run", None),
        ("select a, first(b) as f from db.t group by a", "the function first is not known", 1),
        ("select a, collect_list(b) as l from db.t group by a", "has no order", 1),
        ("select t.a from db.t right join db.u using (a)", "right join is not supported", 1),
        ("select t.a from db.t full join db.u on t.a = u.a", "full join is not supported", 1),
        ("select t.a from db.t natural join db.u", "a NATURAL join", 1),
        ("select a, count(*) as n from db.t group by rollup (a)", "ROLLUP, CUBE", 1),
        ("select a, (select max(c) from db.u) as m from db.t", "a subquery in an expression", 1),
        ("select a from db.t where exists (select 1 from db.u where u.a = t.a)", "a subquery", 1),
        ("select a from db.t where a not in (select a from db.u)", "a subquery", 1),
        ("select a, row_number() over (partition by a) as r from db.t", "without ORDER BY", 1),
        ("select a from db.t where (a, b) in (select a, c from db.u)", "IN with several", 1),
        ("select a from db.t tablesample (5 rows)", "TABLESAMPLE and PIVOT", 1),
        ("select a from db.t version as of 3", "a fixed version", 1),
        ("select a from other.x", "other.x is no ref or source of the model", 1),
        ("select a, a from db.t", "returns the column a twice", 1),
        ("select nothing from db.t", "cannot be read", None),
        ("select a from", "cannot be read", None),
        ("delete from db.t", "it is not a SELECT", None),
        ("select a, x from db.t lateral view explode(array(1)) v as x", "LATERAL VIEW", 1),
        ("select col1 from (values (1), (2)) as v", "cannot be read", None),
    ],
)
def test_a_query_is_refused_with_its_reason(sql: str, reason: str, line: int | None) -> None:
    with pytest.raises(Unkept) as caught:
        read_query(sql, TABLES)
    assert reason in str(caught.value)
    if line is not None:
        assert caught.value.line == line


def test_names_with_backticks_stars_and_comments_are_read() -> None:
    query = read_query("-- note\nselect *, `b` + 1 as `c d` from db.t -- end", TABLES)
    assert isinstance(query.root, Block)
    assert query.root.names == ["a", "b", "s", "c d"]


def test_only_the_columns_that_are_used_count() -> None:
    query = read_query("with x as (select * from db.t) select a from x where b > 1", TABLES)
    assert isinstance(query.root, Block)
    block = query.root.sources[0].rows
    assert isinstance(block, Block)
    table = block.sources[0].rows
    assert getattr(table, "columns", None) == ["a", "b"]
