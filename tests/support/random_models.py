"""Random models in Spark SQL over three small tables, and random histories of the tables."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

TABLES = {name: dict.fromkeys(("a", "b", "c"), "int") for name in ("db.t1", "db.t2", "db.t3")}
VALUES = st.one_of(st.none(), st.integers(0, 3))
ROW = st.tuples(VALUES, VALUES, VALUES)

Draw = Callable[[st.SearchStrategy[Any]], Any]
Row = tuple[int | None, ...]


@st.composite
def models(draw: Draw) -> tuple[str, list[str]]:
    """A model: its SQL, and some of its columns as the key."""
    known = {name: list(columns) for name, columns in TABLES.items()}
    parts = []
    for number in range(draw(st.integers(1, 4))):
        sql, columns = draw(st.sampled_from(BLOCKS))(draw, known)
        name = f"p{number}"
        parts.append(f"{name} as (\n    {sql}\n)")
        known[name] = columns
    text = "with " + ", ".join(parts) + f"\nselect * from {name}"
    key = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=3, unique=True))
    return text, key


@st.composite
def changes(draw: Draw, rows: dict[str, list[Row]]) -> dict[str, list[tuple[str, Row]]]:
    """Changes of some tables, as in Delta's feed. `rows` is changed with them."""
    feeds: dict[str, list[tuple[str, Row]]] = {}
    for table in draw(st.lists(st.sampled_from(sorted(rows)), min_size=1, max_size=3)):
        feed = feeds.setdefault(table, [])
        old = rows[table]
        kind = draw(st.sampled_from(["insert", "delete", "update"])) if old else "insert"
        if kind == "insert":
            row = draw(ROW)
            old.append(row)
            feed.append(("insert", row))
            continue
        place = draw(st.integers(0, len(old) - 1))
        row = old.pop(place)
        if kind == "delete":
            feed.append(("delete", row))
        else:
            new = draw(ROW)
            old.append(new)
            feed += [("update_preimage", row), ("update_postimage", new)]
    return feeds


def _source(draw: Draw, known: dict[str, list[str]]) -> tuple[str, list[str]]:
    name = draw(st.sampled_from(sorted(known, key=lambda each: not each.startswith("p"))))
    return name, known[name]


def _value(draw: Draw, columns: list[str]) -> str:
    one, other = draw(st.sampled_from(columns)), draw(st.sampled_from(columns))
    forms = [one, one, one, f"{one} + {other}", f"coalesce({one}, 0)", f"{one} % 2", "7"]
    forms.append(f"case when {one} > 1 then {other} else {one} end")
    return str(draw(st.sampled_from(forms)))


def _condition(draw: Draw, columns: list[str]) -> str:
    one, other = draw(st.sampled_from(columns)), draw(st.sampled_from(columns))
    forms = [f"{one} > 0", f"{one} is not null", f"{one} <> {other}", f"coalesce({one}, 1) < 3"]
    return str(draw(st.sampled_from(forms)))


def _where(draw: Draw, columns: list[str]) -> str:
    return f" where {_condition(draw, columns)}" if draw(st.booleans()) else ""


def _list(draw: Draw, columns: list[str]) -> tuple[str, list[str]]:
    names = [f"x{number}" for number in range(draw(st.integers(2, 4)))]
    return ", ".join(f"{_value(draw, columns)} as {name}" for name in names), names


def _projection(draw: Draw, known: dict[str, list[str]]) -> tuple[str, list[str]]:
    name, columns = _source(draw, known)
    if draw(st.booleans()):
        return f"select * from {name}{_where(draw, columns)}", columns
    values, names = _list(draw, columns)
    distinct = draw(st.sampled_from(["", "distinct "]))
    return f"select {distinct}{values} from {name}{_where(draw, columns)}", names


