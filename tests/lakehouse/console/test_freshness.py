"""Tests the delays of the stages, and what is said about them."""

import pytest

from lakehouse.console.freshness import Freshness, Point, chart, slow_stage

NONE = Point(0, 0, None, 0, None, None, is_published=False)


def point(at: float, **own: object) -> Point:
    return Point(**{**vars(NONE), "at": at, **own})  # type: ignore[arg-type]


def watched(*points: Point) -> Freshness:
    found = Freshness()
    for each in points:
        found.add(each)
    return found


def delays(freshness: Freshness) -> dict[str, float | None]:
    return {each.stage: each.delay for each in freshness.summaries()}


def test_a_stage_that_has_everything_has_no_delay_however_old_the_messages_are() -> None:
    old = point(1_000_000, landed_to=5, refined_at=6, is_published=True)
    assert delays(watched(old)) == {"bronze": 0, "silver": 0, "gold": 0}


def test_the_delay_counts_from_when_the_stage_last_had_everything() -> None:
    found = watched(
        point(100, landed_to=10, refined_at=20),
        point(130, landed_to=10, refined_at=20, unread=5, unrefined=7),
    )
    assert delays(found) == {"bronze": 30, "silver": 30, "gold": None}
    found.add(point(150, landed_to=145, refined_at=20, unread=1, unrefined=7))
    assert delays(found) == {"bronze": 5, "silver": 50, "gold": None}
    slow = slow_stage(found.summaries())
    assert slow is not None
    assert (slow.stage, slow.usual, slow.worst) == ("silver", 30, 50)


def test_what_is_not_known_is_not_guessed() -> None:
    assert delays(Freshness()) == {"bronze": None, "silver": None, "gold": None}
    found = watched(point(100, unread=None, unrefined=3))
    assert delays(found) == {"bronze": None, "silver": None, "gold": None}
    assert slow_stage(found.summaries()) is None


def test_gold_lags_since_the_first_batch_that_it_lacks() -> None:
    assert delays(watched(point(100, is_published=True, unpublished_since=60)))["gold"] == 40


def test_the_remaining_time_of_a_backfill_follows_from_the_last_minutes() -> None:
    found = watched(*(point(t, unread=10_000 - 10 * t, landed_to=0) for t in range(0, 301, 10)))
    bronze = found.summaries()[0]
    assert bronze.is_backfill
    assert bronze.remaining == pytest.approx(700)
    growing = watched(*(point(t, unread=1_000 + t, landed_to=0) for t in range(0, 100, 10)))
    assert growing.summaries()[0].remaining is None


def test_points_older_than_an_hour_are_forgotten() -> None:
    found = watched(*(point(t, unread=1, landed_to=0) for t in range(0, 7300, 100)))
    assert found.series("bronze")[0][0] == 3600
    assert len(found.series("bronze", most=10)) == 10
    assert max(delay for _, delay in found.series("bronze", most=10)) == 7200


def test_the_chart_ends_now_and_begins_with_the_first_point() -> None:
    assert chart([(1, 2)], 3) is None
    drawn = chart([(100, 0), (130, 30), (160, 15)], 160)
    assert drawn is not None
    assert drawn.line == "M0.0 120.0 L300.0 0.0 L600.0 60.0"
    assert (drawn.top, drawn.minutes) == (30, 1)
