"""Derives which keys of a model a change of its sources can affect.

The plan of a model has a scope: some of its columns, if possible of its unique key. For each
occurrence of a table in the query, the plan has a term: SQL that finds, for the changed rows of the
table, values of the scope. The union K of all terms contains each value of the scope for which the
model has other rows after the change than before. So only the rows of the model with a scope in K
are computed again.

The scope comes from columns of one source of each block, the anchor. K is a superset because of two
rules, applied from the outermost block to the tables:

- direct: if the rows of a block with the scope k depend only on those rows of a source whose
  expression e is k, a changed row affects only its own e, before or after the change.
- lookup: if a source is joined with the anchor by `a.x = b.y`, a changed row of b affects the rows
  of a in which x is the y of the changed row. Those that did not change are found in the current
  rows of a. Those that did are found by the term of a.

A block that groups, removes duplicates or ranks obeys them if the scope is made from the columns by
which it groups or partitions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from lake.kept.query import (
    Block,
    Query,
    Source,
    Table,
    Union,
    Unkept,
    alias_to_add,
    is_aggregate,
    name_of,
    names_of,
    occurrences,
    place_of,
    refuse,
    tables_of,
    windows_of,
)

EXPLODED = (exp.Explode, exp.Posexplode, exp.Inline)  # one row becomes several

Exprs = tuple[exp.Expr, ...]
Rows = Table | Block | Union


@dataclass(frozen=True)
class Term:
    """SQL that finds values of the scope for the changed rows of one occurrence of a table.

    table: the name of the table.
    used: its columns that the query uses.
    feed: the name under which `select` reads the changed rows of the table.
    select: a SELECT with the columns k0, k1, ... of the scope.
    through: the tables in which values are looked up; empty for a direct term.
    line: line of the model in which the table occurs.
    """

    table: str
    used: tuple[str, ...]
    feed: str
    select: exp.Select
    through: tuple[str, ...]
    line: int | None

    @property
    def columns(self) -> list[str] | None:
        """The columns of the table that are the scope; None if `select` has to be run."""
        values = [each.this for each in self.select.expressions]
        if self.through or not all(isinstance(value, exp.Column) for value in values):
            return None
        return [value.name for value in values]


@dataclass(frozen=True)
class Splice:
    """An occurrence of a table of which the rows with a scope outside K are not needed.

    start, end: the table's name is `text[start:end]` of the query.
    alias: a name to add after it; None if the author gave one.
    scope: the values of the scope, as expressions of the table's columns.
    """

    start: int
    end: int
    alias: str | None
    scope: Exprs


@dataclass(frozen=True)
class Plan:
    """How a model is kept.

    scope: columns of the model.
    terms: one or more for each occurrence of a table.
    splices: where the query can be restricted to K.
    """

    scope: tuple[str, ...]
    terms: tuple[Term, ...]
    splices: tuple[Splice, ...]

    @property
    def tables(self) -> list[str]:
        """The tables that the model reads, each once."""
        return list(dict.fromkeys(term.table for term in self.terms))


def make_plan(query: Query, unique_key: Sequence[str]) -> Plan:
    """Make the plan with the fewest lookups, then with the most splices, then of the largest scope.

    The scope is a part of the unique key, or if none can be followed, another column: the numbers
    of the orders of a customer depend on the orders of that customer.

    Args:
        query: the model.
        unique_key: the columns that identify its rows.

    Raises:
        Unkept: no column can be the scope; the reason is that of the last column of the key.
    """
    names = {name.lower(): name for name in query.root.names}
    missing = [name for name in unique_key if name.lower() not in names]
    if missing:
        refuse(f"it does not return {names_of(missing)} of its unique_key")
    key = [names[name.lower()] for name in unique_key]
    others = [(name,) for name in query.root.names if name not in key]
    parts = [c for n in range(len(key), 0, -1) for c in itertools.combinations(key, n)]
    reasons: list[Unkept] = []
    for scopes in (parts, others):
        plans: list[Plan] = []
        for scope in scopes:
            try:
                plan = _Planner(query, scope).plan()
                _require_distinct_names(query, plan)
                plans.append(plan)
            except Unkept as error:
                reasons.append(error)
        if plans:
            return min(plans, key=_cost)
    raise reasons[len(parts) - 1]


def _require_distinct_names(query: Query, plan: Plan) -> None:
    """Check that a CTE that has to be read hides no table from a term."""
    if any("" in term.through for term in plan.terms):
        for cte in query.ctes:
            if cte.alias.lower() in plan.tables:
                refuse(f"it has a CTE {cte.alias} with the name of a table", cte)


def declared_plan(text: str, key: Sequence[str], sources: Mapping[str, Sequence[str]]) -> Plan:
    """The plan of a query whose author says which columns of its tables form the key.

    A row of the result then depends only on rows with its key, which nothing checks. A query that
    cannot be parsed is restricted only from outside.

    Args:
        text: the query.
        key: the columns that identify its rows.
        sources: for each table that it reads, by its name in lower case, the columns that form the
            key, in the same order.
    """
    scopes = {
        name: tuple(exp.column(column, quoted=True) for column in columns)
        for name, columns in sources.items()
    }
    terms = []
    for number, (name, scope) in enumerate(scopes.items()):
        feed = f"_feed_{number}"
        select = exp.select(*_numbered(scope, "k")).distinct().from_(exp.to_identifier(feed))
        used = tuple(dict.fromkeys(sources[name]))
        terms.append(Term(name, used, feed, select, (), None))
    try:
        tables = occurrences(text)
    except Unkept:
        tables = []
    splices = [
        Splice(*place, alias_to_add(table), scopes[name_of(table)])
        for table in tables
        if name_of(table) in scopes and (place := place_of(table)) is not None
    ]
    return Plan(tuple(key), tuple(terms), tuple(splices))


def _cost(plan: Plan) -> tuple[int, int]:
    return sum(bool(term.through) for term in plan.terms), -len(plan.splices)


@dataclass
class _Terms:
    """What is found while the query is walked from the outermost block to the tables."""

    terms: list[Term] = field(default_factory=list)
    feeds: dict[tuple[str, tuple[str, ...]], str] = field(default_factory=dict)
    direct: dict[int, set[str] | None] = field(default_factory=dict)
    tables: dict[int, tuple[Table, Exprs]] = field(default_factory=dict)


class _Planner:
    def __init__(self, query: Query, scope: tuple[str, ...]) -> None:
        self._query = query
        self._scope = scope
        self._found = _Terms()

    def plan(self) -> Plan:
        keys = tuple(exp.column(name) for name in self._scope)
        self._affected(self._query.root, keys, _Path())
        if not self._found.terms:
            refuse("it reads no table")
        splices = [
            self._splice(*self._found.tables[place])
            for place, ways in self._found.direct.items()
            if ways is not None and len(ways) == 1 and self._query.names_tables_by_alias
        ]
        return Plan(self._scope, tuple(self._found.terms), tuple(s for s in splices if s))

    def _splice(self, table: Table, scope: Exprs) -> Splice | None:
        slides = any(len(call.expressions) > 2 for key in scope for call in windows_of(key))
        place = place_of(table.node)
        if slides or place is None:
            return None  # of a sliding window, a row is in several
        start, end = place
        own = self._query.text[start:end].lower().replace("`", "")
        if own != table.name:
            return None
        return Splice(start, end, alias_to_add(table.node), scope)

    def _affected(self, rows: Rows, keys: Exprs, path: _Path) -> None:
        """Find the terms of all tables below some rows.

        Args:
            rows: a part of the query.
            keys: expressions of its columns.
            path: how the values of the scope are found for values of `keys`.
        """
        if isinstance(rows, Table):
            self._leaf(rows, keys, path)
        elif isinstance(rows, Union):
            _require_one_type(rows, keys)
            for branch in rows.branches:
                self._affected(branch, tuple(_renamed(k, rows, branch) for k in keys), path)
        else:
            self._block(rows, keys, path)

    def _leaf(self, table: Table, keys: Exprs, path: _Path) -> None:
        number = len(self._found.terms)
        uses = table.name, tuple(table.columns)
        feed = self._found.feeds.setdefault(uses, f"_feed_{len(self._found.feeds)}")
        changed = exp.select(*_numbered(keys, "k" if path.is_direct else "v")).distinct()
        term = path.finish(changed.from_(exp.to_identifier(feed)))
        line = table.node.this.meta.get("line")
        self._found.terms.append(
            Term(table.name, tuple(table.columns), feed, term, path.through, line)
        )
        place = table.node.this.meta.get("start", -1 - number)
        way = "|".join(key.sql(dialect="spark") for key in keys)
        ways = self._found.direct.setdefault(place, set())
        self._found.tables[place] = table, keys
        if not path.is_direct:
            self._found.direct[place] = None
        elif ways is not None:
            ways.add(way)

    def _block(self, block: Block, keys: Exprs, path: _Path) -> None:
        inner = tuple(_inside(block, key) for key in keys)
        _require_grouped(block, inner)
        joined = _Joined(block, inner)
        for source in block.sources:
            if not any(True for _ in tables_of(source.rows)):
                continue  # it never changes
            if source in joined.direct:
                self._affected(source.rows, _outside(joined.direct[source]), path)
            else:
                near, pairs = joined.links[source]
                far = _outside(tuple(theirs for _, theirs, _ in pairs))
                self._affected(source.rows, far, joined.path_from(near, pairs, path))


@dataclass(frozen=True)
class _Path:
    """How values of the scope are found for values of some expressions: by lookups, one in another.

    steps: from the changed table to the scope. Each takes a SELECT with the columns v0, v1, ... and
        gives another one.
    through: the tables in which they look; "" for a block of the query.
    """

    steps: tuple[Callable[[exp.Select], exp.Select], ...] = ()
    through: tuple[str, ...] = ()

    @property
    def is_direct(self) -> bool:
        return not self.steps

    def finish(self, changed: exp.Select) -> exp.Select:
        for step in self.steps:
            changed = step(changed)
        return changed


Pair = tuple[exp.Expr, exp.Expr, type[exp.Expr]]  # ours, theirs, = or <=>


class _Joined:
    """How the sources of a block are linked with the scope.

    direct: for each source that is linked by equality, the scope as expressions of its columns.
    links: for each other source, the one through which it is looked up, and the equalities.
    """

    def __init__(self, block: Block, keys: Exprs) -> None:
        self._block = block
        self.direct: dict[Source, Exprs] = {}
        self.links: dict[Source, tuple[Source, list[Pair]]] = {}
        self._sources = {source.alias: source for source in block.sources}
        self._choose_anchor(keys)
        self._link()

    def _choose_anchor(self, keys: Exprs) -> None:
        """Find the source whose columns give the scope."""
        keys = tuple(key.copy().transform(self._without_using) for key in keys)
        for source in self._block.sources:
            if source.is_preserved:
                found = self._rewritten(keys, source)
                if found is not None:
                    self.direct[source] = found
                    self._anchor = source
                    self._keys = found
                    return
        names = sorted({c.table for key in keys for c in key.find_all(exp.Column)})
        if not self._block.sources:
            refuse("its key has no table", self._block.select)
        reason = "an outer join" if any(self._is_optional(n) for n in names) else "several tables"
        refuse(f"its key comes from {reason}", keys[0] if keys else None)

    def _without_using(self, node: exp.Expr) -> exp.Expr:
        """For the column of USING, which sqlglot writes as coalesce(a.x, b.x): a.x."""
        if isinstance(node, exp.Coalesce) and len(node.expressions) == 1:
            ours, theirs = node.this, node.expressions[0]
            for condition, join in self._conditions():
                if join is None or join.how != "left":
                    continue
                if {ours, theirs} == {condition.this, condition.args.get("expression")}:
                    return ours.copy() if _aliases(theirs) == {join.alias} else node
        return node

    def _is_optional(self, alias: str) -> bool:
        return alias in self._sources and not self._sources[alias].is_preserved

    def _link(self) -> None:
        """Link all other sources, each with one that is linked already."""
        waiting = [
            source
            for source in self._block.sources
            if source is not self._anchor and any(True for _ in tables_of(source.rows))
        ]
        while waiting:
            for source in waiting:
                found = self._rewritten(self._keys, source)
                if found is not None:
                    self.direct[source] = found
                    break
            else:
                source = self._look_up(waiting)
            waiting.remove(source)

    def _look_up(self, waiting: list[Source]) -> Source:
        for source in waiting:
            for near in self._block.sources:
                if near is self._anchor or near in self.direct or near in self.links:
                    pairs = [*self._equalities(near, source)]
                    if pairs:
                        self.links[source] = near, pairs
                        return source
        source = waiting[0]
        refuse(f"{source.alias} is joined without an equality of columns", source.node)

    def path_from(self, near: Source, pairs: list[Pair], path: _Path) -> _Path:
        """The way from values of `theirs` of the pairs to the scope, through a linked source."""
        ours = tuple(own for own, _, _ in pairs)
        same = tuple(kind for _, _, kind in pairs)
        direct = self.direct.get(near)
        if direct is not None:
            return _through(near.rows, _outside(direct), _outside(ours), same, path)
        further, more = self.links[near]
        beyond = self.path_from(further, more, path)
        wanted = _outside(tuple(theirs for _, theirs, _ in more))
        return _through(near.rows, wanted, _outside(ours), same, beyond)

    def _equalities(self, near: Source, far: Source) -> Iterator[Pair]:
        """The equalities that hold for joined rows of two sources."""
        for condition, join in self._conditions():
            if not isinstance(condition, (exp.EQ, exp.NullSafeEQ)):
                continue
            for ours, theirs in (
                (condition.left, condition.right),
                (condition.right, condition.left),
            ):
                if _aliases(ours) != {near.alias} or _aliases(theirs) != {far.alias}:
                    continue
                if join is not None and not join.is_preserved and join is not far:
                    continue  # of an outer join, it holds only for the joined rows
                if join is not far and not (near.is_preserved and far.is_preserved):
                    continue
                if not near.is_preserved and not _is_strict(condition, ours):
                    continue  # it may hold for a row of `far` and no row of `near`
                if _is_computable(ours) and _is_computable(theirs):
                    yield ours, theirs, type(condition)

    def _conditions(self) -> Iterator[tuple[exp.Expr, Source | None]]:
        for source in self._block.sources:
            for condition in source.on:
                yield condition, source
        for condition in self._block.conditions:
            yield condition, None

    def _rewritten(self, keys: Exprs, source: Source) -> Exprs | None:
        """The keys as expressions of a source's columns; None if they are not equal to such."""
        same = self._same_as(source)
        found = []
        for key in keys:
            copy = key.copy()
            for column in list(copy.find_all(exp.Column)):
                if column.table == source.alias:
                    continue
                other = same.get(column.sql())
                if other is None:
                    return None
                if column is copy:
                    copy = other.copy()
                else:
                    column.replace(other.copy())
            found.append(copy)
        return tuple(found)

    def _same_as(self, source: Source) -> dict[str, exp.Column]:
        """For columns of other sources, the column of a source that is equal in all joined rows."""
        same: dict[str, exp.Column] = {}
        while True:
            before = len(same)
            for near in self._block.sources:
                for far in self._block.sources:
                    if near is far:
                        continue
                    for ours, theirs, _ in self._equalities(near, far):
                        if not isinstance(ours, exp.Column) or not isinstance(theirs, exp.Column):
                            continue
                        if ours.type != theirs.type or _is_approximate(ours):
                            continue
                        if far is source:
                            same.setdefault(ours.sql(), theirs)
                        elif theirs.sql() in same:
                            same.setdefault(ours.sql(), same[theirs.sql()])
            if len(same) == before:
                return same


