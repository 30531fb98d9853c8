"""Whether this process is alive and ready, for `/livez` and `/readyz` (`exporter.py`).

Streams and the SQL endpoint report here. The answers come from what was reported, so a probe does
not wait for Java when Java hangs; that is what it has to find out.

alive: each stream has finished a batch, found nothing to do, or completed a Spark task within
`stuck_seconds`. A stream that waits for its restart or was given up is alive, because starting the
process again would not help it.

ready: all streams run or are paused, and the SQL endpoint answers, if the process serves SQL.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

READY = ("running", "paused")
ANSWER_SECONDS = 5.0  # for so long, the answer of a check is repeated

Check = Callable[[], None]


@dataclass
class _Stream:
    state: str
    moved: float  # when it last made progress or changed its state


class Health:
    """What the parts of a process have reported. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._streams: dict[str, _Stream] = {}
        self._checks: dict[str, Check] = {}
        self._needs: tuple[str, ...] = ()
        self._answers: dict[str, tuple[float, str]] = {}

    def need(self, parts: Iterable[str]) -> None:
        """Note which parts the process must have to be ready: `streams`, `sql`.

        Forgets streams that ran before.
        """
        with self._lock:
            self._streams = {}
            self._needs = tuple(parts)

    def report(self, stream: str, state: str) -> None:
        """Note the state of a stream: starting, running, paused, waiting, given up or ended."""
        with self._lock:
            self._streams[stream] = _Stream(state, self._clock())

    def progressed(self, stream: str) -> None:
        """Note that a running stream makes progress, or has nothing to do."""
        with self._lock:
            known = self._streams.get(stream)
            if known is not None and known.state == "running":
                known.moved = self._clock()

    @contextlib.contextmanager
    def serving(self, part: str, check: Check) -> Iterator[None]:
        """Note that a part serves during the block.

        Args:
            part: its name, such as `sql`.
            check: raises if the part does not answer. Called for probes, at most every
                `ANSWER_SECONDS`.
        """
        with self._lock:
            self._checks[part] = check
        try:
            yield
        finally:
            with self._lock:
                self._checks.pop(part, None)
                self._answers.pop(part, None)

    def stuck(self, seconds: float) -> list[str]:
        """Why the process is not alive; empty if it is.

        Args:
            seconds: how long a stream may make no progress.
        """
        with self._lock:
            now = self._clock()
            return [
                f"{name} is {each.state} and has made no progress for {now - each.moved:.0f} s"
                for name, each in sorted(self._streams.items())
                if each.state in ("starting", "running") and now - each.moved > seconds
            ]

    def unready(self) -> list[str]:
        """Why the process is not ready; empty if it is."""
        with self._lock:
            streams = {name: each.state for name, each in sorted(self._streams.items())}
            needs, checks = self._needs, dict(self._checks)
        found = [f"{n} is {state}" for n, state in streams.items() if state not in READY]
        if "streams" in needs and not streams:
            found.append("no stream has been started yet")
        for part in needs:
            if part != "streams":
                found += self._asked(part, checks.get(part))
        return found

    def _asked(self, part: str, check: Check | None) -> list[str]:
        if check is None:
            return [f"{part} does not serve yet"]
        now = self._clock()
        with self._lock:
            due, said = self._answers.get(part, (now, ""))
        if now >= due:
            try:
                check()
                said = ""
            except Exception as error:  # noqa: BLE001 - whatever it is, the part does not answer
                said = f"{part} does not answer ({type(error).__name__})"
            with self._lock:
                self._answers[part] = (self._clock() + ANSWER_SECONDS, said)
        return [said] if said else []


HEALTH = Health()  # of this process
