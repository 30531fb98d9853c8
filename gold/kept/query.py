"""Reads the SQL of a model into blocks, and refuses what the planner could not reason about.

Of sqlglot, this uses the parser, `qualify` (each column names its table), `eliminate_subqueries`
(each derived table becomes a CTE) and `pushdown_projections` (unused columns go). They change only
the form of a query. The SQL that computes rows is always the author's own text.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NoReturn

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.eliminate_subqueries import eliminate_subqueries
from sqlglot.optimizer.pushdown_projections import pushdown_projections
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, build_scope, find_all_in_scope
from sqlglot.schema import MappingSchema
from sqlglot.tokens import TokenType  # type: ignore[attr-defined] # a name of its compiled core

from lake.kept.functions import AGGREGATES, GENERATORS, OF_A_WINDOW, OF_ONE_ROW, UNORDERED

DIALECT = "spark"
RENAMED = "_windo"
KNOWN = OF_ONE_ROW | AGGREGATES | OF_A_WINDOW | GENERATORS | UNORDERED

# Their values differ between two runs on the same rows, or depend on the order of rows.
UNSTABLE = (
    exp.Rand,
    exp.Randn,
    exp.Uuid,
    exp.CurrentDate,
    exp.CurrentTime,
    exp.CurrentTimestamp,
    exp.CurrentDatetime,
    exp.CurrentUser,
    exp.CurrentSchema,
    exp.CurrentCatalog,
    exp.First,
    exp.Last,
    exp.AnyValue,
    exp.GroupConcat,
)
NAMES = (TokenType.VAR, TokenType.IDENTIFIER, TokenType.FIRST)
COLLECTED = (exp.ArrayAgg, exp.ArrayUniqueAgg)  # arrays in an arbitrary order
ORDERED = (exp.ArraySort, exp.ArraySize, exp.ArrayContains)


class Unkept(Exception):
    """A query, or a key, that the planner cannot reason about.

    Args:
        reason: why, as the rest of a sentence.
        node: the part of the query that is the reason, if it is one.
        line: its line, if there is no node.
        line: its line, if there is no node.
    """

    def __init__(self, reason: str, node: exp.Expr | None = None, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = _line(node) if node is not None else line


def refuse(reason: str, node: exp.Expr | None = None, cause: Exception | None = None) -> NoReturn:
    """Raise `Unkept`."""
    raise Unkept(reason, node) from cause


@dataclass(eq=False)
class Source:
    """One occurrence of a table or block in the FROM clause or a join of a block.

    alias: its name in the block.
    rows: the table or the block that it names.
    how: "from", "inner", "left", "semi" or "anti".
    on: conditions of its join, all of which hold for joined rows.
    node: the part of the query that names it.
    """

    alias: str
    rows: Table | Block | Union
    how: str
    on: list[exp.Expr]
    node: exp.Expr

    @property
    def is_preserved(self) -> bool:
        """Whether each row of the block has a row of this source."""
        return self.how in ("from", "inner")


@dataclass(eq=False)
class Table:
    """One occurrence of a table that the model reads.

    name: its name as in the SQL, in lower case, such as `gold_build.stg_users`.
    columns: the columns that the query uses.
    node: the part of the query.
    """

    name: str
    columns: list[str]
    node: exp.Table


@dataclass(eq=False)
class Union:
    """A set operation.

    name: the name of the CTE; None if it has none.
    branches: its operands; their columns correspond by position.
    """

    name: str | None
    branches: list[Block | Union]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return self.branches[0].names


@dataclass(eq=False)
class Block:
    """A SELECT.

    name: the name of the CTE; None for the outermost query.
    select: the part of the query.
    columns: the expressions that it returns, by name.
    sources: what it reads.
    """

    name: str | None
    select: exp.Select
    columns: dict[str, exp.Expr]
    sources: list[Source] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.columns)

    @cached_property
    def conditions(self) -> list[exp.Expr]:
        """The conditions of WHERE, all of which hold for the rows of the block."""
        where = self.select.args.get("where")
        return list(conjuncts(where.this)) if where else []

    @cached_property
    def grouping(self) -> list[exp.Expr] | None:
        """What the block groups by; None if it does not, and empty if it aggregates all rows."""
        group = self.select.args.get("group")
        if group:
            return list(group.expressions)
        parts = [*self.select.expressions, self.select.args.get("having")]
        found = (n for p in parts if p for n in p.find_all(exp.Func) if is_aggregate(n))
        return [] if any(not _is_in_window(n) for n in found) else None

    @cached_property
    def windows(self) -> list[exp.Window]:
        """The window functions of the block."""
        return list(find_all_in_scope(self.select, exp.Window))


@dataclass(frozen=True)
class Query:
    """The SQL of a model, read.

    text: the SQL as the author wrote it, rendered by dbt.
    root: the outermost block.
    tree: the query in sqlglot's form, of which the blocks are parts.
    names_tables_by_alias: whether no column is written with the database of its table.
    """

    text: str
    root: Block | Union
    tree: exp.Query
    names_tables_by_alias: bool

    @property
    def ctes(self) -> list[exp.CTE]:
        """The blocks with a name, in their order."""
        return list(self.tree.ctes)


def read_query(text: str, relations: Mapping[str, Mapping[str, str]]) -> Query:
    """Read the SQL of a model.

    Args:
        text: the SQL.
        relations: for each table that it may read, such as `gold_build.stg_users`, its columns
            with their Spark types.

    Raises:
        Unkept: the query cannot be parsed, or has a part that the planner does not know.
    """
    try:
        parsed = _parse(text)
        if not isinstance(parsed, exp.Query):
            refuse("it is not a SELECT")
        _refuse_unknown_functions(text)
        for join in parsed.find_all(exp.Join):
            if join.method:
                refuse(f"a {join.method} join is not supported", join)
        for table in parsed.find_all(exp.Table):
            _require_known(table, relations, parsed)
        for select in parsed.find_all(exp.Select):
            _name_window(select)
        by_alias = not any(column.db for column in parsed.find_all(exp.Column))
        schema = _schema(relations)
        tree = qualify(parsed, schema=schema, dialect=DIALECT, quote_identifiers=False)
        tree = eliminate_subqueries(tree)
        count_windows = len(windows_of(tree))
        tree = pushdown_projections(tree)
        if len(windows_of(tree)) < count_windows:
            refuse("a column made by window() is not used")  # yet window() drops and repeats rows
        tree = annotate_types(tree, schema=schema, dialect=DIALECT)
        scope = build_scope(tree)
    except SqlglotError as error:
        refuse(f"it cannot be read: {_first_line(error)}", cause=error)
    except RecursionError as error:
        refuse("it is nested too deeply", cause=error)
    if scope is None:
        refuse("it is not a SELECT")
    return Query(text, _Reader().block(scope, None), tree, by_alias)


def _parse(text: str) -> exp.Expr:
    """Parse a query, with `window()` renamed: after GROUP BY, sqlglot reads a WINDOW clause.

    The other name is of the same length, so that places in the text stay.
    """
    renamed = text
    tokens = sqlglot.tokenize(text, read=DIALECT)
    for token, following in itertools.pairwise(tokens):
        if token.text.lower() == "window" and following.token_type == TokenType.L_PAREN:
            renamed = renamed[: token.start] + RENAMED + renamed[token.end + 1 :]
    parsed = sqlglot.parse_one(renamed, read=DIALECT)
    for call in parsed.find_all(exp.Anonymous):
        if call.name == RENAMED:
            call.set("this", "window")
    return parsed


def conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    """The parts of a condition that are joined by AND."""
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        yield from conjuncts(condition.left)
        yield from conjuncts(condition.right)
    else:
        yield condition


def windows_of(node: exp.Expr) -> list[exp.Anonymous]:
    """The calls of window(), which groups instants by hours, for example."""
    return [call for call in node.find_all(exp.Anonymous) if call.name.lower() == "window"]


def _name_window(select: exp.Select) -> None:
    """Write `window.start` as `window(at, '1 hour').start` where a query groups by the latter."""
    group = select.args.get("group")
    calls = windows_of(group) if group else []
    if not calls or any(
        table.alias_or_name.lower() == "window" for table in select.find_all(exp.Table)
    ):
        return
    for column in list(find_all_in_scope(select, exp.Column)):
        if column.table.lower() == "window" and not column.db:
            column.replace(exp.Dot(this=calls[0].copy(), expression=column.this.copy()))


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a part of a query is a call of an aggregate function."""
    by_name = isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES
    return by_name or isinstance(node, exp.AggFunc)