def _through(
    rows: Rows, wanted: Exprs, given: Exprs, same: tuple[type[exp.Expr], ...], path: _Path
) -> _Path:
    """The path that looks up `wanted` where `given` has some values, and then follows `path`.

    The rows are looked up in a table if one has all the columns. The conditions of the blocks
    between are left out, so more rows are found than needed.
    """
    while not isinstance(rows, Table):
        below = _below(rows, wanted, given)
        if below is None:
            break
        rows, wanted, given = below
    place = rows.node.copy() if isinstance(rows, Table) else exp.to_table(rows.name or "")
    place.set("alias", exp.TableAlias(this=exp.to_identifier("_rows")))
    prefix = "k" if path.is_direct else "v"
    for own in given:
        if windows_of(own):
            refuse("a join by window() is not supported", own)

    def step(changed: exp.Select) -> exp.Select:
        found = exp.select(*_numbered(wanted, prefix)).distinct()
        match = exp.and_(
            *(
                kind(this=_of(own, "_rows"), expression=exp.column(f"v{number}", "_changed"))
                for number, (own, kind) in enumerate(zip(given, same, strict=True))
            )
        )
        found = found.from_(place.copy())
        return found.join(changed.subquery("_changed"), on=match, join_type="left semi")

    through = rows.name if isinstance(rows, Table) else ""
    return _Path((step, *path.steps), (through, *path.through))


