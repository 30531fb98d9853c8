"""Conditions on rows that are evaluated without Spark, for sinks to databases.

They are a part of Spark's SQL: comparisons of columns with literals and with other columns, and
what combines them. Their results are those of Spark, also for NULL and NaN. What another engine
could compute otherwise, such as the case of letters or overflows, is refused.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp

DIALECT = "spark"
UTC = pa.timestamp("us", "UTC")
INSTANTS = (
    exp.DataType.Type.TIMESTAMP,
    exp.DataType.Type.TIMESTAMPTZ,
    exp.DataType.Type.TIMESTAMPLTZ,
)
INSTANT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?")
DATE = re.compile(r"\d{4}-\d\d-\d\d")
DIGITS = 76  # of the type in which whole numbers and decimals of Spark compare exactly
COMPARED: dict[type[exp.Expr], str] = {
    exp.EQ: "equal",
    exp.NEQ: "not_equal",
    exp.LT: "less",
    exp.LTE: "less_equal",
    exp.GT: "greater",
    exp.GTE: "greater_equal",
}
OF_TEXTS: dict[type[exp.Expr], Callable[..., Any]] = {
    exp.StartsWith: pc.starts_with,
    exp.EndsWith: pc.ends_with,
    exp.Contains: pc.match_substring,
}
KNOWN = "comparisons, AND, OR, NOT, IS, IN, BETWEEN, LIKE, and the functions coalesce, contains, "
KNOWN += "endswith, length and startswith"


@dataclass(frozen=True)
class _Value:
    """A part of a condition, computed.

    kind: what it can be compared with: `boolean`, `whole` (with decimals), `float`, `text`,
        `date`, `instant`, `null`, or another type's name.
    data: a column, or a scalar.
    literal: the text of a literal; None if it is none.
    """

    kind: str
    data: Any
    literal: str | None = None


class Condition:
    """A condition that holds for a row if it is true, and neither false nor NULL."""

    def __init__(self, sql: str) -> None:
        """Read a condition. `lake/topics/computed.py` has found it to be one expression.

        Raises:
            ValueError: it has parts that need Spark, or is not a condition. The text is the rest of
                a sentence about the condition.
        """
        if "\\" in sql:
            _refuse("has a backslash")
        self._root = sqlglot.parse_one(sql, read=DIALECT)
        for node in self._root.walk():
            _require_known(node)
        found = (column.parts[0].name.lower() for column in self._root.find_all(exp.Column))
        self.columns = sorted({*found})
        if not self.columns:
            _refuse("names no column")

    def check(self, schema: pa.Schema) -> None:
        """Check that it is a condition on the rows of a table.

        Args:
            schema: the columns of the table, with their types in Arrow.

        Raises:
            ValueError: a column does not exist, or has a type that does not fit. The text is the
                rest of a sentence about the condition.
        """
        try:
            self.holds(schema.empty_table())
        except pa.ArrowException as error:
            message = f"cannot be evaluated: {str(error).splitlines()[0].rstrip('.')}"
            raise ValueError(message) from error

    def holds(self, rows: pa.Table) -> pa.ChunkedArray:
        """For each row, whether the condition holds.

        Args:
            rows: rows with `columns`.

        Raises:
            ValueError: see `check`.
        """
        found = _Evaluation(rows).boolean(self._root)
        return pc.fill_null(found, False)


class _Evaluation:
    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def boolean(self, node: exp.Expr) -> Any:
        found = self.value(node)
        if found.kind not in ("boolean", "null"):
            _refuse(f"has {_text(node)} as a condition, which is {_article(found.kind)}")
        return found.data

    def value(self, node: exp.Expr) -> _Value:
        if isinstance(node, exp.Paren):
            return self.value(node.this)
        if isinstance(node, exp.Column | exp.Dot):
            return self._column(node)
        if isinstance(node, exp.Literal | exp.Neg | exp.Boolean | exp.Null | exp.Cast):
            return _literal(node)
        if isinstance(node, exp.Coalesce):
            return self._coalesce([node.this, *node.expressions])
        if isinstance(node, exp.Length):
            return _Value("whole", pc.utf8_length(self._of_text(node.this)))
        return _Value("boolean", self._condition(node))

    def _condition(self, node: exp.Expr) -> Any:
        if isinstance(node, exp.And):
            return pc.and_kleene(self.boolean(node.this), self.boolean(node.expression))
        if isinstance(node, exp.Or):
            return pc.or_kleene(self.boolean(node.this), self.boolean(node.expression))
        if isinstance(node, exp.Not):
            return pc.invert(self.boolean(node.this))
        if isinstance(node, exp.Is):
            return self._is(node)
        if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
            return self._same(node)
        if isinstance(node, exp.In):
            each = (self._compared("equal", node.this, other) for other in node.expressions)
            return reduce(pc.or_kleene, each)
        if isinstance(node, exp.Between):
            low = self._compared("greater_equal", node.this, node.args["low"])
            return pc.and_kleene(low, self._compared("less_equal", node.this, node.args["high"]))
        if isinstance(node, exp.Like):
            found = pc.match_like(self._of_text(node.this), _literal_text(node.expression))
            return pc.invert(found) if node.args.get("negate") else found
        if type(node) in OF_TEXTS:
            return OF_TEXTS[type(node)](self._of_text(node.this), _literal_text(node.expression))
        return self._compared(COMPARED[type(node)], node.this, node.expression)

    def _column(self, node: exp.Expr) -> _Value:
        names = [part.name.lower() for part in _parts(node)]
        known = {name.lower(): name for name in self._rows.column_names}
        if names[0] not in known:
            listed = ", ".join(self._rows.column_names)
            _refuse(f"uses '{names[0]}', which is not a column of its table; they are {listed}")
        data = self._rows[known[names[0]]]
        for place, name in enumerate(names[1:], 1):
            within = ".".join(names[:place])
            if not pa.types.is_struct(data.type):
                _refuse(f"uses '{'.'.join(names)}', but '{within}' has no members")
            members = {field.name.lower(): field.name for field in data.type}
            if name not in members:
                _refuse(f"uses '{'.'.join(names)}', but '{within}' has only {', '.join(members)}")
            data = pc.struct_field(data, members[name])
        return _Value(_kind(data.type), data)

    def _coalesce(self, nodes: Sequence[exp.Expr]) -> _Value:
        found = self.value(nodes[0])
        for node in nodes[1:]:
            first, other = _alike(found, self.value(node))
            found = _Value(first.kind, pc.coalesce(first.data, other.data))
        return found

    def _of_text(self, node: exp.Expr) -> Any:
        found = self.value(node)
        if found.kind != "text":
            _refuse(f"needs a text, but {_text(node)} is {_article(found.kind)}")
        return found.data

    def _is(self, node: exp.Is) -> Any:
        if isinstance(node.expression, exp.Null):
            return pc.is_null(self.value(node.this).data)
        found = pc.fill_null(self.boolean(node.this), not node.expression.this)
        return found if node.expression.this else pc.invert(found)

    def _same(self, node: exp.Expr) -> Any:
        if isinstance(node.this, exp.Null) or isinstance(node.expression, exp.Null):
            other = node.this if isinstance(node.expression, exp.Null) else node.expression
            same = pc.is_null(self.value(other).data)
        else:
            left, right = self.value(node.this), self.value(node.expression)
            equal = pc.fill_null(_compare("equal", left, right), False)
            same = pc.or_(equal, pc.and_(pc.is_null(left.data), pc.is_null(right.data)))
        return pc.invert(same) if isinstance(node, exp.NullSafeNEQ) else same

    def _compared(self, how: str, left: exp.Expr, right: exp.Expr) -> Any:
        if isinstance(left, exp.Null) or isinstance(right, exp.Null):
            _refuse("compares with NULL, which is never true; use IS NULL or IS NOT NULL")
        return _compare(how, self.value(left), self.value(right))


def _compare(how: str, left: _Value, right: _Value) -> Any:
    left, right = _alike(left, right)
    if left.kind == "boolean" and "equal" not in (how, how.removeprefix("not_")):
        _refuse("compares booleans by their size")
    if left.kind != "float":
        return pc.call_function(how, [left.data, right.data])
    a, b = left.data, right.data
    # In Spark, NaN equals itself and is greater than all other numbers.
    if how in ("equal", "not_equal"):
        same = pc.or_kleene(pc.equal(a, b), pc.and_kleene(pc.is_nan(a), pc.is_nan(b)))
        return same if how == "equal" else pc.invert(same)
    if how in ("greater", "greater_equal"):
        a, b, how = b, a, {"greater": "less", "greater_equal": "less_equal"}[how]
    smaller = pc.is_valid(a) if how == "less_equal" else pc.invert(pc.is_nan(a))
    return pc.or_kleene(pc.call_function(how, [a, b]), pc.and_kleene(pc.is_nan(b), smaller))


def _alike(left: _Value, right: _Value) -> tuple[_Value, _Value]:
    """Two values as values of one type.

    Raises:
        ValueError: they cannot be compared.
    """
    kinds = {left.kind, right.kind}
    if kinds == {"whole"}:
        scale = max(_scale(left.data.type), _scale(right.data.type))
        kind = pa.decimal256(DIGITS, scale)
        return _Value("whole", left.data.cast(kind)), _Value("whole", right.data.cast(kind))
    if kinds <= {"whole", "float"}:
        return _Value("float", _as_float(left.data)), _Value("float", _as_float(right.data))
    if kinds <= {"date", "instant"} and len(kinds) == 2:
        return _Value("instant", left.data.cast(UTC)), _Value("instant", right.data.cast(UTC))
    if kinds in ({"date", "text"}, {"instant", "text"}):
        [kind] = kinds - {"text"}
        return _alike(_as_time(left, kind), _as_time(right, kind))
    if kinds == {"instant"}:
        return _Value("instant", left.data.cast(UTC)), _Value("instant", right.data.cast(UTC))
    if len(kinds) > 1 or left.kind not in ("boolean", "text", "date"):
        _refuse(f"compares {_article(left.kind)} with {_article(right.kind)}")
    return left, right


def _as_float(data: Any) -> Any:
    if pa.types.is_decimal(data.type):  # to the nearest number, as in Java; Arrow is less exact
        data = data.cast(pa.string())
    return data.cast(pa.float64(), safe=False)


def _as_time(value: _Value, kind: str) -> _Value:
    """A literal as the date or instant with which it is compared."""
    if value.kind == kind:
        return value
    if value.literal is None:
        _refuse(f"compares {_article(kind)} with a text that is no literal")
    return _time(value.literal, kind)


def _time(text: str, kind: str) -> _Value:
    try:
        if DATE.fullmatch(text):
            day = pa.scalar(dt.date.fromisoformat(text), pa.date32())
            return _Value(kind, day if kind == "date" else day.cast(UTC), text)
        if kind == "instant" and INSTANT.fullmatch(text):
            whole = re.sub(r"\.\d+", lambda digits: digits[0].ljust(7, "0"), text)
            found = dt.datetime.fromisoformat(whole.replace("Z", "+00:00"))
            zoned = found if found.tzinfo else found.replace(tzinfo=dt.timezone.utc)
            return _Value(kind, pa.scalar(zoned, UTC), text)
    except ValueError:
        pass
    form = "YYYY-MM-DD" if kind == "date" else "YYYY-MM-DD HH:MM:SS, with an offset or in UTC"
    _refuse(f"has '{text}' as {_article(kind)}; write it as {form}")


def _literal(node: exp.Expr) -> _Value:
    if isinstance(node, exp.Null):
        return _Value("null", pa.scalar(None, pa.bool_()))
    if isinstance(node, exp.Boolean):
        return _Value("boolean", pa.scalar(bool(node.this), pa.bool_()))
    if isinstance(node, exp.Cast):
        is_date = node.is_type(exp.DataType.Type.DATE)
        return _time(_literal_text(node.this), "date" if is_date else "instant")
    sign, number = ("-", node.this) if isinstance(node, exp.Neg) else ("", node)
    if number.is_string:
        return _Value("text", pa.scalar(_literal_text(number)), number.name)
    text = sign + number.name
    if "e" in text.lower():
        return _Value("float", pa.scalar(float(text), pa.float64()))
    value = Decimal(text)
    digits = -int(value.as_tuple().exponent)
    return _Value("whole", pa.scalar(value, pa.decimal256(DIGITS, max(digits, 0))))


def _literal_text(node: exp.Expr) -> str:
    if not isinstance(node, exp.Literal) or not node.is_string:
        _refuse(f"has {_text(node)} where it needs a text in quotes")
    return str(node.name)


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return "whole"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    if pa.types.is_floating(kind):
        return "float"
    if pa.types.is_timestamp(kind):
        return "instant"
    return {"bool": "boolean", "date32[day]": "date"}.get(str(kind), str(kind).partition("<")[0])


def _scale(kind: pa.DataType) -> int:
    return kind.scale if pa.types.is_decimal(kind) else 0


def _parts(node: exp.Expr) -> list[exp.Expr]:
    return [*node.parts] if isinstance(node, exp.Column | exp.Dot) else [node]


def _require_known(node: exp.Expr) -> None:
    """Check that a part of a condition can be evaluated without Spark."""
    own = (exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Dot)
    both = (exp.And, exp.Or, exp.Not, exp.Is, exp.In, exp.Between, exp.NullSafeEQ, exp.NullSafeNEQ)
    calls = (exp.Coalesce, exp.Length, exp.Like, *OF_TEXTS, *COMPARED)
    is_known = type(node) in (*own, *both, *calls)
    if isinstance(node, exp.Is):
        is_known = isinstance(node.expression, exp.Null | exp.Boolean)
    if isinstance(node, exp.In):
        is_known = bool(node.expressions) and not node.args.get("query")
    if isinstance(node, exp.Between):
        is_known = not node.args.get("symmetric")
    if isinstance(node, exp.Neg):
        is_known = isinstance(node.this, exp.Literal) and not node.this.is_string
    if isinstance(node, exp.DataType):
        is_known = isinstance(node.parent, exp.Cast)
    if isinstance(node, exp.Cast):
        is_time = node.is_type(exp.DataType.Type.DATE, *INSTANTS)
        is_known = type(node) is exp.Cast and is_time and isinstance(node.this, exp.Literal)
    if not is_known:
        what = f"has {_text(node)}, which is not evaluated without Spark; it can have {KNOWN}. "
        what += "For others, export a view with a key, or a mart, that has only these rows"
        _refuse(what)


def _text(node: exp.Expr) -> str:
    return f"'{node.sql(DIALECT)}'"


def _article(kind: str) -> str:
    shown = {"whole": "number", "float": "number", "null": "NULL"}.get(kind, kind)
    article = "" if shown == "NULL" else "an " if shown[0] in "aeiou" else "a "
    return article + shown


def _refuse(what: str) -> NoReturn:
    raise ValueError(what)
