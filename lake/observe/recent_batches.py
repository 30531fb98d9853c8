"""The last batches of the streams of this process, for a console that runs in it."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MOST = 300  # batches of each stream


@dataclass(frozen=True)
class Batch:
    """A batch that has ended.

    number: the number of the batch. begun: when it began, in seconds since 1970.
    seconds: how long it took. phases: the seconds of each phase, as Spark names them.
    """

    number: int
    begun: float
    seconds: float
    phases: Mapping[str, float]


class RecentBatches:
    """Remembers the last batches by stream, if it was turned on. Thread-safe."""

    def __init__(self) -> None:
        self.is_on = False
        self._lock = threading.Lock()
        self._batches: dict[str, deque[Batch]] = {}

    @contextlib.contextmanager
    def remembering(self) -> Iterator[None]:
        """Remember batches during the block, of streams that start in it. Used by a console."""
        self.is_on = True
        try:
            yield
        finally:
            self.is_on = False

    def add(self, query: str, batch: Batch) -> None:
        """Remember a batch. Called after each batch of a stream."""
        with self._lock:
            self._batches.setdefault(query, deque(maxlen=MOST)).append(batch)

    def of(self, query: str) -> list[Batch]:
        """The last batches of a stream, the oldest first."""
        with self._lock:
            return [*self._batches.get(query, ())]


RECENT = RecentBatches()  # of this process