def _below(rows: Block | Union, wanted: Exprs, given: Exprs) -> tuple[Rows, Exprs, Exprs] | None:
    """The source of a block from which all expressions come, and they; None if none is."""
    if isinstance(rows, Union):
        return None
    wanted = tuple(_inside(rows, key) for key in wanted)
    given = tuple(_inside(rows, key) for key in given)
    if rows.grouping is not None:
        if not all(_is_made_from(key, rows.grouping) for key in wanted):
            return None
        given = tuple(_one_of_group(key, rows.grouping) for key in given)
    if not all(map(_is_computable, (*wanted, *given))):
        return None
    aliases = set().union(*map(_aliases, (*wanted, *given)))
    found = [source for source in rows.sources if {source.alias} == aliases]
    if not found or not found[0].is_preserved:
        return None
    return found[0].rows, _outside(wanted), _outside(given)


def _one_of_group(key: exp.Expr, grouping: list[exp.Expr]) -> exp.Expr:
    """For the least or greatest value of a group: the value, as one of its rows has it."""
    return key.this if isinstance(key, (exp.Min, exp.Max)) else key


def _require_grouped(block: Block, keys: Exprs) -> None:
    """Check that the rows of a block with some keys depend only on rows with these keys."""
    for key in keys:
        if not _is_computable(key):
            refuse(f"its key is made by {_what(key)}", key)
        if block.grouping is not None and not _is_made_from(key, block.grouping):
            if not block.grouping:
                refuse("it aggregates all rows of a table", block.select.expressions[0])
            refuse(f"it does not group by {key.sql(dialect='spark')}", block.grouping[0])
        for window in block.windows:
            if not _is_made_from(key, window.args.get("partition_by") or []):
                reason = f"a window function does not partition by {key.sql(dialect='spark')}"
                refuse(reason, window)


