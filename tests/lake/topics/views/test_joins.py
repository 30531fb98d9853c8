"""Tests which interval joins are accepted, the view that each becomes, and where errors are."""

from pathlib import Path

import pytest
from topic import declared

from lake.kept.planner import make_plan
from lake.kept.query import read_query
from lake.topics.topic_file import TopicFile
from pulsar_spark.errors import SettingsError
from silver.contract.tables import PERSONAL, enriched_table, view_table

CALLS = """
[topics.people]
kind = "changelog"
key = ["id"]
fields = { id = "long" }

[topics.calls]
kind = "events"
key = ["id"]
event_time = "at"
[topics.calls.fields]
id = "long"
who = "string"
name = { type = "string", personal = "hash" }
ratio = "double"
at = "timestamp_ms"

[topics.answers]
kind = "events"
key = ["place", "nr"]
event_time = "givenAt"
[topics.answers.fields]
place = "int"
nr = "long"
who = { type = "string", required = false }
text = { type = "string", personal = "mask" }
ratio = "double"
givenAt = "timestamp"
late = { type = "timestamp", required = false }

[topics.marks]
kind = "events"
key = ["id"]
fields = { id = "long" }
"""
VIEW = '[views.answered]\nsql = "SELECT 1"\ndescription = "x"\n'
JOIN = """
[joins.answered]
left = "calls"
right = "answers"
on = { who = "who" }
within = { before = "5 seconds", after = "1 hour" }
"""


def test_a_join_is_a_view_with_the_fields_of_both_events(tmp_path: Path) -> None:
    topics = declared(tmp_path, CALLS + JOIN)
    [view] = topics.kept_views()
    assert view.key == ["id", "answers_place", "answers_nr"]
    assert view.columns == {
        **{"id": "bigint", "who": "string", "name": "string", "ratio": "double"},
        **{"at": "timestamp", "name_hash": "string"},
        **{"answers_place": "int", "answers_nr": "bigint", "answers_who": "string"},
        **{"answers_text": "string", "answers_ratio": "double"},
        **{"answers_given_at": "timestamp", "answers_late": "timestamp"},
    }
    assert topics.joined["answered"].join.missing == "missing_answered"
    assert topics.joined["answered"].is_missing == "answers_place IS NULL"


def test_fields_with_parts_are_not_among_the_columns(tmp_path: Path) -> None:
    text = CALLS.replace(
        "late = {", 'words = "array<string>"\nplan = "struct<a: int>"\nlate = {'
    ).replace('who = "string"', 'who = { type = "string", path = "caller.name" }', 1)
    [view] = declared(tmp_path, text + JOIN).kept_views()
    assert view.columns["who"] == "string"
    assert not {"answers_words", "answers_plan"} & {*view.columns}


def test_gold_sees_as_much_of_the_fields_as_of_the_topics(tmp_path: Path) -> None:
    topics = declared(tmp_path, CALLS + JOIN)
    [view] = topics.kept_views()
    assert view_table(view, topics).properties[PERSONAL] == (
        '{"name": "hash", "answers_text": "mask"}'
    )


def test_only_one_partner_is_no_part_of_the_key(tmp_path: Path) -> None:
    one = JOIN + 'match = "first"\nprefix = "firstAnswer"\n'
    [view] = declared(tmp_path, CALLS + one).kept_views()
    assert view.key == ["id"]
    assert "first_answer_given_at" in view.columns


@pytest.mark.parametrize("more", ["", 'match = "first"\n', 'match = "last"\n'])
def test_a_changed_event_affects_events_of_its_keys_in_near_bins(tmp_path: Path, more: str) -> None:
    topics = declared(tmp_path, CALLS + JOIN + more)
    [query] = topics.view_queries
    relations = {
        f"enriched_{topic.name}": {c.name: c.type for c in enriched_table(topic, topics).columns}
        for topic in topics.events()
    }
    plan = make_plan(read_query(query.sql, relations), query.view.key)
    assert plan.scope == ("id",)
    assert [splice.scope[0].sql("spark") for splice in plan.splices] == ["`id`"]
    [calls, *answers] = plan.terms
    assert calls.columns == ["id"]
    assert {term.through for term in answers} == {("enriched_calls",)}
    assert all("UNIX_MICROS(_rows.`at`) DIV 3605000000 =" in t.select.sql("spark") for t in answers)


