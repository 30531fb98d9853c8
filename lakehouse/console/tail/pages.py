"""The addresses of the live page."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lake.tables.lake import Lake
from lakehouse.console.masking import Masking
from lakehouse.console.page import PageMaker
from lakehouse.console.tables import known_tables
from lakehouse.console.tail.followers import MOST, SHOWN, TURN_SECONDS, Followers, Source
from lakehouse.console.tail.lines import Filter
from lakehouse.console.tail.table_source import TableSource
from lakehouse.console.tail.topic_source import TopicSource
from lakehouse.console.watcher import Watcher
from pulsar_spark.errors import SettingsError

PING_SECONDS = 15
TOPIC = "topic."


class TailPages:
    """The live page, and the stream of what it shows."""

    def __init__(self, lake: Lake, masking: Masking, pages: PageMaker, watcher: Watcher) -> None:
        self._lake = lake
        self._masking = masking
        self._pages = pages
        self._watcher = watcher
        self.followers = Followers(lambda: watcher.is_stopped)

    @property
    def routes(self) -> list[Route]:
        """The addresses."""
        return [Route("/live", self.show), Route("/live/events", self.events)]

    def show(self, request: Request) -> Response:
        """The form, and an empty list that the browser fills."""
        given = request.query_params
        tables = [name for name in self._watcher.sample.tables if not name.startswith("bronze.")]
        topics = [*self._lake.topics.topics]
        bronze = [f"bronze.{name}" for name in topics if self._lake.address(name).pattern]
        return self._pages.page(
            request,
            "live.html.j2",
            "Live",
            "",
            source=given.get("source", ""),
            q=given.get("q", ""),
            topics=[f"{TOPIC}{name}" for name in topics],
            tables=[*bronze, *tables],
            masks=not self._lake.settings.console_personal,
            most=MOST,
            each_second=int(SHOWN / TURN_SECONDS),
        )

    async def events(self, request: Request) -> Response:
        """The stream of messages or changes."""
        name = request.query_params.get("source", "")
        wanted = Filter.parse(request.query_params.get("q", ""))
        if name.startswith(TOPIC) and name.removeprefix(TOPIC) not in self._lake.topics.topics:
            raise HTTPException(404, f"The topic file declares no topic '{name}'.")

        async def sent() -> AsyncIterator[ServerSentEvent]:
            async for kind, content in self.followers.events(partial(self._open, name), wanted):
                yield ServerSentEvent(json.dumps(content), event=kind)

        return EventSourceResponse(sent(), ping=PING_SECONDS)

    def _open(self, name: str) -> Source:
        if name.startswith(TOPIC):
            return TopicSource(self._lake, self._masking, name.removeprefix(TOPIC))
        table = known_tables(self._lake).get(name)
        if table is None:
            what = f"There is no table '{name}'."
            raise SettingsError(what, "It may not have been created yet.")
        return TableSource(table, self._masking)
