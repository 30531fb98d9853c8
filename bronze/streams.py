"""Streams that outlive what fails now and then.

A stream that fails is started again, `restarts` times, after a delay that doubles; the count begins
anew when it has finished a batch in between, unless it is to end when it has caught up. What the
lakehouse itself has refused, such as lost messages or a checkpoint of another table, is not tried
again (`failures.py`). Then the stream is given up, with a word in the log and in its checkpoint;
the others go on.
"""

import contextlib
import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import structlog
from pyspark.sql.streaming.query import StreamingQuery
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    retry_if_result,
    sleep_using_event,
    stop_after_attempt,
    stop_after_delay,
    wait_exponential,
    wait_fixed,
)

from bronze.checkpoint import Checkpoint, Running, last_commit
from bronze.durable import delete_durably, read_json, write_durably
from bronze.errors import LakehouseError
from bronze.failures import NO_SPARK, explain, may_pass
from bronze.lineage import Flow, State, StreamRuns
from bronze.metrics import restarted
from bronze.settings import LakeSettings

POLL_SECONDS = 0.2
LONGEST_DELAY_SECONDS = 300
GIVEN_UP = "lakehouse.given-up"

log = structlog.get_logger()


class GivenUp(NamedTuple):
    """When a stream was given up, and why."""

    at: dt.datetime
    reason: str


def given_up(settings: LakeSettings, query: str) -> GivenUp | None:
    """Whether a stream was given up and has not been started since."""
    file = _note(settings, query)
    try:
        stored = read_json(file, "The log says why.")
    except LakehouseError as error:
        then = dt.datetime.fromtimestamp(file.stat().st_mtime, dt.timezone.utc)
        return GivenUp(then, str(error))
    if stored is None:
        return None
    return GivenUp(dt.datetime.fromisoformat(stored["at"]), stored["reason"])


def _note(settings: LakeSettings, query: str) -> Path:
    return Path(settings.checkpoint_path(query)) / GIVEN_UP


