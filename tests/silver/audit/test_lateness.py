"""Tests which events are late: those in the count of a batch, in the list, and in Python."""

import datetime as dt
import json
import random
from pathlib import Path
from typing import Any

import late_model
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from late_model import Published
from pyspark.sql import SparkSession
from silver_lake import SilverLake
from topic import declared

from lake.tables.spec import bronze_table
from lake.topics.views.late import LateEvents
from pulsar_spark.errors import SettingsError
from pulsar_spark.schema import ORDER_FIELDS
from silver.audit.lateness import late_by
from silver.audit.totals import AuditTotals
from silver.contract.tables import PERSONAL, RECONCILIATION, silver_tables
from silver.rebuild import rebuild
from silver.records.masking import protected_tables

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.timezone.utc)
SECOND = dt.timedelta(seconds=1)
BOUND = 5 * SECOND
DECLARED = """
[topics.calls]
kind = "events"
key = ["id"]
event_time = "startedAt"
lateness = "5 seconds"
[topics.calls.fields]
id = "int"
startedAt = { type = "timestamp_ms", required = false }
"""
FOLLOWED = (
    """
[publish.late]
from = "silver.late_calls"
key = ["id"]

[views.late_hours]
description = "?"
key = ["hour"]
columns = { hour = "timestamp", late = "bigint", worst = "bigint" }
sql = """
    + '"""'
    + """
SELECT date_trunc('HOUR', started_at) AS hour, count(*) AS late, max(late_by_ms) AS worst
FROM late_calls GROUP BY date_trunc('HOUR', started_at)
"""
    + '"""\n'
)
INSTANT = pa.timestamp("us", "UTC")


def place(partition: int, entry: int) -> tuple[int, ...]:
    """Return a position without an order time, as Python compares it: NULL first."""
    return (-1, partition + 1, entry, 0, partition)


def table(events: list[Published]) -> pa.Table:
    """Return events as silver has them: event time, publish time, position."""
    positions = [dict(zip(ORDER_FIELDS, (None, *each.place[1:]), strict=True)) for each in events]
    kinds = {"order_time": INSTANT, "ledger": pa.int64(), "entry": pa.int64()}
    struct = pa.struct([(name, kinds.get(name, pa.int32())) for name in ORDER_FIELDS])
    return pa.table(
        {
            "started_at": pa.array([each.at for each in events], INSTANT),
            "publish_time": pa.array([each.published for each in events], INSTANT),
            "position": pa.array(positions, struct),
        }
    )


@st.composite
def histories(draw: st.DrawFn) -> list[Published]:
    """Events of three partitions. Many are late by about the bound, in whole seconds."""
    found = []
    for n in range(draw(st.integers(1, 12))):
        published = NOON + SECOND * draw(st.integers(0, 15))
        at = draw(st.none() | st.integers(-12, 17).map(lambda s: NOON + SECOND * s))
        found.append(Published(n, at, published, place(draw(st.integers(0, 2)), n)))
    return found


@settings(max_examples=300, deadline=None)
@given(histories(), st.integers(0, 12))
def test_the_count_of_batches_in_order_is_that_of_all_events(
    events: list[Published], cut: int
) -> None:
    in_order = sorted(events, key=lambda each: (each.published, each.place))
    moved = [min(e.at, e.published) for e in in_order[:cut] if e.at is not None]
    found: list[dt.timedelta] = []
    for batch, before in ((in_order[:cut], None), (in_order[cut:], max(moved, default=None))):
        shuffled = random.Random(1).sample(batch, len(batch))
        late = late_by(table(shuffled), before, BOUND)
        found += [dt.timedelta(microseconds=each) for each in late.to_pylist()]
    wanted = late_model.late(events, BOUND).values()
    assert sorted(found) == sorted(gap for _, gap in wanted)


@pytest.mark.parametrize(("micros", "is_late"), [(5_000_000, False), (5_000_001, True)])
def test_an_event_at_the_bound_is_not_late(micros: int, is_late: bool) -> None:
    event = Published(1, NOON - dt.timedelta(microseconds=micros), NOON, place(0, 1))
    assert len(late_by(table([event]), NOON, BOUND)) == is_late