@pytest.mark.parametrize(
    ("was", "becomes", "line", "says"),
    [
        ('left = "calls"', 'left = "cals"', "left", "'cals' is not a topic of this file; top"),
        ('right = "answers"', 'right = "people"', "right", "is a changelog.*declare a lookup"),
        ('right = "answers"', 'right = "marks"', "right", "'marks' has no 'event_time'.*set it"),
        ('who = "who"', 'who = "nobody"', "on", "'nobody', which is not a field of topic 'an"),
        ('who = "who"', 'nobody = "who"', "on", "'nobody', which is not a field of topic 'calls'"),
        ('who = "who"', 'id = "who"', "on", "'id' is bigint and 'who' is string; join fields of"),
        ('who = "who"', 'id = "place"', "on", "'id' is bigint and 'place' is int"),
        ('who = "who"', 'ratio = "ratio"', "on", "'ratio' is double, which has no exact equality"),
        ('{ who = "who" }', "{}", "on", "at least 1"),
        ('"5 seconds"', '"-5 seconds"', "within", "within.before: '-5 seconds' is neg"),
        ('"1 hour"', '"1 h"', "within", "joins.answered.within.after: '1 h' is no duration"),
        (
            '{ before = "5 seconds", after = "1 hour" }',
            '{ before = "0 seconds" }',
            "within",
            "joins.answered.within: is empty; set 'before' or 'after'",
        ),
        ("before = ", "until = ", "within", "joins.answered.within.until: unknown key"),
        ("[joins", f"{VIEW}[joins", "view", "same name"),
        ("[joins.answered]", "[joins.calls_state]", "[joins", None),
        ("[joins.answered]", "[joins.quarantine]", "[joins", "the name 'quarantine' in silver"),
        ("[joins.answered]", "[joins.people_state]", "[joins", "the name 'people_state'"),
        ("within = {", 'match = "best"\nwithin = {', "match", "joins.answered.match"),
        ("within = {", 'left_where = "rand() > 0"\nwithin = {', "left_where", "calls rand, which"),
        ("within = {", 'right_where = "name = 1"\nwithin = {', "right_where", "uses 'name', which"),
        ("within = {", 'grace = "1 day"\nwithin = {', "grace", "joins.answered.grace: unknown key"),
        (
            'event_time = "givenAt"',
            'event_time = "givenAt"\nkeep = "9 days"',
            "right",
            "'answers' has 'keep', but an event of 'calls' would be listed",
        ),
        ('event_time = "at"', 'event_time = "at"\nkeep = "9 days"', "left", None),
        ('event_time = "at"', "", "left", "'calls' has no 'event_time'"),
        ('event_time = "givenAt"', 'event_time = "late"', "right", "'late'.*must be a timestamp"),
        (
            'ratio = "double"\nat',
            'answers_nr = "long"\nat',
            "[joins.answered]",
            "'answers_nr' would come",
        ),
    ],
)
def test_an_error_names_its_line_key_and_remedy(
    tmp_path: Path, was: str, becomes: str, line: str, says: str | None
) -> None:
    # The other join has the same keys, further up.
    other = JOIN.replace("answered", "other").replace("within", 'prefix = "other"\nwithin')
    text = CALLS + other + JOIN
    begin = text.index("[joins.answered]")
    if was in text[begin:]:
        text = text[:begin] + text[begin:].replace(was, becomes)
    else:
        text = text.replace(was, becomes)
    if says is None:
        declared(tmp_path, text)
        return
    with pytest.raises(SettingsError, match=says) as error:
        declared(tmp_path, text)
    lines = text.splitlines()
    number = int(str(error.value).split("topics.toml:")[1].split(":")[0])
    assert line in lines[number - 1], error.value
    if "joins.answered" in str(error.value):
        assert number > lines.index("[joins.answered]")  # lines are counted from 1


def test_a_lookup_and_a_join_of_one_name_are_refused(tmp_path: Path) -> None:
    lookup = '[topics.marks.lookups]\nanswered = { topic = "people", on = "id" }\n'
    with pytest.raises(SettingsError, match="join 'answered' needs the name 'missing_answered'"):
        declared(tmp_path, CALLS + lookup + JOIN)


def test_a_topic_file_without_joins_has_none(tmp_path: Path) -> None:
    topics: TopicFile = declared(tmp_path, CALLS)
    assert topics.joined == {}
    assert topics.view_queries == []
