"""Runs streams that survive temporary failures.

A failed stream is restarted up to `restarts` times, after a delay that doubles. The count starts
over when the stream has finished a batch in between, unless it runs with `available_now`. Errors
that a retry cannot fix, such as lost messages or another table's checkpoint, cause no restart
(`failures.py`). A stream that fails for good is given up: the reason is logged and noted in its
checkpoint, and the other streams continue. The last errors stay noted there after the stream runs
again (`last_errors.py`). A stream can also be paused (`pause.py`).
"""

import contextlib
from collections.abc import Callable
from threading import Event

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

from lake.observe.batch_metrics import BatchMetrics
from lake.observe.health import HEALTH
from lake.observe.lineage import Flow, State, StreamRuns
from lake.observe.metrics import restarted
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import Checkpoint, Running, last_commit
from lake.streams.failures import NO_SPARK, StartAgainError, explain, may_pass
from lake.streams.given_up import note_given_up, note_started
from lake.streams.last_errors import note_error, note_started_again
from lake.streams.pause import is_paused
from pulsar_spark.errors import LakehouseError

POLL_SECONDS = 0.2
LONGEST_DELAY_SECONDS = 300

log = structlog.get_logger()


class Stream:
    """A named streaming query that is restarted when it fails.

    Call `begin` first, then `keep` in a thread of its own.

    name: the name of the query, such as `bronze.orders`.
    start: claims the checkpoint and starts the query; called for each start.
    available_now: whether the query ends by itself when it has caught up.
    flow: what the query reads and writes, for lineage.
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
        self._error: Exception | None = None  # from the first start
        self._batch: str | None = None  # the last finished batch at the last start
        self._runs = StreamRuns(settings, name, flow)
        self._metrics = BatchMetrics(settings, name)

    def begin(self) -> "Stream":
        """Start the query, unless it is paused.

        An error is raised by `keep`, so that other streams can start first.
        """
        if is_paused(self._settings, self.name):
            return self
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - kept, and raised again
            self._error = error
        return self

    @property
    def query(self) -> StreamingQuery:
        """The query of the last start."""
        return self._started.query

    @property
    def has_looked(self) -> bool:
        """Whether the query has looked for new messages since its start, or is not running.

        A batch that was planned before the start and is only repeated does not count.
        """
        if not self.is_active or self.is_idle:
            return True
        progress = self.query.lastProgress
        return progress is not None and progress["batchId"] != self._started.repeats

    @property
    def is_idle(self) -> bool:
        """Whether the query is running and found nothing to read."""
        if not self.is_active:
            return False
        status = self.query.status  # lastProgress is ten seconds late
        return not status["isDataAvailable"] and status["message"].startswith("Waiting for")

    def last_read(self) -> str:
        """When the last new batch with rows began: ISO 8601 in UTC, empty if there was none.

        A batch that the start only repeated does not count.
        """
        if self._running is None:
            return ""
        reads = (p for p in self.query.recentProgress if p["numInputRows"])
        own = (p["timestamp"] for p in reads if p["batchId"] != self._running.repeats)
        return max(own, default="")

    @property
    def is_active(self) -> bool:
        """Whether the query is running."""
        return self._running is not None and self.query.isActive

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint that the query has claimed."""
        return self._started.checkpoint

    def stop(self) -> None:
        """Stop the query at once, and release its checkpoint."""
        if self._running is not None:
            with contextlib.suppress(*NO_SPARK):  # without Spark, it has stopped already
                self._running.query.stop()
            self._running.checkpoint.release()
        self._runs.ended("ABORT")  # unless reported already
        self._metrics.ended()

    def keep(self, stop: Event) -> None:
        """Restart the query after failures until it has caught up or `stop` is set.

        When `stop` is set, the query finishes its current batch and begins no other. The same
        happens when the stream is paused. It starts again when it is resumed; with `available_now`,
        a paused stream ends.

        Raises:
            LakehouseError: the stream was given up; the message is the reason.
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
            after=self._reset_count,
            before_sleep=self._say_restart,
            reraise=True,
        )

    def _keep_run(self, stop: Event, *, again: bool) -> None:
        has_run = False
        while not has_run or is_paused(self._settings, self.name):
            if is_paused(self._settings, self.name):
                again = True
                if not self._has_resumed(stop):
                    return
            try:
                ended = self._watch(stop, again=again)
            except StartAgainError as reason:
                log.info("stream starts again", stream=self.name, reason=str(reason))
                self._runs.ended("ABORT")
                again = True
                continue
            except Exception as error:
                self._runs.ended("FAIL", explain(error))
                raise
            finally:
                self._metrics.ended()
            self._runs.ended(ended)
            has_run = True

    def _has_resumed(self, stop: Event) -> bool:
        """Wait while the stream is paused.

        Returns:
            Whether it shall run. Not if `stop` is set, nor with `available_now`.
        """
        self.stop()  # other commands can claim the checkpoint
        log.warning("stream paused", stream=self.name, resume=f"lakehouse resume {self.name}")
        HEALTH.report(self.name, "paused")
        while not stop.is_set() and not self.available_now:
            if not is_paused(self._settings, self.name):
                log.info("stream resumed", stream=self.name)
                return True
            stop.wait(POLL_SECONDS)
        return False

    def _watch(self, stop: Event, *, again: bool) -> State:
        if again and stop.is_set():
            return "COMPLETE"
        if again:
            self.stop()  # releases the checkpoint, so that the start can claim it again
            self._run()
        elif self._error is not None:
            raise self._error
        query, pauses = self.query, False
        while query.isActive and not pauses and not stop.wait(POLL_SECONDS):
            self._runs.look()
            self._metrics.look()
            pauses = is_paused(self._settings, self.name)
        ended: State = "COMPLETE"
        if (pauses or stop.is_set()) and self._is_cut(query):
            ended = "ABORT"
        error = query.exception()
        if query.isActive:
            query.stop()  # Spark may report the interruption as an error, so `error` comes first
        if error is not None:
            raise self._started.batches.error or error
        return ended

    def _run(self) -> None:
        HEALTH.report(self.name, "starting")
        self._batch = self._finished_batch()
        self._runs.begin()
        self._running = self._start()
        self._runs.started(self.query)
        self._metrics.started(self.query)
        note_started(self._settings, self.name)
        note_started_again(self._settings, self.name)

    def _is_cut(self, query: StreamingQuery) -> bool:
        """Let the query finish its current batch, which `StreamingQuery.stop` would cancel.

        Returns:
            Whether the batch is still running after `stop_seconds`.
        """
        batches = self._started.batches
        batches.end(query)
        patient = Retrying(
            retry=retry_if_result(bool),
            stop=stop_after_delay(self._settings.stop_seconds),
            wait=wait_fixed(POLL_SECONDS),
            retry_error_callback=lambda _: True,
        )
        is_cut = bool(patient(lambda: batches.is_running))
        if is_cut:
            log.warning(
                "stopped within a batch that took too long; the next start repeats it",
                stream=self.name,
                seconds=self._settings.stop_seconds,
            )
        return is_cut

    def _finished_batch(self) -> str | None:
        commit = last_commit(self._settings, self.name)
        return None if commit is None else commit.name

    def _reset_count(self, state: RetryCallState) -> None:
        """Start counting restarts again if the stream has made progress since its last start.

        Called by tenacity after a failure, before it computes the delay.
        """
        if not self.available_now and self._finished_batch() != self._batch:
            state.attempt_number = 1

    def _say_restart(self, state: RetryCallState) -> None:
        restart = f"{state.attempt_number} of {self._settings.restarts}"
        reason, seconds = explain(_error(state)), state.upcoming_sleep
        log.warning(
            "stream failed, restarting",
            stream=self.name,
            restart=restart,
            seconds=seconds,
            error=reason,
        )
        note_error(self._settings, self.name, reason, retry=restart, delay=seconds)
        restarted(self.name)
        HEALTH.report(self.name, "waiting for its restart")

    def _give_up(self, error: Exception) -> LakehouseError:
        reason = explain(error)
        log.error("stream given up", stream=self.name, error=reason)
        HEALTH.report(self.name, "given up")
        note_given_up(self._settings, self.name, reason)
        note_error(self._settings, self.name, reason, retry="", delay=0)
        if isinstance(error, LakehouseError):
            return error
        tries = self._settings.restarts
        after = f" after {tries} restarts" if tries and may_pass(error) else ""
        return LakehouseError(f"The query {self.name} failed{after}: {reason}")

    @property
    def _started(self) -> Running:
        if self._running is None:
            raise self._error or LakehouseError(f"The query {self.name} was not started.")
        return self._running


def _error(state: RetryCallState) -> Exception:
    found = state.outcome.exception() if state.outcome else None
    return found if isinstance(found, Exception) else RuntimeError("nothing failed")
