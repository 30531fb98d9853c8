"""Writes the SQL of a kept model: the keys that a change affects, and the rows that differ."""

import json
from collections.abc import Iterable, Mapping, Sequence

from sqlglot import exp

from lake.kept.planner import Plan, Term
from lake.kept.query import DIALECT, Query, windows_of
from lake.quoting import identifier, literal

KEYS = "_keys"


def keys_sql(query: Query, plan: Plan, feeds: Mapping[str, str]) -> str:
    """The SQL of K: each value of the scope that may have other rows than before.

    Args:
        query: the model.
        plan: its plan.
        feeds: for each table that has changed, at least one, the SQL of the rows of its change
            feed between the version that was read last and the version to read now, with
            `_change_type` as Delta writes it.

    Returns:
        A SELECT of the columns k0, k1, ...
    """
    terms = [term for term in plan.terms if term.table in feeds]
    return terms_sql(query, terms, {term.feed: _changed(term, feeds[term.table]) for term in terms})


def terms_sql(query: Query, terms: Sequence[Term], changed: Mapping[str, str]) -> str:
    """The SQL of the values of the scope that some terms find.

    Args:
        query: the query.
        terms: terms of its plan.
        changed: the SQL of the changed rows, by the name of the feed; empty if there are relations
            with these names.

    Returns:
        A SELECT of the columns k0, k1, ...
    """
    parts = dict(changed)
    if any("" in term.through for term in terms):
        parts = {cte.alias: cte.this.sql(DIALECT) for cte in query.ctes} | parts
    named = ",\n".join(f"{name} as (\n{sql}\n)" for name, sql in parts.items())
    found = dict.fromkeys(term.select.sql(DIALECT) for term in terms)
    return (f"with {named}\n" if named else "") + "\nunion\n".join(found)


def restricted_sql(text: str, plan: Plan) -> str:
    """A query on the rows with a scope in the relation `_keys` of columns k0, k1, ...

    The outer restriction is what makes the result right. Those that are spliced into the text at
    the occurrences of tables make it cheap.

    Args:
        text: the query as its author wrote it.
        plan: its plan.
    """
    for splice in sorted(plan.splices, key=lambda each: -each.start):
        alias = f" as {splice.alias}" if splice.alias else ""
        part = f"({_restricted(text[splice.start : splice.end], splice.scope)}){alias}"
        text = text[: splice.start] + part + text[splice.end :]
    same = _same(f"_all.{identifier(name)}" for name in plan.scope)
    return f"select _all.* from (\n{text}\n) as _all left semi join {KEYS} on {same}"


def _restricted(table: str, scope: Sequence[exp.Expr]) -> str:
    """The rows of a table with a scope in `_keys`."""
    if not any(map(windows_of, scope)):
        same = _same(e.sql(DIALECT) for e in scope)
        return f"select * from {table} as _rows left semi join {KEYS} on {same}"
    # Spark knows window() only in the columns of a SELECT.
    names = [f"_scope{number}" for number in range(len(scope))]
    made = ", ".join(f"{e.sql(DIALECT)} as {n}" for e, n in zip(scope, names, strict=True))
    same = _same(f"_rows.{name}" for name in names)
    return (
        f"select * except ({', '.join(names)}) from (select *, {made} from {table}) as _rows "
        f"left semi join {KEYS} on {same}"
    )


def difference_sql(new: str, old: str, unique_key: Sequence[str], columns: Sequence[str]) -> str:
    """The rows by which a table differs from what it should hold.

    Args:
        new: SQL of the rows that it should hold.
        old: SQL of the rows that it holds.
        unique_key: the columns that identify a row.
        columns: all columns.

    Returns:
        A SELECT of the columns, and before them `_change`: "insert", "update" or "delete", or if
        the new rows have a key more than once or a NULL in a key, "twice" or "null".
    """
    key, all_of = _listed(unique_key), _listed(columns)
    keys, names = list(map(identifier, unique_key)), list(map(identifier, columns))
    same = " and ".join(f"_new._row.{name} <=> _old._row.{name}" for name in keys)
    is_null = " or ".join(f"_new._row.{name} is null" for name in keys)
    shown = ", ".join(
        f"if(_new._row is null, _old._row.{name}, _new._row.{name}) as {name}" for name in names
    )
    return f"""select
    case
        when _new._row is null then 'delete'
        when _new._times > 1 then 'twice'
        when {is_null} then 'null'
        when _old._row is null then 'insert'
        else 'update'
    end as _change, {shown}
from (
    select struct({all_of}) as _row, count(*) over (partition by {key}) as _times from (
{new}
    )
) as _new
full outer join (select struct({all_of}) as _row from ({old})) as _old on {same}
where not (_new._row <=> _old._row) or _new._times > 1 or {is_null}"""


