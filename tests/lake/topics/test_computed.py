"""Tests which expressions a computed field may have."""

import pytest

from lake.topics.computed import columns_of

KNOWN = ("email", "size", "at", "user")


@pytest.mark.parametrize(
    ("sql", "used"),
    [
        ("lower(email)", {"email"}),
        ("EMAIL || '-' || `Size`", {"email", "size"}),
        ("cast(size as int) + 1", {"size"}),
        ("CASE WHEN size > 1 THEN email ELSE NULL END", {"size", "email"}),
        ("date_trunc('day', at)", {"at"}),
        ("at > timestamp '2026-01-01T00:00:00Z' and size between 1 and 3", {"at", "size"}),
        ("at + interval 1 day", {"at"}),
        ("filter(split(email, ','), x -> x > user)[0]", {"email", "user"}),
        ("named_struct('a', size).a", {"size"}),
        ("size in (1, 2) or not (email like 'a%')", {"size", "email"}),
        ("email rlike '^a' -- a comment", {"email"}),
        ("substring_index(email, '@', -1)", {"email"}),
        ("user.geo.lat * size", {"user", "size"}),
        ("USER.a.b.c.d", {"user"}),
        ("transform(at, x -> x.price)", {"at"}),
        ("'select 1 from rand()'", set()),
    ],
)
def test_an_expression_of_the_message_is_accepted(sql: str, used: set[str]) -> None:
    assert columns_of(sql, KNOWN) == used


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("lower(name)", "uses 'name', which is not a column of another field"),
        ("payload", "uses 'payload'"),
        ("position.ledger", "name a column without its table"),
        ("rand()", "calls rand, which is not a known deterministic function"),
        ("`rand`()", "calls rand"),
        ("my_function(size)", "calls my_function"),
        ("now()", "calls now"),
        ("current_date", "current"),
        ("current_timestamp()", "calls current_timestamp"),
        ("size + uuid()", "calls uuid"),
        ("current_user", "current"),
        ("date 'today'", "has the instant 'today', which is not a fixed one"),
        ("cast('now' as timestamp)", "has the instant 'now'"),
        ("count(size)", "calls count"),
        ("sum(size) over (order by at)", "calls sum"),
        ("row_number() over (order by at)", "calls row_number"),
        ("explode(split(email, ','))", "calls explode"),
        ("window(at, '1 hour')", "calls window"),
        ("(select 1)", "must be an expression of one message"),
        ("select email", "must be an expression of one message"),
        ("exists(select 1)", "must be an expression of one message"),
        ("size in (select 1)", "must be an expression of one message"),
        ("*", "one"),
        ("size as other", "must be an expression of one message, without alias"),
        ("size; drop table x", "is not one expression"),
        ("drop table x", "is not one expression"),
        ("lower(:name)", "has a parameter"),
        ("size +", "cannot be parsed"),
        ("date_add(email)", "cannot be parsed: Required keyword: '.*' missing for TimestampAdd"),
        ("'open", "cannot be parsed"),
        ("", "is not one expression"),
    ],
)
def test_what_is_no_deterministic_expression_of_the_message_is_refused(sql: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        columns_of(sql, KNOWN)