def sample(seed: int, count: int) -> list[Published]:
    chance, found = random.Random(seed), []
    for n in range(count):
        published = NOON + SECOND * chance.randrange(3 * 3600)
        gap = chance.choice([-60, 0, 0, 0, 4, 5, 5, 6, 4000])
        behind = dt.timedelta(seconds=gap, milliseconds=chance.choice([0, 0, 1]))
        at = None if chance.random() < 0.1 else published - behind
        found.append(Published(n, at, published, place(chance.randrange(3), n)))
    return found


def listed(lake: SilverLake) -> dict[int, Any]:
    """Return what the view of the late events gives for the topic's enriched rows."""
    lake.table("enriched_calls").createOrReplaceTempView("enriched_calls")
    found = {}
    for row in lake.spark.sql(LateEvents(lake.topics.topics["calls"]).sql()).collect():
        at, mark = (row[n].astimezone(dt.timezone.utc) for n in ("started_at", "watermark"))
        assert row["late_by_ms"] == (mark - at) // dt.timedelta(milliseconds=1)
        found[row["id"]] = mark, mark - at
    return found


def kept(lake: SilverLake) -> dict[int, Any]:
    """Return what the table of the late events has."""
    found = {row["id"]: row for row in lake.rows("late_calls")}
    return {n: (row["watermark"], row["watermark"] - row["started_at"]) for n, row in found.items()}