def _join(draw: Draw, known: dict[str, list[str]]) -> tuple[str, list[str]]:
    first, columns = _source(draw, known)
    aliases = [("s0", columns)]
    clause = f"{first} as s0"
    hidden = False
    for number in range(1, draw(st.integers(2, 3))):
        name, more = _source(draw, known)
        how = draw(st.sampled_from(["join", "left join", "left semi join", "left anti join"]))
        near, theirs = draw(st.sampled_from(aliases))
        one, other = draw(st.sampled_from(theirs)), draw(st.sampled_from(more))
        alias = f"s{number}"
        left = draw(st.sampled_from([f"{near}.{one}"] * 4 + [f"coalesce({near}.{one}, 0)"]))
        on = f"{left} {draw(st.sampled_from(['=', '=', '<=>']))} {alias}.{other}"
        if draw(st.booleans()):
            again, last = draw(st.sampled_from(theirs)), draw(st.sampled_from(more))
            on += f" and {near}.{again} {draw(st.sampled_from(['=', '<', '<>']))} {alias}.{last}"
        clause += f" {how} {name} as {alias} on {on}"
        hidden = how in ("left semi join", "left anti join")
        if not hidden:
            aliases.append((alias, more))
    values, names = _list(draw, [f"{alias}.{c}" for alias, columns in aliases for c in columns])
    visible = [f"{alias}.{c}" for alias, columns in aliases for c in columns]
    return f"select {values} from {clause}{_where(draw, visible)}", names


def _group(draw: Draw, known: dict[str, list[str]]) -> tuple[str, list[str]]:
    name, columns = _source(draw, known)
    keys = [_value(draw, columns) for _ in range(draw(st.integers(1, 2)))]
    keys = [key for key in keys if key != "7"] or [columns[0]]
    measured = draw(st.sampled_from(columns))
    calls = [f"sum({measured})", "count(*)", f"min({measured})", f"count(distinct {measured})"]
    values = [f"{key} as g{number}" for number, key in enumerate(keys)]
    values.append(f"{draw(st.sampled_from(calls))} as m")
    having = draw(st.sampled_from(["", "", " having count(*) > 1"]))
    group = ", ".join(keys)
    where = _where(draw, columns)
    text = f"select {', '.join(values)} from {name}{where} group by {group}{having}"
    return text, [*(f"g{number}" for number in range(len(keys))), "m"]


def _window(draw: Draw, known: dict[str, list[str]]) -> tuple[str, list[str]]:
    name, columns = _source(draw, known)
    by = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=2, unique=True))
    order = ", ".join(f"{c} {draw(st.sampled_from(['asc', 'desc']))} nulls first" for c in columns)
    call = draw(st.sampled_from(["row_number()", "sum(1)", "count(*)"]))
    over = f"partition by {', '.join(by)}" + (f" order by {order}" if call[0] == "r" else "")
    inner = f"select *, {call} over ({over}) as w from {name}"
    outer = draw(st.sampled_from(["", " where w <= 1", " where w > 1"]))
    return f"select * from ({inner}) as ranked{outer}", [*(c for c in columns if c != "w"), "w"]


def _union(draw: Draw, known: dict[str, list[str]]) -> tuple[str, list[str]]:
    parts = []
    for _ in range(2):
        name, columns = _source(draw, known)
        one, other = _value(draw, columns), _value(draw, columns)
        parts.append(f"select {one} as u, {other} as v from {name}{_where(draw, columns)}")
    return draw(st.sampled_from([" union all ", " union "])).join(parts), ["u", "v"]


def _member(draw: Draw, known: dict[str, list[str]]) -> tuple[str, list[str]]:
    name, columns = _source(draw, known)
    other, theirs = _source(draw, known)
    one, found = draw(st.sampled_from(columns)), draw(st.sampled_from(theirs))
    text = f"select * from {name} where {one} in (select {found} from {other}"
    return f"{text}{_where(draw, theirs)})", columns


BLOCKS = [_projection, _join, _join, _group, _window, _union, _member]
