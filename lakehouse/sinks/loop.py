"""Runs a stream without Spark: in a thread, with the part of a streaming query that `Stream` uses.

A sink to a database follows one small feed, for which a query of Spark would cost a Java process
and a second per batch.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lake.streams.checkpoint import Checkpoint, Running
from lakehouse.sinks.waiting import WaitingStream

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from lake.streams.batches import Batches

LOOK_SECONDS = 0.25
JOIN_SECONDS = 10.0


class Progress(NamedTuple):
    """A finished batch, as `BatchMetrics` reads it."""

    batchId: int
    durationMs: dict[str, float]


class Loop:
    """Calls a function until it has nothing to do, or until it is stopped.

    work: processes a batch. Returns whether there was one.
    cancel: makes a batch that is running fail. Called by another thread.
    close: releases what the function uses. Called at the end of the loop.
    """

    def __init__(
        self,
        work: Callable[[], bool],
        cancel: Callable[[], None],
        close: Callable[[], None],
        *,
        available_now: bool,
    ) -> None:
        self._work, self._cancel, self._close = work, cancel, close
        self._available_now = available_now
        self._stop = Event()
        self._is_busy = False
        self._error: Exception | None = None
        self._reports: deque[Progress] = deque(maxlen=100)
        self.runId = uuid.uuid4()  # as in Spark; lineage reports it
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        try:
            while not self._stop.is_set():
                begun = time.monotonic()
                self._is_busy = True
                found = self._work()
                self._is_busy = False
                if found:
                    took = 1000 * (time.monotonic() - begun)
                    self._reports.append(Progress(number, {"triggerExecution": took}))
                    number += 1
                elif self._available_now or self._stop.wait(LOOK_SECONDS):
                    return
        except Exception as error:  # noqa: BLE001 - raised by `Stream.keep`
            self._error = error
        finally:
            self._is_busy = False
            self._close()

    def end(self, _: object) -> None:
        """Begin no other batch. Called by `Stream`, which then waits until none is running."""
        self._stop.set()

    @property
    def is_running(self) -> bool:
        """Whether a batch is running."""
        return self._is_busy and self.isActive

    @property
    def error(self) -> Exception | None:
        """Why the loop has ended; None if it has not failed."""
        return self._error

    @property
    def isActive(self) -> bool:
        """Whether the loop has not ended."""
        return self._thread.is_alive()

    @property
    def status(self) -> dict[str, Any]:
        """Whether a batch is running, in the form of Spark."""
        busy = self.is_running
        return {"isTriggerActive": busy, "isDataAvailable": busy, "message": "Waiting for data"}

    @property
    def recentProgress(self) -> list[Progress]:
        """The last batches."""
        return list(self._reports)

    @property
    def lastProgress(self) -> Progress | None:
        """The last batch; None if there was none."""
        return self._reports[-1] if self._reports else None

    def exception(self) -> Exception | None:
        """Why the loop has ended; None if it has not failed."""
        return self._error

    def stop(self) -> None:
        """End the loop. A batch that is running is cancelled, and changes nothing."""
        self._stop.set()
        if self.is_running:
            self._cancel()
        self._thread.join(JOIN_SECONDS)

    def running(self, checkpoint: Checkpoint) -> Running:
        """The loop as a query on its claimed checkpoint."""
        return Running(cast("StreamingQuery", self), checkpoint, cast("Batches", self))


class LoopStream(WaitingStream):
    """A stream that is a loop, so its progress is not in files of Spark in the checkpoint."""

    def _finished_batch(self) -> str | None:
        progress = self._running.query.lastProgress if self._running else None
        return None if progress is None else str(progress.batchId)
