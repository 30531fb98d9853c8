"""A stream that begins when its table exists: a mart is built while the streams are running."""

from collections.abc import Callable
from threading import Event

import structlog

from lake.observe.lineage import Flow
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import Running
from lake.streams.supervisor import Stream

LOOK_SECONDS = 1.0

log = structlog.get_logger()


class WaitingStream(Stream):
    """A stream of a sink, which waits until the table that it reads exists.

    is_there: whether the table exists.
    """

    def __init__(
        self,
        name: str,
        settings: LakeSettings,
        start: Callable[[], Running],
        is_there: Callable[[], bool],
        *,
        available_now: bool,
        flow: Flow | None = None,
    ) -> None:
        super().__init__(name, settings, start, available_now=available_now, flow=flow)
        self._is_there = is_there

    def keep(self, stop: Event) -> None:
        """Wait for the table, then keep the query running; see `Stream.keep`.

        With `available_now`, there is nothing to send yet, so it returns.
        """
        if not self._is_there():
            log.info("the sink waits until its table exists", stream=self.name)
        while not self._is_there():
            if self.available_now or stop.wait(LOOK_SECONDS):
                return
        if not stop.is_set():
            self.begin()
            super().keep(stop)
