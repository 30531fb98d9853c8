"""The batches of each stream on a line of time, by phase."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lake.observe.recent_batches import RECENT, Batch
from lake.settings.settings import LakeSettings
from lake.streams.state import finished_batches

# Spark's phases of a batch, by what they mean to an operator.
PHASES = {
    "read": ("latestOffset", "getOffset", "getEndOffset", "getBatch", "setOffsetRange"),
    "plan": ("queryPlanning", "walCommit"),
    "process": ("addBatch",),
    "commit": ("commitOffsets", "commitBatch"),
}
WHOLE = "batch"  # the only phase of a batch of another process
WIDTH = 1000  # of a lane, in units of its drawing
HEIGHT = 26
SPANS = (5, 15, 60)  # minutes
USUAL_SPAN = 15


@dataclass(frozen=True)
class Bar:
    """A phase of a batch in the drawing of a lane."""

    x: float
    width: float
    phase: str
    title: str


@dataclass(frozen=True)
class Lane:
    """A stream. Times are in seconds; `usual` is the median, `busy` the part of the time."""

    stream: str
    bars: list[Bar]
    batches: int
    usual: float | None
    longest: float | None
    busy: float
    slowest: list[tuple[Batch, dict[str, float]]]


def lanes(settings: LakeSettings, names: Iterable[str], now: float, minutes: int) -> list[Lane]:
    """The lanes of streams over the last minutes."""
    since = now - minutes * 60
    return [_lane(name, _batches(settings, name, since), since, now) for name in names]


def _batches(settings: LakeSettings, name: str, since: float) -> list[Batch]:
    """The batches that ended after an instant, with phases if this process has run them."""
    own = {batch.number: batch for batch in RECENT.of(name)}
    all_of_them = {batch.number: batch for batch in finished_batches(settings, name)} | own
    found = (all_of_them[number] for number in sorted(all_of_them))
    return [batch for batch in found if batch.begun + batch.seconds >= since]


def _lane(name: str, batches: Sequence[Batch], since: float, now: float) -> Lane:
    bars: list[Bar] = []
    scale = WIDTH / (now - since)
    for batch in batches:
        begun = batch.begun
        for phase, seconds in phases_of(batch).items():
            start = max(begun, since)
            end = min(begun + seconds, now)
            begun += seconds
            if end < start:
                continue
            width = max((end - start) * scale, 1.0 if phase in ("process", WHOLE) else 0.3)
            title = f"batch {batch.number:,}: {phase} {seconds:.2f} s of {batch.seconds:.2f} s"
            bars.append(Bar(round((start - since) * scale, 2), round(width, 2), phase, title))
    times = sorted(batch.seconds for batch in batches)
    slowest = sorted(batches, key=lambda batch: -batch.seconds)[:5]
    return Lane(
        name,
        bars,
        len(batches),
        times[len(times) // 2] if times else None,
        times[-1] if times else None,
        min(sum(times) / (now - since), 1.0),
        [(batch, phases_of(batch)) for batch in slowest],
    )


def phases_of(batch: Batch) -> dict[str, float]:
    """The seconds of each of our phases, in their order."""
    if not batch.phases:
        return {WHOLE: batch.seconds}
    found = {
        phase: sum(batch.phases.get(name, 0.0) for name in names) for phase, names in PHASES.items()
    }
    return {phase: seconds for phase, seconds in found.items() if seconds > 0}
