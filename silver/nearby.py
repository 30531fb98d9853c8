"""The instants near which a batch has changed events, so that a join handles only rows near them.

Events of different times are mostly in different files, whose statistics have the earliest and the
latest time. The cost of a batch of a join therefore follows the batch, and not the tables.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from lake.quoting import identifier
from lake.topics.durations import micros
from lake.topics.views.joins import Reach

MOST_SPANS = 16  # in a condition
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
FIRST = micros(dt.datetime.min.replace(tzinfo=dt.timezone.utc) - EPOCH)
LAST = micros(dt.datetime.max.replace(tzinfo=dt.timezone.utc) - EPOCH)
# Statistics of files drop microseconds.
SLOP = micros(dt.timedelta(seconds=1))

Span = tuple[int, int]


@dataclass(frozen=True)
class Nearby:
    """The instants of changed events, as spans of microseconds since 1970, and how far they reach.

    A row of the join can differ only if the time of its event of `left` is within one reach of a
    changed event. The partners of that event are within two reaches. Events without a time, which
    are from before it was required, have no partners and count as near.
    """

    reach: Reach
    spans: tuple[Span, ...]

    @classmethod
    def of(cls, reach: Reach, changes: Mapping[str, pa.Table]) -> Nearby:
        """The instants of the changed rows of some tables, given as they were and as they are."""
        found: set[int] = set()
        for name, rows in changes.items():
            instants = pc.cast(rows[reach.times[name]], pa.timestamp("us", "UTC"))
            found.update(pc.unique(pc.cast(instants, pa.int64()).drop_null()).to_pylist())
        return cls(reach, tuple(_spans(sorted(found))))

    def read(self, name: str) -> str:
        """The condition, in Spark's SQL, of the events of a table that may be needed."""
        return self._sql(identifier(self.reach.times[name]), 2 * micros(self.reach.span))

    def written(self, alias: str) -> str:
        """The condition, in Spark's SQL, of the rows of the join that can differ."""
        return self._sql(f"{alias}.{identifier(self.reach.column)}", micros(self.reach.span))

    def searched(self) -> str:
        """A condition, in DataFusion's SQL, that rows of the join meet if they can differ."""
        column, parts = self.reach.column, [f'"{self.reach.column}" IS NULL']
        for low, high in self._wider(micros(self.reach.span) + SLOP):
            first, last = (_instant(each).isoformat() for each in (low, high))
            parts.append(f"\"{column}\" >= '{first}' AND \"{column}\" <= '{last}'")
        return " OR ".join(f"({part})" for part in parts)

    def holds(self, instant: dt.datetime | None) -> bool:
        """Whether a row of the join can differ, given the time of its event of `left`."""
        if instant is None:
            return True
        at = micros(instant.astimezone(dt.timezone.utc) - EPOCH)
        wider = self._wider(micros(self.reach.span))
        place = bisect_right(wider, (at, LAST))
        return place > 0 and at <= wider[place - 1][1]

    def _sql(self, column: str, margin: int) -> str:
        parts = (
            f"{column} BETWEEN timestamp_micros({low}) AND timestamp_micros({high})"
            for low, high in self._wider(margin)
        )
        return f"({' OR '.join([f'{column} IS NULL', *parts])})"

    def _wider(self, margin: int) -> list[Span]:
        """The spans with a margin on both sides. They do not overlap."""
        found: list[Span] = []
        for low, high in self.spans:
            begin, end = max(low - margin, FIRST), min(high + margin, LAST)
            if found and begin <= found[-1][1]:
                begin, end = found.pop()[0], end
            found.append((begin, end))
        return found


def _spans(instants: list[int]) -> list[Span]:
    """Spans that contain some sorted instants, divided at the greatest gaps."""
    if not instants:
        return []
    gaps = sorted(((b - a, n) for n, (a, b) in enumerate(pairwise(instants))), reverse=True)
    cuts = sorted(n for _, n in gaps[: MOST_SPANS - 1])
    begins = [0, *(n + 1 for n in cuts)]
    ends = [*cuts, len(instants) - 1]
    return [(instants[a], instants[b]) for a, b in zip(begins, ends, strict=True)]


def _instant(since_epoch: int) -> dt.datetime:
    return EPOCH + dt.timedelta(microseconds=since_epoch)