class Stream:
    """A streaming query by its name, and how it is started, again when it has failed.

    start: claims the checkpoint and starts the query.
    available_now: whether the query ends by itself when it has caught up.
    flow: what it reads and writes, to tell of where lineage is wanted.
    """

    def __init__(
        self,
        name: str,
        settings: LakeSettings,
        start: Callable[[], Running],
        *,
        available_now: bool,
        flow: Flow | None = None,
    ) -> None:
        self.name = name
        self.available_now = available_now
        self._settings = settings
        self._start = start
        self._running: Running | None = None
        self._error: Exception | None = None  # of the first start
        self._batch: str | None = None  # that was finished last when it was started
        self._runs = StreamRuns(settings, name, flow)

    def begin(self) -> "Stream":
        """Start it; what is in the way is told by `keep`, as other streams go on meanwhile."""
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - kept, and raised again
            self._error = error
        return self

    @property
    def query(self) -> StreamingQuery:
        """The query that was started last."""
        return self._started.query

    @property
    def has_looked(self) -> bool:
        """Whether it has ended a batch of its own or found nothing to read, or does not run at all.

        A batch that was under way when it was started says nothing of what waits now.
        """
        if not self.is_active or self.is_idle:
            return True
        progress = self.query.lastProgress
        return progress is not None and progress["batchId"] != self._started.repeats

    @property
    def is_idle(self) -> bool:
        """Whether it runs, and its last look found nothing to read."""
        if not self.is_active:
            return False
        status = self.query.status  # progress comes ten seconds later
        return not status["isDataAvailable"] and status["message"].startswith("Waiting for")

    def last_read(self) -> str:
        """When the last batch of its own began that had rows, in UTC; empty if none had."""
        if self._running is None:
            return ""
        reads = (p for p in self.query.recentProgress if p["numInputRows"])
        own = (p["timestamp"] for p in reads if p["batchId"] != self._running.repeats)
        return max(own, default="")

    @property
    def is_active(self) -> bool:
        """Whether it runs now."""
        return self._running is not None and self.query.isActive

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint that it holds."""
        return self._started.checkpoint

    def stop(self) -> None:
        """Stop it at once, and release its checkpoint."""
        if self._running is not None:
            with contextlib.suppress(*NO_SPARK):  # without Spark it has stopped
                self._running.query.stop()
            self._running.checkpoint.release()
        self._runs.ended("ABORT")  # if that is not told yet

    def keep(self, stop: Event) -> None:
        """Wait until it has caught up, or until `stop` is set, and start it again when it fails.

        When told to stop, it finishes the batch under way and begins no other.

        Raises:
            LakehouseError: it was given up, in the words of what failed.
        """
        try:
            for attempt in self._attempts(stop):
                with attempt:
                    self._keep_run(stop, again=attempt.retry_state.attempt_number > 1)
        except Exception as error:
            found = self._give_up(error)
            if self._settings.exit_when_given_up:
                stop.set()
            raise found from error
        finally:
            self.stop()

    def _attempts(self, stop: Event) -> Retrying:
        delay = self._settings.restart_delay
        return Retrying(
            retry=retry_if_exception(
                lambda e: not stop.is_set() and isinstance(e, Exception) and may_pass(e)
            ),
            stop=stop_after_attempt(1 + self._settings.restarts),
            wait=wait_exponential(multiplier=delay, max=max(LONGEST_DELAY_SECONDS, delay)),
            sleep=sleep_using_event(stop),
            after=self._count_anew,
            before_sleep=self._say_restart,
            reraise=True,
        )

    def _keep_run(self, stop: Event, *, again: bool) -> None:
        try:
            ended = self._watch(stop, again=again)
        except Exception as error:
            self._runs.ended("FAIL", explain(error))
            raise
        self._runs.ended(ended)

    def _watch(self, stop: Event, *, again: bool) -> State:
        ended: State = "COMPLETE"
        if again and stop.is_set():
            return ended
        if again:
            self.stop()  # releases the checkpoint, which is claimed anew with its tables
            self._run()
        elif self._error is not None:
            raise self._error
        query = self.query
        while query.isActive and not stop.wait(POLL_SECONDS):
            self._runs.look()
        if stop.is_set() and not self._finish(query):
            ended = "ABORT"
        error = query.exception()
        if error is not None:
            raise error
        return ended

    def _run(self) -> None:
        self._batch = self._finished_batch()
        self._runs.begin()
        self._running = self._start()
        self._runs.started(self.query)
        delete_durably(_note(self._settings, self.name))

    def _finish(self, query: StreamingQuery) -> bool:
        """Let the query finish the batch under way, as `StreamingQuery.stop` would cancel it.

        Returns:
            Whether it did in time.
        """
        begin_no_batch(query)
        patient = Retrying(
            retry=retry_if_result(bool),
            stop=stop_after_delay(self._settings.stop_seconds),
            wait=wait_fixed(POLL_SECONDS),
            retry_error_callback=lambda _: True,
        )
        is_cut = patient(lambda: bool(query.status["isTriggerActive"]))
        if is_cut:
            log.warning(
                "stopped within a batch, which took too long; the next start runs it again",
                stream=self.name,
                seconds=self._settings.stop_seconds,
            )
        query.stop()
        return not is_cut

    def _finished_batch(self) -> str | None:
        commit = last_commit(self._settings, self.name)
        return None if commit is None else commit.name

    def _count_anew(self, state: RetryCallState) -> None:
        """Before the delay is reckoned: what has got on since is not as bad as what has not."""
        if not self.available_now and self._finished_batch() != self._batch:
            state.attempt_number = 1

    def _say_restart(self, state: RetryCallState) -> None:
        log.warning(
            "stream failed, and is started again",
            stream=self.name,
            restart=f"{state.attempt_number} of {self._settings.restarts}",
            seconds=state.upcoming_sleep,
            error=explain(_error(state)),
        )
        restarted(self.name)

    def _give_up(self, error: Exception) -> LakehouseError:
        reason = explain(error)
        log.error("stream given up", stream=self.name, error=reason)
        told = {"at": dt.datetime.now(dt.timezone.utc).isoformat(), "reason": reason}
        with contextlib.suppress(OSError):  # a lake that is gone or full is the reason, maybe
            write_durably(_note(self._settings, self.name), json.dumps(told))
        if isinstance(error, LakehouseError):
            return error
        tries = self._settings.restarts
        after = f", also after {tries} restarts" if tries and may_pass(error) else ""
        return LakehouseError(f"The query {self.name} failed{after}: {reason}")

    @property
    def _started(self) -> Running:
        if self._running is None:
            raise self._error or LakehouseError(f"The query {self.name} was not started.")
        return self._running


def begin_no_batch(query: StreamingQuery) -> None:
    """Let a query end behind the batch under way.

    Spark has no call for that. What `stop` does first is enough: the query looks at its state
    before it begins a batch. One that is only planned by then is left to the next start.
    """
    java: Any = query._jsq  # noqa: SLF001
    execution = java.streamingQuery()
    loader = execution.getClass().getClassLoader()
    terminated = loader.loadClass(f"{execution.getClass().getPackageName()}.TERMINATED$")
    execution.state().set(terminated.getField("MODULE$").get(None))


def _error(state: RetryCallState) -> Exception:
    found = state.outcome.exception() if state.outcome else None
    return found if isinstance(found, Exception) else RuntimeError("nothing failed")
