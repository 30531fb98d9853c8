"""Checks the SQL of computed fields when a topic file is read.

A computed field must have the same value whenever its message is decoded: in a replay, in a
rebuild, and in any batch. Its expression may therefore use nothing but fields of the message, and
functions that are known to be deterministic. Spark checks its types when silver starts
(`silver/records/computed.py`).
"""

import itertools
import re
from collections.abc import Collection

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import SqlglotError

from lake.kept.functions import OF_ONE_ROW

DIALECT = "spark"
# Resolved by Spark only where rows are grouped.
KNOWN = OF_ONE_ROW - {"window"}
# Names of functions as sqlglot divides a text.
NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
# What is no expression of one row. Functions that are not known are refused by name.
OF_MORE = (exp.Query, exp.Window, exp.AggFunc, exp.UDTF, exp.Star, exp.Alias)
UNSTABLE = re.compile(r"current_|localtime|session_user|user$|now$|rand|uuid", re.IGNORECASE)


def columns_of(sql: str, known: Collection[str] | None) -> set[str]:
    """The columns that an expression uses.

    Called for each computed field when a topic file is read.

    Args:
        sql: the expression, in Spark's SQL.
        known: the columns that it may use, in lower case; None if they are not known.

    Raises:
        ValueError: it is not a deterministic expression over these columns. The text is the rest of
            a sentence about the field.
    """
    try:
        tokens = sqlglot.tokenize(sql, read=DIALECT)
        parsed = sqlglot.parse(sql, read=DIALECT)
    except SqlglotError as error:
        reason = re.sub(r"\x1b\[\d+m", "", str(error).splitlines()[0])
        reason = re.sub(r"<class '[\w.]*?(\w+)'>", r"\1", reason)
        message = f"cannot be parsed: {reason.rstrip('.')}"
        raise ValueError(message) from error
    for token, following in itertools.pairwise(tokens):
        is_call = token.token_type in NAMES and following.token_type == TokenType.L_PAREN
        if is_call and token.text.lower() not in KNOWN:
            message = f"calls {token.text}, which is not a known deterministic function of one row"
            raise ValueError(message)
    expression = parsed[0] if len(parsed) == 1 else None
    if not isinstance(expression, exp.Condition | exp.Interval | exp.Query | exp.Alias):
        message = "is not one expression"
        raise ValueError(message)
    # The first part is the column; the others are members of a struct.
    found = {column.parts[0].name.lower() for column in expression.find_all(exp.Column)}
    known = found if known is None else known
    for node in expression.walk():
        _refuse(node, known)
    if others := sorted(found - {*known}):
        message = f"uses '{others[0]}', which is not a column of another field of the topic"
        raise ValueError(message)
    return found


def _refuse(node: exp.Expr, known: Collection[str]) -> None:
    if isinstance(node, OF_MORE):
        message = f"must be an expression of one message, without {node.key}"
        raise ValueError(message)
    if isinstance(node, exp.Placeholder | exp.Parameter):
        message = "has a parameter, which has no value"
        raise ValueError(message)
    if isinstance(node, exp.Anonymous) and node.name.lower() not in KNOWN:
        message = f"calls {node.name}, which is not a known deterministic function of one row"
        raise ValueError(message)
    if isinstance(node, exp.Func) and UNSTABLE.match(node.sql_name()):
        message = f"calls {node.sql_name().lower()}, whose value may differ in each run"
        raise ValueError(message)
    if isinstance(node, exp.Column) and node.table and node.parts[0].name.lower() not in known:
        message = f"uses '{node.sql(DIALECT)}'; name a column without its table"
        raise ValueError(message)
    is_time = isinstance(node, exp.Cast) and node.is_type(*exp.DataType.TEMPORAL_TYPES)
    if is_time and isinstance(node.this, exp.Literal) and not re.match(r"\s*\d", node.this.name):
        message = f"has the instant '{node.this.name}', which is not a fixed one"  # such as 'today'
        raise ValueError(message)
