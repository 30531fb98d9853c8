"""Tests the groups and records of the quarantine, with SQL on texts that need quoting."""

import datetime as dt
from pathlib import Path

import pytest
from quiet_lake import UTC, QuietLake, position
from served_console import quiet_settings

from lakehouse.console.masking import Masking
from lakehouse.console.quarantine import PAGE, Filter, Group, groups, records
from silver.audit.totals import count_open

ODD = """it's "odd" \\ % _ -- ; drop"""
DAY = dt.datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> QuietLake:
    found = QuietLake(quiet_settings(tmp_path_factory.mktemp("refused")))
    found.refuse(
        *[
            {
                "topic": "orders",
                "reason": ODD,
                "payload": f"{n}".encode(),
                "publish_time": DAY + dt.timedelta(seconds=n),
                "position": position(n),
                "status": "discarded" if n % 3 == 0 else "open",
            }
            for n in range(PAGE + 20)
        ],
        {"topic": "users", "reason": "payload is empty", "payload": None, "publish_time": DAY},
    )
    return found


def test_groups_are_counted_by_topic_reason_and_status(quiet: QuietLake) -> None:
    found, count, refused = groups(quiet.lake, Filter())
    assert (count, refused) == (3, PAGE + 21)
    second, last = (DAY + dt.timedelta(seconds=n) for n in (1, PAGE + 18))
    assert found == [
        Group("orders", ODD, "open", 46, second, DAY + dt.timedelta(seconds=PAGE + 17 + 1)),
        Group("orders", ODD, "discarded", 24, DAY, DAY + dt.timedelta(seconds=PAGE + 19)),
        Group("users", "payload is empty", "open", 1, DAY, DAY),
    ]
    assert last == found[0].last


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (Filter(topic="users"), 1),
        (Filter(text="IT'S"), 2),
        (Filter(text="\\ %"), 2),
        (Filter(text="_x"), 0),
        (Filter(status="open"), 2),
        (Filter(topic="' or 1=1 --"), 0),
        (Filter(page=2), 0),
    ],
)
def test_groups_are_filtered(quiet: QuietLake, wanted: Filter, count: int) -> None:
    assert len(groups(quiet.lake, wanted)[0]) == count


def test_records_come_by_pages_the_newest_first(quiet: QuietLake) -> None:
    masking = Masking(quiet.lake.topics, shows_all=False)
    found, count, waiting = records(quiet.lake, masking, "orders", ODD)
    assert (len(found), count, waiting) == (PAGE, PAGE + 20, 46)
    assert [each.payload for each in found[:2]] == [f"{PAGE + 19}", f"{PAGE + 18}"]
    assert found[0].position.startswith("1:69:0")
    rest, *_ = records(quiet.lake, masking, "orders", ODD, 2)
    assert [each.payload for each in rest] == [f"{n}" for n in reversed(range(20))]
    assert records(quiet.lake, masking, "orders", "another") == ([], 0, 0)


def test_open_records_are_counted_for_a_decision(quiet: QuietLake, tmp_path: Path) -> None:
    assert count_open(quiet.lake, None, None) == 47
    assert count_open(quiet.lake, "orders", ODD) == 46
    assert count_open(quiet.lake, "users", None) == 1
    empty = QuietLake(quiet_settings(tmp_path)).lake
    assert count_open(empty, None, None) == 0
    assert groups(empty, Filter()) == ([], 0, 0)
