"""Tests which tables and views the views of a topic file are found to read, and what is refused."""

from pathlib import Path

import pytest
from topic import declared

from lake.topics.topic_file import TopicFile
from pulsar_spark.errors import SettingsError

TOPICS = """
[topics.people]
kind = "changelog"
key = ["id"]
[topics.people.fields]
id = "long"

[topics.visits]
kind = "events"
key = ["id"]
[topics.visits.fields]
id = "long"
"""
LINE = len(TOPICS.splitlines()) + 2  # of the first view


def kept(name: str, sql: str, more: str = "") -> str:
    given = f'key = ["id"]\ncolumns = {{ id = "bigint" }}\n{more}\n'
    return f'\n[views.{name}]\ndescription = "?"\n{given}sql = """{sql}"""\n'


def plain(name: str, sql: str) -> str:
    return f'\n[views.{name}]\ndescription = "?"\nsql = """{sql}"""\n'


def load(folder: Path, *views: str) -> TopicFile:
    return declared(folder, TOPICS + "".join(views))


def test_views_come_after_those_that_they_read(tmp_path: Path) -> None:
    topics = load(
        tmp_path,
        kept("c", "SELECT b.id FROM b JOIN Enriched_Visits AS v ON b.id = v.id"),
        kept("b", "WITH people AS (SELECT id FROM people) SELECT id FROM people"),
        kept("d", "SELECT id FROM (SELECT id FROM c UNION SELECT id FROM b)"),
        plain("e", "SELECT anything FROM anywhere"),
    )
    found = {query.view.name: query.reads for query in topics.view_queries}
    assert list(found) == ["b", "c", "d"]
    assert found == {"b": ("people",), "c": ("b", "enriched_visits"), "d": ("c", "b")}
    assert [view.name for view in topics.kept_views()] == list(found)


def test_views_without_a_key_become_a_part_of_the_query(tmp_path: Path) -> None:
    topics = load(
        tmp_path,
        plain("inner_one", "SELECT id FROM people -- all"),
        plain("outer_one", "SELECT x.id FROM `INNER_ONE` x JOIN a ON a.id = x.id"),
        kept("a", "SELECT id FROM people"),
        kept("b", "SELECT outer_one.id FROM outer_one"),
    )
    [_, query] = topics.view_queries
    assert query.reads == ("people", "a")
    assert query.sql == (
        "SELECT outer_one.id FROM (\nSELECT x.id FROM (\nSELECT id FROM people -- all\n) x JOIN a "
        "ON a.id = x.id\n) as `outer_one`"
    )


@pytest.mark.parametrize(
    ("views", "reason"),
    [
        (
            [
                kept("a", "SELECT id FROM b"),
                plain("b", "SELECT id FROM c"),
                kept("c", "SELECT id FROM a"),
            ],
            "view 'a' reads itself (a reads b reads c reads a)",
        ),
        ([kept("a", "SELECT id FROM a")], "view 'a' reads itself (a reads a)"),
        (
            [kept("a", "SELECT id FROM silver.people")],
            "view 'a' has a key and reads 'silver.people', which silver does not follow; such a "
            "view can read people, enriched_visits, a",
        ),
        (
            [kept("a", "SELECT id FROM b"), plain("b", "SELECT id FROM people_state")],
            "view 'a' has a key and reads 'people_state' through the view 'b'",
        ),
        (
            [kept("a", "SELEC id FROM people")],
            "view 'a' has a query whose tables are not known, because it cannot be read",
        ),
        (
            [kept("a", "SELECT id FROM b"), plain("b", "DESCRIBE people")],
            "view 'b', which the view 'a' reads, has a query whose tables are not known, because "
            "it is not a SELECT; correct it, or remove 'key' of 'a'",
        ),
        (
            [
                kept("a", "WITH people AS (SELECT 1 AS id) SELECT b.id FROM b, people"),
                plain("b", "SELECT id FROM people"),
            ],
            "view 'a' cannot be read: it has a CTE 'people', which is also a table",
        ),
        (
            [kept("a", "SELECT id FROM people", 'sources = { enriched_visits = ["id"] }')],
            "view 'a' reads 'people', which its 'sources' lack",
        ),
        (
            [kept("a", "SELECT id FROM people", 'sources = { b = ["id"] }')],
            "view 'a' has the source 'b', which is neither a view with a key nor among people",
        ),
        (
            [kept("a", "SELECT id FROM people", 'sources = { people = ["id", "x"] }')],
            "must name as many columns of 'people' as its key has",
        ),
    ],
)
def test_what_cannot_be_followed_is_refused(tmp_path: Path, views: list[str], reason: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, *views)
    assert reason in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path}/topics.toml:")


def test_an_error_names_the_line_of_the_view(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=rf"topics.toml:{LINE}: .*view 'seen' has a key"):
        load(tmp_path, kept("seen", "SELECT id FROM nowhere"))


def test_the_sources_are_what_a_query_reads_that_nobody_can_read(tmp_path: Path) -> None:
    topics = load(tmp_path, kept("a", "SELEC id FROM people", 'sources = { people = ["id"] }'))
    assert [query.reads for query in topics.view_queries] == [("people",)]