def _require_one_type(union: Union, keys: Exprs) -> None:
    """Check that the branches of a set operation do not convert values of the keys."""
    for column in (column for key in keys for column in key.find_all(exp.Column)):
        found = list(_at(union, union.names.index(column.name)))
        kinds = {each.type for each in found if not each.is_type("unknown", "null")}
        if len(kinds) > 1:
            refuse(f"the branches of a UNION give {column.name} different types", found[-1])


def _at(rows: Block | Union, place: int) -> Iterator[exp.Expr]:
    """The expressions that give the column at some place, one of each branch."""
    if isinstance(rows, Block):
        yield rows.columns[rows.names[place]]
    else:
        for branch in rows.branches:
            yield from _at(branch, place)


def _is_made_from(key: exp.Expr, parts: list[exp.Expr]) -> bool:
    """Whether a key has no columns but in some expressions, which are equal for equal rows."""
    known = {part.sql() for part in parts}
    if key.sql() in known:
        return True
    if isinstance(key, exp.Column):
        return False
    return all(_is_made_from(child, parts) for child in key.iter_expressions())


def _is_computable(key: exp.Expr) -> bool:
    """Whether an expression is a function of one row."""
    if key.find(exp.Window, exp.Subquery, exp.Select, *EXPLODED):
        return False
    return not any(map(is_aggregate, key.find_all(exp.Func)))