def _changed(term: Term, feed: str) -> str:
    """The rows of a feed that differ in a column that the query uses.

    A row counts 1 where it appears and -1 where it disappears. So changes of other columns, and
    changes that were taken back, cancel out.
    """
    if not term.used:
        return f"select 1 as _one from ({feed})"
    used = _listed(term.used)
    appears = "_change_type in ('insert', 'update_postimage')"
    return (
        f"select {used} from ({feed}) group by {used}\n"
        f"having sum(case when {appears} then 1 else -1 end) <> 0"
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(identifier, names))


def _same(expressions: Iterable[str]) -> str:
    found = (f"{each} <=> {KEYS}.k{number}" for number, each in enumerate(expressions))
    return " and ".join(found)


def wrong_sql(
    difference: str, table: str | None, unique_key: Sequence[str], columns: Sequence[str]
) -> str:
    """The rows of a difference in which the unique key is NULL or comes more than once.

    Args:
        difference: as `difference_sql` gives it.
        table: the model's table if its rows with other keys must be looked at, too.
        unique_key: the columns that identify a row.
        columns: all columns.
    """
    wrong = f"select * from ({difference}) where _change in ('twice', 'null')"
    if table is None:
        return wrong
    same = " and ".join(f"_d.{name} <=> _t.{name}" for name in map(identifier, unique_key))
    return f"""{wrong}
union all
select 'twice' as _change, {_listed(columns)}
from (select * from ({difference}) where _change = 'insert') as _d
left semi join {table} as _t on {same}"""


def twice_sql(table: str, unique_key: Sequence[str], columns: Sequence[str]) -> str:
    """The rows of a table of which the unique key is wrong, as in `difference_sql`."""
    key, names = _listed(unique_key), _listed(columns)
    is_null = " or ".join(f"{identifier(name)} is null" for name in unique_key)
    return f"""select if({is_null}, 'null', 'twice') as _change, {names}
from (select *, count(*) over (partition by {key}) as _times from {table})
where _times > 1 or {is_null}"""


def merge_sql(
    table: str, difference: str, unique_key: Sequence[str], columns: Sequence[str]
) -> str:
    """The MERGE of a difference, as `difference_sql` gives it, into a table."""
    same = " and ".join(f"_t.{name} <=> _s.{name}" for name in map(identifier, unique_key))
    values = ", ".join(f"_t.{name} = _s.{name}" for name in map(identifier, columns))
    shown = ", ".join(f"_s.{name}" for name in map(identifier, columns))
    return f"""merge into {table} as _t using ({difference}) as _s on {same}
when matched and _s._change = 'delete' then delete
when matched then update set {values}
when not matched then insert ({_listed(columns)}) values ({shown})"""


def overwrite_sql(table: str, sql: str, columns: Sequence[str]) -> str:
    """The statement that replaces all rows of a table; a MERGE of most rows takes longer."""
    names = _listed(columns)
    return f"insert overwrite table {table} ({names})\nselect {names} from (\n{sql}\n)"


def kept_rows_sql(table: str, plan: Plan) -> str:
    """The rows of a model's table with a scope in the relation `_keys`."""
    same = _same(f"_t.{identifier(name)}" for name in plan.scope)
    return f"select _t.* from {table} as _t left semi join {KEYS} on {same}"


def with_keys(keys: str, sql: str) -> str:
    """SQL in which the relation `_keys` has the rows of a query."""
    return f"with {KEYS} as ({keys})\n{sql}"


def values_sql(rows: Iterable[Sequence[str | None]], kinds: Sequence[str]) -> str:
    """The SQL of rows with the columns k0, k1, ..., given as text, with their Spark types."""
    names = [f"k{number}" for number in range(len(kinds))]
    text = json.dumps([dict(zip(names, row, strict=True)) for row in rows])
    form = ", ".join(f"{name}: string" for name in names)
    given = f"inline(from_json({literal(text)}, 'array<struct<{form}>>'))"
    typed = ", ".join(f"{_from_text(n, kind)} as {n}" for n, kind in zip(names, kinds, strict=True))
    return f"select {typed} from (select {given})"


def texts_sql(columns: Mapping[str, str]) -> str:
    """The SQL of columns as text, by their names and Spark types.

    The text of an instant is the number of its microseconds, which is the same in any time zone.
    """
    return ", ".join(
        f"cast({_counted(identifier(name), kind)} as string) as {identifier(name)}"
        for name, kind in columns.items()
    )


def _counted(name: str, kind: str) -> str:
    return f"unix_micros({name})" if kind == "timestamp" else name


def _from_text(name: str, kind: str) -> str:
    if kind == "timestamp":
        return f"timestamp_micros(cast({name} as bigint))"
    return f"cast({name} as {kind})"