def _is_in_window(node: exp.Expr) -> bool:
    return isinstance(node.parent, exp.Window) and node.parent.this is node


def tables_of(rows: Table | Block | Union) -> Iterator[Table]:
    """All occurrences of tables below a part of a query."""
    if isinstance(rows, Table):
        yield rows
    elif isinstance(rows, Union):
        for branch in rows.branches:
            yield from tables_of(branch)
    else:
        for source in rows.sources:
            yield from tables_of(source.rows)


class _Reader:
    """Turns sqlglot's scopes into blocks."""

    def __init__(self) -> None:
        self._read: dict[int, Block | Union] = {}

    def block(self, scope: Scope, name: str | None) -> Block | Union:
        if id(scope) not in self._read:
            self._read[id(scope)] = self._new(scope, name)
        return self._read[id(scope)]

    def _new(self, scope: Scope, name: str | None) -> Block | Union:
        expression = scope.expression
        if isinstance(expression, exp.SetOperation):
            _refuse_limits(expression)
            if expression.args.get("by_name"):
                refuse("UNION BY NAME is not supported", expression)
            return Union(name, [self.block(child, None) for child in scope.set_operation_scopes])
        if not isinstance(expression, exp.Select):
            refuse(f"{expression.key.upper()} is not supported", expression)
        columns: dict[str, exp.Expr] = {}
        for column in expression.selects:
            if column.is_star or isinstance(column, exp.Aliases):
                refuse("it is not clear which columns * stands for", column)
            if column.alias_or_name in columns:
                refuse(f"it returns the column {column.alias_or_name} twice", column)
            columns[column.alias_or_name] = column.unalias()
        block = Block(name, expression, columns)
        _refuse_limits(expression)
        _refuse_functions(expression)
        self._sources(scope, block)
        return block

    def _sources(self, scope: Scope, block: Block) -> None:
        select = block.select
        if select.args.get("laterals"):
            refuse("LATERAL VIEW is not supported; use explode in the SELECT", select)
        clause = select.args.get("from_") or select.args.get("from")
        if clause is None:
            return
        block.sources.append(self._source(scope, clause.this, "from", []))
        for join in select.args.get("joins") or []:
            how = _kind(join)
            on = join.args.get("on")
            parts = list(conjuncts(on)) if on else []
            block.sources.append(self._source(scope, join.this, how, parts))
        for place in [*(p for s in block.sources for p in s.on), *block.conditions]:
            self._memberships(scope, block, place)
        known = sum(isinstance(c, exp.In) for c in block.conditions if c.args.get("query"))
        if len(scope.subquery_scopes) > known:
            refuse("a subquery in an expression is not supported; use a join", select)

    def _memberships(self, scope: Scope, block: Block, condition: exp.Expr) -> None:
        """Read `x IN (SELECT y ...)` as the semi join that it is."""
        if not isinstance(condition, exp.In) or not condition.args.get("query"):
            return
        if condition not in block.conditions:
            refuse("a subquery in a join condition is not supported", condition)
        subquery = condition.args["query"].unnest()
        for child in scope.subquery_scopes:
            if child.expression is subquery:
                if child.external_columns:
                    refuse("a subquery that refers to the outer query", condition)
                rows = self.block(child, None)
                if len(rows.names) != 1:
                    refuse("IN with several columns is not supported", condition)
                alias = f"_in_{len(block.sources)}"
                same = exp.EQ(
                    this=condition.this.copy(), expression=exp.column(rows.names[0], alias)
                )
                block.sources.append(Source(alias, rows, "semi", [same], condition))

    def _source(self, scope: Scope, node: exp.Expr, how: str, on: list[exp.Expr]) -> Source:
        if not isinstance(node, exp.Table):
            refuse(f"{node.key.upper()} in FROM is not supported", node)
        if node.args.get("sample") or node.args.get("pivots"):
            refuse("TABLESAMPLE and PIVOT are not supported", node)
        if node.args.get("version") or node.args.get("when"):
            refuse("it reads a fixed version of a table", node)
        alias = node.alias_or_name
        found = scope.sources.get(alias)
        if isinstance(found, Scope):
            if found.expression.find_ancestor(exp.With) is None and found.is_cte:
                refuse("a recursive query", node)
            return Source(alias, self.block(found, node.name), how, on, node)
        used = {c.name for c in scope.find_all(exp.Column) if c.table == alias}
        name = ".".join(part.name for part in node.parts).lower()
        return Source(alias, Table(name, sorted(used), node), how, on, node)


