"""Follows a topic or a table for one open page, in a thread that ends with the page.

The thread reads and shows only so much each second, because it shares its process with streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

from lake.remedies import said
from lakehouse.console.tail.lines import Filter, Line
from lakehouse.console.watcher import REST
from pulsar_spark.errors import LakehouseError
from pulsar_spark.log_masking import redact

TURN_SECONDS = 0.5  # between two looks
READ = 100  # messages or rows that are read in a turn
SHOWN = 10  # lines that are shown in a turn
MOST = 1000  # lines of a page
AT_ONCE = 4  # pages that follow something
BUSY = f"{AT_ONCE} pages follow something already. Close one of them."
FULL = f"The page has shown {MOST:,} lines, and stopped. Load it again to go on."

Event = tuple[str, Any]  # its name, and its content as JSON


class Source(Protocol):
    """What is followed. Used by one thread."""

    def poll(self, most: int) -> tuple[list[Line], str]:
        """The lines that have come, and a note if some are missing."""

    def close(self) -> None:
        """Close what is open."""


class Followers:
    """The pages that follow something."""

    def __init__(self, is_stopped: Callable[[], bool]) -> None:
        self._is_stopped = is_stopped  # whether the console stops
        self._lock = threading.Lock()
        self.count = 0

    async def events(self, opening: Callable[[], Source], wanted: Filter) -> AsyncIterator[Event]:
        """The events of a page: `ready`, `lines`, `note` and, at last, `end` with the reason.

        Args:
            opening: opens what is followed. Called in the thread that reads it.
            wanted: which lines are shown.
        """
        with self._lock:
            is_free = self.count < AT_ONCE
            self.count += is_free
        if not is_free:
            yield "end", BUSY
            return
        page = _Page(asyncio.get_running_loop(), opening, wanted, self._is_stopped)
        thread = threading.Thread(target=page.run, name="console-tail", daemon=True)
        thread.start()
        try:
            while True:
                event = await page.events.get()
                yield event
                if event[0] == "end":
                    return
        finally:
            page.closed.set()
            with self._lock:
                self.count -= 1


class _Page:
    """A page that follows something. `run` is its thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        opening: Callable[[], Source],
        wanted: Filter,
        is_stopped: Callable[[], bool],
    ) -> None:
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.closed = threading.Event()
        self._loop, self._opening, self._wanted = loop, opening, wanted
        self._is_stopped = is_stopped

    def run(self) -> None:
        """Read until the page is closed, the console stops, or there were enough lines."""
        try:
            with contextlib.closing(self._opening()) as source:
                self._tell("ready", None)
                why = self._follow(source)
        except LakehouseError as error:
            why = said(error)
        except Exception as error:  # noqa: BLE001 - the page says so
            why = redact(f"{type(error).__name__}: {error}".splitlines()[0])
        self._tell("end", why)

    def _follow(self, source: Source) -> str:
        shown, told = 0, ""
        while not self.closed.is_set() and not self._is_stopped():
            begun = time.thread_time()
            lines, note = source.poll(READ)
            fitting = [line for line in lines if self._wanted.fits(line)]
            now = fitting[-min(SHOWN, MOST - shown) :]
            shown += len(now)
            if now or fitting:
                left = len(fitting) - len(now)
                self._tell("lines", {"lines": [each.as_json() for each in now], "left": left})
            if note and note != told:
                self._tell("note", note)
            told = note
            if shown >= MOST:
                return FULL
            self.closed.wait(max(TURN_SECONDS, (time.thread_time() - begun) * REST))
        return ""

    def _tell(self, name: str, content: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(self.events.put_nowait, (name, content))