def _is_approximate(column: exp.Expr) -> bool:
    """Whether values of a column may be equal and differ, as 0.0 and -0.0."""
    return column.type is None or column.is_type(
        exp.DataType.Type.FLOAT, exp.DataType.Type.DOUBLE, exp.DataType.Type.UNKNOWN
    )


def _is_strict(condition: exp.Expr, ours: exp.Expr) -> bool:
    """Whether an equality holds for no row in which a column of `ours` is NULL."""
    return isinstance(condition, exp.EQ) and isinstance(ours, exp.Column)


def _what(key: exp.Expr) -> str:
    if key.find(exp.Window):
        return "a window function"
    if key.find(*EXPLODED):
        return "explode"
    return "a subquery" if key.find(exp.Subquery, exp.Select) else "an aggregate"


def _aliases(key: exp.Expr) -> set[str]:
    return {column.table for column in key.find_all(exp.Column)}


def _inside(block: Block, key: exp.Expr) -> exp.Expr:
    """An expression of a block's columns, as one of the columns of its sources."""

    def replace(node: exp.Expr) -> exp.Expr:
        return block.columns[node.name].copy() if isinstance(node, exp.Column) else node

    copy = key.copy()
    if isinstance(copy, exp.Column):
        return _simplest(replace(copy))
    for column in list(copy.find_all(exp.Column)):
        column.replace(exp.paren(replace(column)) if column.parent else replace(column))
    return copy


def _simplest(key: exp.Expr) -> exp.Expr:
    return key.unnest()


def _outside(keys: Exprs) -> Exprs:
    """Expressions of a source's columns, without its alias."""
    return tuple(_of(key, None) for key in keys)


def _of(key: exp.Expr, alias: str | None) -> exp.Expr:
    copy = key.copy()
    for column in copy.find_all(exp.Column):
        column.set("table", exp.to_identifier(alias) if alias else None)
    return copy


def _renamed(key: exp.Expr, union: Union, branch: Block | Union) -> exp.Expr:
    """An expression of the columns of a set operation, as one of a branch's columns."""
    copy = key.copy()
    for column in copy.find_all(exp.Column):
        place = union.names.index(column.name)
        column.set("this", exp.to_identifier(branch.names[place]))
    return copy


def _numbered(keys: Exprs, prefix: str) -> list[exp.Expr]:
    return [exp.alias_(key.copy(), f"{prefix}{number}") for number, key in enumerate(keys)]