def late_hours(wanted: dict[int, Any]) -> dict[dt.datetime, tuple[int, int]]:
    found: dict[dt.datetime, list[int]] = {}
    for mark, gap in wanted.values():
        hour = (mark - gap).replace(minute=0, second=0, microsecond=0)
        found.setdefault(hour, []).append(gap // dt.timedelta(milliseconds=1))
    return {hour: (len(gaps), max(gaps)) for hour, gaps in found.items()}


def put(lake: SilverLake, events: list[Published]) -> None:
    """Append events to bronze, as they would land."""
    rows = []
    for event in events:
        at = event.at and round(event.at.timestamp() * 1000)
        payload = json.dumps({"id": event.key, "startedAt": at}).encode()
        position = dict(zip(ORDER_FIELDS, (None, *event.place[1:]), strict=True))
        rows.append(
            {
                "topic": "persistent://public/default/calls",
                **position,
                **{"key": str(event.key), "payload": payload, "publish_time": event.published},
                "properties": [],
            }
        )
    lake.lake.table(bronze_table("calls")).arrow.append(rows)


def test_the_list_is_the_same_for_any_batches_and_after_a_replay(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = SilverLake(spark.newSession(), tmp_path, declared(tmp_path, DECLARED))
    events = sample(3, 120)
    in_order = sorted(events, key=lambda each: (each.published, each.place))
    wanted = late_model.late(events, BOUND)
    assert 10 < len(wanted) < 90
    for batch in (in_order[:50], in_order[50:]):
        put(lake, batch)
        lake.refine()
    assert listed(lake) == wanted
    audit = AuditTotals(lake.lake)
    audit.read()
    assert audit.of_batches("calls")["late"] == len(wanted), "all landed in the order of publishing"
    worst = max(row["max_lateness_ms"] for row in lake.rows(RECONCILIATION.name))
    assert worst == max(gap for _, gap in wanted.values()) // dt.timedelta(milliseconds=1)

    # A partition that was read late, and batches that are divided otherwise. Here, the list is a
    # table, which a sink and a view with a key read.
    topics = declared(tmp_path, DECLARED + FOLLOWED)
    other = SilverLake(spark.newSession(), tmp_path / "other", topics)
    behind = [each for each in events if each.place[-1] == 2]
    ahead = [each for each in events if each.place[-1] != 2]
    for batch in (ahead, behind[:5], behind[5:]):
        put(other, batch)
        other.refine()
    assert listed(other) == kept(other) == wanted
    rebuild(other.spark, other.lake)
    assert listed(other) == kept(other) == wanted

    # Events that are sent again: the watermark of those after them moves as well.
    again = [
        e._replace(at=e.published - 3 * SECOND, place=place(e.place[-1], 500 + e.key))
        for e in events
        if e.key in list(wanted)[:3] or e.key in (7, 70)
    ]
    events = [e for e in events if e.key not in {each.key for each in again}] + again
    put(other, again)
    other.refine()
    changed = late_model.late(events, BOUND)
    assert changed != wanted
    assert kept(other) == changed
    hours = {row["hour"]: (row["late"], row["worst"]) for row in other.rows("late_hours")}
    assert hours == late_hours(changed)

    # The last event of all is late only because of events before it, which have not changed.
    last = max(each.published for each in events)
    events.append(Published(1000, last - 60 * SECOND, last + SECOND, place(0, 1000)))
    put(other, events[-1:])
    other.refine()
    assert kept(other) == late_model.late(events, BOUND)
    assert 1000 in kept(other)


def test_a_large_batch_is_judged_as_a_small_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = SilverLake(spark, tmp_path, declared(tmp_path, DECLARED))
    events = sample(4, 60)
    monkeypatch.setattr("silver.records.batch_stats.FEW", 5)
    put(lake, events)
    lake.refine()
    [row] = lake.rows(RECONCILIATION.name)
    assert row["late"] == len(late_model.late(events, BOUND))


def test_the_list_is_a_table_if_a_sink_or_a_view_with_a_key_reads_it(tmp_path: Path) -> None:
    plain = '[views.plain]\ndescription = "?"\nsql = "SELECT id FROM late_calls"\n'
    through = (
        '[views.last]\ndescription = "?"\nkey = ["id"]\ncolumns = { id = "int" }\n'
        'sql = "SELECT id FROM plain"\n'
    )
    export = (
        '[export.late]\nfrom = "silver.late_calls"\ntable = "public.late"\nkey = ["id"]\n'
        'url_env = "DB"\n'
    )
    for text, is_table in (("", False), (plain, False), (plain + through, True), (export, True)):
        topics = declared(tmp_path, DECLARED + text)
        names = {spec.name for spec in silver_tables(topics)}
        assert ("late_calls" in names, [*topics.late_tables] != []) == (is_table, is_table), text
        assert "late_calls" in topics.late_views()
    bad = export.replace('key = ["id"]', 'key = ["id", "duration"]')
    with pytest.raises(SettingsError, match="'duration', which is no column of silver.late_calls"):
        declared(tmp_path, DECLARED + bad)


@pytest.mark.parametrize("personal", [True, False])
def test_gold_sees_of_late_events_what_it_sees_of_the_topic(tmp_path: Path, personal: bool) -> None:
    text = DECLARED + FOLLOWED
    if personal:
        text = text.replace(
            '"timestamp_ms", required', '"timestamp_ms", personal = "mask", required'
        )
    topics = declared(tmp_path, text)
    [spec] = [spec for spec in protected_tables(topics) if spec.name == "late_calls"]
    assert spec.properties.get(PERSONAL) == ('{"started_at": "null"}' if personal else None)


@pytest.mark.parametrize(
    ("was", "becomes", "says"),
    [
        ('"5 seconds"', '"-5 seconds"', ":6: topics.calls.lateness: '-5 seconds' is negative"),
        ('"5 seconds"', '"5s"', ":6: topics.calls.lateness: '5s' is no duration"),
        ('event_time = "startedAt"\n', "", "topic 'calls' has a 'lateness', so it needs an 'event"),
        ('kind = "events"', 'kind = "changelog"', "only events are late. Remove 'lateness'"),
        ('"timestamp_ms"', '"date"', "must be 'timestamp' or 'timestamp_ms'"),
        ("startedAt", "watermark", "adds a column 'watermark' of its own. Rename the field"),
        (
            "[topics.calls]",
            '[topics.late_calls]\nkind = "changelog"\nkey = ["id"]\n'
            'fields = { id = "int" }\n[topics.calls]',
            "needs the name 'late_calls' in silver, which is taken",
        ),
    ],
)
def test_a_lateness_that_does_not_fit_is_refused(
    tmp_path: Path, was: str, becomes: str, says: str
) -> None:
    with pytest.raises(SettingsError, match=says):
        declared(tmp_path, DECLARED.replace(was, becomes))
