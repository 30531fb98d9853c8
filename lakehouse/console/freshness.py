"""How far each stage has been behind over the last hour, which one is slow, and when it is done.

The delay of a stage is the time for which it has lacked something that the stage before it has. It
is 0 for a stage that has everything, even if no message has arrived for days. The delay is an upper
bound: it cannot be known when the first message that is missing was published without reading it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Stage = Literal["bronze", "silver", "gold"]
STAGES: tuple[Stage, ...] = ("bronze", "silver", "gold")
READS: dict[Stage, str] = {"bronze": "the topics", "silver": "bronze", "gold": "silver"}
HOUR = 3600.0
LATELY = 300.0  # from whose looks the remaining time is estimated
SLOW = 5.0  # seconds of delay below which no stage is called slow
LEAST = 1000  # messages below which nothing is called a backfill


@dataclass(frozen=True)
class Point:
    """What one look has found. Times are in seconds since 1970.

    unread: messages that bronze lacks; None while no broker answers.
    landed_to: when the newest message in bronze was published.
    unrefined: messages of bronze that silver lacks.
    refined_at: when silver finished its newest batch.
    unpublished_since: when silver finished the first batch that gold lacks; None if it has all.
    is_published: whether gold was published at all.
    """

    at: float
    unread: int | None
    landed_to: float | None
    unrefined: int
    refined_at: float | None
    unpublished_since: float | None
    is_published: bool


@dataclass(frozen=True)
class Summary:
    """The state of a stage.

    delay: in seconds now; None if unknown. usual and worst: median and maximum of the last hour.
    waiting: messages that it lacks; None if unknown, or for gold.
    remaining: the estimated seconds until it has caught up; None if it has, or if it does not
        catch up.
    """

    stage: Stage
    delay: float | None
    usual: float | None
    worst: float | None
    waiting: int | None = None
    remaining: float | None = None

    @property
    def is_backfill(self) -> bool:
        """Whether so much is missing that the remaining time is of interest."""
        return (self.waiting or 0) >= LEAST


class Freshness:
    """The delays of the last hour. One thread adds to it, others read."""

    def __init__(self) -> None:
        self._points: deque[tuple[Point, dict[Stage, float | None]]] = deque()
        self._complete: dict[Stage, float] = {}  # when a stage was last seen to have everything

    def add(self, point: Point) -> None:
        """Add what a look has found."""
        delays: dict[Stage, float | None] = {
            "bronze": self._delay("bronze", point.at, point.unread, point.landed_to),
            "silver": self._delay("silver", point.at, point.unrefined, point.refined_at),
            "gold": None,
        }
        if point.is_published:
            since = point.unpublished_since
            delays["gold"] = 0.0 if since is None else max(point.at - since, 0.0)
        self._points.append((point, delays))
        while point.at - self._points[0][0].at > HOUR:
            self._points.popleft()

    def _delay(
        self, stage: Stage, now: float, waiting: int | None, moved: float | None
    ) -> float | None:
        """The delay of a stage that lacks messages.

        Args:
            stage: the stage.
            now: the time.
            waiting: how many it lacks.
            moved: an instant up to which it certainly had everything.
        """
        if waiting is None:
            return None
        if waiting == 0:
            self._complete[stage] = now
            return 0.0
        known = [each for each in (moved, self._complete.get(stage)) if each is not None]
        return max(now - max(known), 0.0) if known else None

    def series(self, stage: Stage, most: int = 180) -> list[tuple[float, float]]:
        """The delays of a stage by time: the worst in each of `most` intervals at the most."""
        found = [
            (point.at, delay)
            for point, delays in list(self._points)
            if (delay := delays[stage]) is not None
        ]
        size = -(-len(found) // most) or 1
        parts = (found[start : start + size] for start in range(0, len(found), size))
        return [(part[-1][0], max(delay for _, delay in part)) for part in parts]

    def summaries(self) -> list[Summary]:
        """The state of each stage."""
        points = list(self._points)
        if not points:
            return [Summary(stage, None, None, None) for stage in STAGES]
        last, now = points[-1]
        summaries = []
        for stage in STAGES:
            known = sorted(d for _, delays in points if (d := delays[stage]) is not None)
            summaries.append(
                Summary(
                    stage,
                    now[stage],
                    known[len(known) // 2] if known else None,
                    known[-1] if known else None,
                    _waiting(last, stage),
                    _remaining([(p.at, _waiting(p, stage)) for p, _ in points]),
                )
            )
        return summaries


def slow_stage(summaries: Sequence[Summary]) -> Summary | None:
    """The stage with the greatest delay; None if none is slow."""
    slow = max(summaries, key=lambda each: each.delay or 0.0, default=None)
    return slow if slow is not None and (slow.delay or 0.0) >= SLOW else None


def _waiting(point: Point, stage: Stage) -> int | None:
    if stage == "bronze":
        return point.unread
    return point.unrefined if stage == "silver" else None


def _remaining(found: Sequence[tuple[float, int | None]]) -> float | None:
    """The seconds until nothing waits, if it goes on as lately."""
    known = [(at, count) for at, count in found if count is not None]
    if len(known) < 2 or known[-1][1] == 0:
        return None
    end, left = known[-1]
    first = next((at, count) for at, count in known if end - at <= LATELY)
    fewer, seconds = first[1] - left, end - first[0]
    return left * seconds / fewer if fewer > 0 and seconds > 0 else None


@dataclass(frozen=True)
class Chart:
    """A drawing of delays: the line, the area below it, and what the axes say.

    top: the delay at the upper edge, in seconds. minutes: the time from the left edge to the right.
    """

    line: str
    area: str
    top: float
    minutes: float


WIDTH, HEIGHT = 600, 120


def chart(points: Sequence[tuple[float, float]], now: float) -> Chart | None:
    """The drawing of a series, which ends now; None if it is too short."""
    if len(points) < 2:
        return None
    begun = points[0][0]
    span = max(now - begun, 1.0)
    top = _round_up(max(10.0, *(delay for _, delay in points)))
    places = [
        f"{(at - begun) / span * WIDTH:.1f} {HEIGHT - delay / top * HEIGHT:.1f}"
        for at, delay in points
    ]
    last = (points[-1][0] - begun) / span * WIDTH
    area = f"M0 {HEIGHT} L{' L'.join(places)} L{last:.1f} {HEIGHT} Z"
    return Chart(f"M{' L'.join(places)}", area, top, span / 60)


def _round_up(seconds: float) -> float:
    """The next number that reads well on an axis."""
    steps = (10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400)
    return float(next((step for step in steps if seconds <= step), seconds))
