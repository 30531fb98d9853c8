"""Tests from which tables sinks may take rows, and that their messages lead nowhere in a circle."""

from pathlib import Path

import pytest
from topic import GOOD, declared

from lake.topics.sink_source import Source, source_of
from pulsar_spark.errors import SettingsError

VIEWS = """
[views.kept]
description = "Orders of each user. Grain: one user"
key = ["user_id"]
columns = { user_id = "bigint", orders = "bigint" }
sql = "SELECT user_id, count(*) AS orders FROM enriched_orders GROUP BY user_id"

[views.read]
description = "All users"
sql = "SELECT * FROM users"
"""
HISTORY = GOOD.replace('key = ["id"]', 'key = ["id"]\nhistory = true', 1)


def published(source: str, more: str = "", key: str = "id", name: str = "out") -> str:
    return f'\n[publish.{name}]\nfrom = "{source}"\nkey = ["{key}"]\n{more}\n'


def exported(name: str, more: str = "") -> str:
    text = f'\n[export.{name}]\nfrom = "gold.a"\nkey = ["id"]\n'
    return text + f'table = "public.t"\nurl_env = "DB"\n{more}\n'


def of_users(more: str) -> str:
    return exported("a", more).replace("gold.a", "silver.users")


@pytest.mark.parametrize(
    ("name", "key", "table", "missing", "made_from"),
    [
        ("silver.users", "id", "users_state", None, {"users"}),
        ("silver.users_state", "id", "users_state", None, {"users"}),
        ("silver.users_history", "position", "users_history", None, {"users"}),
        ("silver.enriched_orders", "id", "enriched_orders", None, {"users", "orders"}),
        ("silver.missing_user", "id", "enriched_orders", "user", {"users", "orders"}),
        ("silver.kept", "user_id", "kept", None, {"users", "orders"}),
    ],
)
def test_a_sink_reads_the_table_behind_the_name_that_readers_use(
    tmp_path: Path, name: str, key: str, table: str, missing: str | None, made_from: set[str]
) -> None:
    topics = declared(tmp_path, HISTORY + VIEWS + published(name, key=key))
    found = source_of(topics, topics.publish["out"])
    assert (found.full_name, found.missing) == (f"silver.{table}", missing)
    assert found.topics == made_from


def test_a_mart_is_known_when_it_is_built(tmp_path: Path) -> None:
    topics = declared(tmp_path, GOOD + published("marts.sales"))
    assert source_of(topics, topics.publish["out"]) == Source("marts", "sales")


@pytest.mark.parametrize(
    ("sinks", "says"),
    [
        (published("silver.nothing"), r":\d+: .*'silver.nothing', which is none of silver.users"),
        (published("silver.read"), "view 'read', which is computed .* give the view a 'key'"),
        (published("bronze.users"), "'bronze.users', whose rows are not for sinks"),
        (published("gold_build.sales"), "whose rows are not for sinks"),
        (published("silver.users", key="nr"), "names 'nr', which is no column of silver.users"),
        (published("silver.users", 'columns = ["id", "x"]'), "names 'x', which is no column"),
        (published("silver.users", 'event_time = "x"'), "names 'x', which is no column"),
        (published("silver.users", 'properties = { a = "x" }'), "names 'x', which is no column"),
        (published("silver.users", 'where = "x > 1"'), "has a 'where' that uses 'x'"),
        (published("silver.users", 'where = "id >"'), "has a 'where' that cannot be parsed"),
        (published("silver.users", 'where = "rand() > id"'), "has a 'where' that calls rand"),
        (published("silver.users", 'where = "count(*) > 1"'), "has a 'where' that"),
        (published("gold.a", 'where = "rand() > id"'), r":\d+: publish.out.where: .*calls rand"),
        (of_users('where = "x > 1"'), r":\d+: export.a.where: sink 'a' .* uses 'x'"),
        (exported("a", "where = \"lower(name) = 'a'\""), "has 'LOWER\\(name\\)', which is not ev"),
        (exported("a", 'where = "id + 1 > 2"'), "has 'id \\+ 1', .* export a view with a key"),
        (exported("a", 'where = "id IN (SELECT 1)"'), "sink 'a' has a 'where' that"),
        (exported("a", 'where = "max(id) > 1"'), "calls max, which is not a known"),
        (exported("a", 'where = "1 = 1"'), "names no column"),
        (
            published("silver.users", 'topic = "x"') + published("gold.a", 'topic = "x"', name="b"),
            "'out' and 'b' both publish to the topic x.*UNION ALL",
        ),
        (published("silver.users", 'topic = "users"'), r"sink 'out' .*landed.*users -> users"),
        (published("silver.enriched_orders", 'topic = "users"'), "would never end"),
        (published("gold.anything", 'topic = "orders"'), "would never end"),
        (
            published("silver.missing_user", 'topic = "users"', name="a"),
            "sink 'a' publishes to the topic users",
        ),
        (exported("a") + exported("b"), "'a' and 'b' both export to the table public.t"),
    ],
)
def test_wrong_sources_and_targets_are_refused(tmp_path: Path, sinks: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        declared(tmp_path, GOOD + VIEWS + sinks)


def test_a_sink_may_fill_a_topic_that_does_not_lead_back(tmp_path: Path) -> None:
    topics = declared(tmp_path, GOOD + published("silver.users", 'topic = "orders"'))
    assert topics.publish["out"].address == "orders"


def test_a_circle_through_two_sinks_is_refused_too(tmp_path: Path) -> None:
    more = GOOD.replace("users", "people").replace("orders", "visits")
    one = published("silver.users", 'topic = "people"', name="one")
    other = published("silver.people", 'topic = "users"', name="other")
    declared(tmp_path, GOOD + more + one)
    with pytest.raises(SettingsError, match="would never end"):
        declared(tmp_path, GOOD + more + one + other)


def test_full_and_short_addresses_are_compared_when_the_namespace_is_known(tmp_path: Path) -> None:
    full = 'topic = "persistent://public/default/{}"'
    same = published("gold.a", name="a") + published("gold.b", full.format("a"), name="b")
    circle = published("silver.users", full.format("users"))
    for sinks, says in ((same, "both publish to the topic"), (circle, "would never end")):
        topics = declared(tmp_path, GOOD + sinks)
        with pytest.raises(SettingsError, match=says):
            topics.sink_addresses("public/default")
        assert topics.sink_addresses("bank/prod")


def test_a_personal_field_is_no_property(tmp_path: Path) -> None:
    text = GOOD.replace(
        'id = "long"', 'id = "long"\nname = { type = "string", personal = "keep" }', 1
    )
    with pytest.raises(SettingsError, match="personal field 'name' as a property"):
        declared(tmp_path, text + published("silver.users", 'properties = { who = "name" }'))