def _kind(join: exp.Join) -> str:
    side, kind = join.side.upper(), join.kind.upper()
    if side in ("RIGHT", "FULL"):
        refuse(f"a {side.lower()} join is not supported; write it as a left join", join)
    if kind in ("SEMI", "ANTI"):
        return kind.lower()
    if side == "LEFT":
        return "left"
    if kind in ("", "INNER", "CROSS") and not side:
        return "inner"
    refuse(f"the join {side} {kind} is not supported", join)


def _refuse_limits(select: exp.Expr) -> None:
    for name in ("limit", "offset", "fetch", "windows", "connect", "match", "distinct_on"):
        if select.args.get(name):
            refuse(f"{name.upper()} is not supported", select.args[name])
    group = select.args.get("group")
    several = (exp.Rollup, exp.Cube, exp.GroupingSets)
    if group and (
        any(value for key, value in group.args.items() if key != "expressions")
        or any(isinstance(each, several) for each in group.expressions)
    ):
        refuse("ROLLUP, CUBE, GROUPING SETS and GROUP BY ALL are not supported", group)
    with_ = select.args.get("with_") or select.args.get("with")
    if with_ and with_.args.get("recursive"):
        refuse("a recursive query", with_)
    distinct = select.args.get("distinct")
    if isinstance(distinct, exp.Distinct) and distinct.args.get("on"):
        refuse("DISTINCT ON is not supported", select)


def _refuse_unknown_functions(text: str) -> None:
    """Look at the author's own words, because sqlglot turns functions into one another."""
    tokens = sqlglot.tokenize(text, read=DIALECT)
    for token, following in itertools.pairwise(tokens):
        is_call = token.token_type in NAMES and following.token_type == TokenType.L_PAREN
        if is_call and token.text.lower() not in KNOWN:
            reason = f"the function {token.text} is not known to be deterministic"
            raise Unkept(reason, line=token.line)


def _refuse_functions(select: exp.Select) -> None:
    for node in find_all_in_scope(select, exp.Func):
        if isinstance(node, UNSTABLE):
            refuse(f"{node.sql_name()} may give another value in each run", node)
        if isinstance(node, COLLECTED) and not isinstance(node.parent, ORDERED):
            refuse(f"{node.sql_name()} has no order; wrap it in sort_array", node)
    for window in find_all_in_scope(select, exp.Window):
        if not window.args.get("order") and not is_aggregate(window.this):
            refuse("a window function without ORDER BY", window)


def _require_known(table: exp.Table, relations: Mapping[str, object], query: exp.Expr) -> None:
    name = ".".join(part.name for part in table.parts).lower()
    is_cte = not table.db and any(
        cte.alias_or_name.lower() == name for cte in query.find_all(exp.CTE)
    )
    if not is_cte and name not in relations:
        refuse(f"{name} is no ref or source of the model", table)


def _schema(relations: Mapping[str, Mapping[str, str]]) -> MappingSchema:
    schema = MappingSchema(dialect=DIALECT)
    for name, columns in relations.items():
        schema.add_table(name, dict(columns))
    return schema


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].replace("\x1b[4m", "").replace("\x1b[0m", "")


def _line(node: exp.Expr) -> int | None:
    for part in node.walk():
        if "line" in part.meta:
            found: int = part.meta["line"]
            return found
    return None


def names_of(keys: Sequence[str]) -> str:
    """Some column names, as in an error."""
    return ", ".join(keys)
