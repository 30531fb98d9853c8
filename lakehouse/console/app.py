"""The addresses of the console, and the pages behind them."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio.to_thread
import structlog
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from gold.dbt.manifest import Manifest
from gold.dbt.process import target_path
from gold.explain import explain_built
from lake.remedies import said
from lake.streams.pause import pause, resume
from lake.streams.state import SILVER, stream_names
from lake.tables.lake import Lake
from lakehouse.console import live, quarantine, support, timeline
from lakehouse.console.builds import gold_page
from lakehouse.console.decisions import Decisions
from lakehouse.console.freshness import HEIGHT, READS, WIDTH, chart, slow_stage
from lakehouse.console.guard import COOKIE, LOGIN, Access, Guard
from lakehouse.console.masking import Masking
from lakehouse.console.page import PageMaker, fields
from lakehouse.console.query.pages import QueryPages, rows_of
from lakehouse.console.query.statements import Statements
from lakehouse.console.tables import known_tables, table_page
from lakehouse.console.tail.pages import TailPages
from lakehouse.console.watcher import Sample, Watcher
from lakehouse.operate.doctor import examine
from pulsar_spark.errors import LakehouseError
from pulsar_spark.log_masking import redact
from silver.audit.totals import count_open

log = structlog.get_logger()

HERE = Path(__file__).parent
THREADS = 4  # that make pages; each may hold handles of tables
PING_SECONDS = 15
COOKIE_SECONDS = 30 * 86400


def make_app(lake: Lake, watcher: Watcher, access: Access) -> Starlette:
    """The application that answers browsers. Called once per server."""
    pages = Pages(lake, watcher, access)
    routes = [
        Route("/", pages.flow),
        Route("/events", pages.events),
        Route("/freshness", pages.freshness),
        Route("/timeline", pages.timeline),
        Route("/gold", pages.gold),
        Route("/gold/explain", pages.explain),
        Route("/system", pages.system),
        Route("/system/checks", pages.checks),
        Route("/system/bundle", pages.bundle),
        Route("/streams", pages.streams),
        Route("/streams/{action:str}", pages.act_on_stream, methods=["POST"]),
        Route("/quarantine", pages.quarantine),
        Route("/quarantine/records", pages.records),
        Route("/quarantine/{action:str}", pages.decide, methods=["GET", "POST"]),
        *pages.query.routes,
        *pages.tail.routes,
        Route("/tables", pages.tables),
        Route("/tables/{name:path}", pages.table),
        Route(LOGIN, pages.login, methods=["GET", "POST"]),
        Route("/health", pages.health),
        Mount("/static", StaticFiles(directory=HERE / "static")),
    ]
    handlers: dict[Any, Any] = {
        HTTPException: pages.refused,
    }
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, access=access, failed=pages.failed)],
        exception_handlers=handlers,
        lifespan=pages.serving,
    )


class Pages:
    """The pages of a lake. Methods that are not `async` run in one of a few threads."""

    def __init__(self, lake: Lake, watcher: Watcher, access: Access) -> None:
        self._lake = lake
        self._watcher = watcher
        self._access = access
        self._pages = PageMaker(lake, watcher, access)
        self._masking = Masking(lake.topics, shows_all=lake.settings.console_personal)
        self._decisions = Decisions(lake.settings)
        self._statements = Statements(lake, self._masking, has_token=access.token is not None)
        self.tail = TailPages(lake, self._masking, self._pages, watcher)
        self.query = QueryPages(self._statements, self._pages, watcher)
        self._shown = Sample(), live.Changes()

    @contextlib.asynccontextmanager
    async def serving(self, _: Starlette) -> AsyncIterator[None]:
        """Prepare for the server, and end what was begun. Called by the server."""
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        await anyio.to_thread.run_sync(self._decisions.recover)
        yield
        await anyio.to_thread.run_sync(self._statements.stop)
        await anyio.to_thread.run_sync(self._decisions.stop)

    # Pages in the order of the menu.

    def flow(self, request: Request) -> Response:
        """The flow from the topics to gold."""
        sample = self._watcher.sample
        return self._pages.page(
            request,
            "flow.html.j2",
            "Flow",
            "flow",
            stages=live.flow(sample),
            tiles=live.tiles(sample, self._watcher.freshness),
            q=request.query_params.get("q", ""),
            state=request.query_params.get("state", ""),
        )

    async def events(self, request: Request) -> Response:
        """The stream of what changes on open pages."""

        async def changes() -> AsyncIterator[ServerSentEvent]:
            yield ServerSentEvent(json.dumps({"instance": self._pages.instance}), event="hello")
            before = live.Changes()
            async for sample in self._watcher.news():
                now = self._values(sample)
                changed = now.since(before)
                before = now
                if any(changed.values()):
                    yield ServerSentEvent(json.dumps(changed), event="values")

        return EventSourceResponse(changes(), ping=PING_SECONDS)

    def _values(self, sample: Sample) -> live.Changes:
        """All values of a sample, which are computed once for all open pages."""
        if self._shown[0] is not sample:
            self._shown = sample, live.changes(sample, self._watcher.freshness)
        return self._shown[1]

    def streams(self, request: Request) -> Response:
        """The streams, their errors, and what can be done about them."""
        sample = self._watcher.sample
        return self._pages.page(
            request,
            "streams.html.j2",
            "Streams",
            "streams",
            streams=[*sample.streams.values()],
            state=request.query_params.get("state", ""),
        )

    async def act_on_stream(self, request: Request) -> Response:
        """Pause or resume a stream."""
        form = await self._pages.form(request)
        name, action = form.get("stream", ""), request.path_params["action"]
        if action not in ("pause", "resume"):
            raise HTTPException(404)
        if name not in stream_names(self._lake.topics):
            raise HTTPException(404, f"There is no stream '{name}'.")
        act = pause if action == "pause" else resume
        await anyio.to_thread.run_sync(act, self._lake.settings, name)
        self._watcher.look_soon()
        return RedirectResponse("/streams", 303)

    def quarantine(self, request: Request) -> Response:
        """The groups of quarantined records."""
        given = request.query_params
        wanted = quarantine.Filter(
            given.get("topic", ""), given.get("reason", ""), given.get("status", ""), _number(given)
        )
        found, groups, records = quarantine.groups(self._lake, wanted)
        return self._pages.page(
            request,
            "quarantine.html.j2",
            "Quarantine",
            "quarantine",
            wanted=wanted,
            groups=found,
            count=groups,
            records=records,
            topics=[*self._lake.topics.topics],
            pages=-(-groups // quarantine.PAGE),
            decision=self._decisions.last,
        )

    def records(self, request: Request) -> Response:
        """The quarantined records of a topic that have the same reason."""
        given = request.query_params
        topic, reason, page = given.get("topic", ""), given.get("reason", ""), _number(given)
        found, count, waiting = quarantine.records(self._lake, self._masking, topic, reason, page)
        return self._pages.page(
            request,
            "records.html.j2",
            "Quarantined records",
            "quarantine",
            topic=topic,
            reason=reason,
            records=found,
            count=count,
            waiting=waiting,
            page=page,
            pages=-(-count // quarantine.PAGE),
            masks=not self._lake.settings.console_personal,
        )

    async def decide(self, request: Request) -> Response:
        """Ask whether to replay or discard records, and do it after the answer."""
        action = request.path_params["action"]
        if action not in ("replay", "discard"):
            raise HTTPException(404)
        if request.method == "POST":
            given = await self._pages.form(request)
        else:
            given = {**request.query_params}
            self._pages.require_actions()
        topic, reason = given.get("topic") or None, given.get("reason") or None
        if request.method == "POST":
            if not self._decisions.begin(action, topic, reason):
                raise HTTPException(409, "Another decision is running. Wait until it is done.")
            return RedirectResponse("/quarantine", 303)
        count = await anyio.to_thread.run_sync(count_open, self._lake, topic, reason)
        stream = self._watcher.sample.streams.get(SILVER)
        return await anyio.to_thread.run_sync(
            lambda: self._pages.page(
                request,
                "decide.html.j2",
                "Replay records" if action == "replay" else "Discard records",
                "",
                action=action,
                topic=topic,
                reason=reason,
                count=count,
                is_running=stream is not None and stream.state in ("running", "unknown"),
            )
        )

    def tables(self, request: Request) -> Response:
        """All tables."""
        sample = self._watcher.sample
        given = request.query_params
        q, layer = given.get("q", ""), given.get("layer", "")
        rows = [
            (name, each)
            for name, each in sample.tables.items()
            if not layer or name.partition(".")[0] == layer
        ]
        order = given.get("sort", "name")
        keys: dict[str, Callable[[Any], Any]] = {
            "rows": lambda row: -row[1].rows,
            "size": lambda row: -row[1].size,
            "files": lambda row: -row[1].files,
            "newest": lambda row: -(row[1].newest or 0),
        }
        if order in keys:
            rows.sort(key=keys[order])
        layers = list(dict.fromkeys(name.partition(".")[0] for name in sample.tables))
        return self._pages.page(
            request,
            "tables.html.j2",
            "Tables",
            "tables",
            rows=rows,
            shown=sum(q.lower() in name.lower() for name, *_ in rows),
            all_count=len(sample.tables),
            q=q,
            layer=layer,
            layers=layers,
            sort=order,
        )

    def table(self, request: Request) -> Response:
        """One table."""
        name = request.path_params["name"]
        table = known_tables(self._lake).get(name)
        if table is None:
            why = f"There is no table '{name}'. It may not have been created yet."
            raise HTTPException(404, why)
        sample = self._watcher.sample
        manifest = Manifest(target_path(self._lake.settings))
        return self._pages.page(
            request,
            "table.html.j2",
            name,
            "",
            table=table_page(table, manifest, self._masking),
            known=sample.tables.get(name),
            statement=rows_of(name),
            sources=sample.graph.sources(name),
            readers=sample.graph.readers(name),
            masks=not self._lake.settings.console_personal,
        )

    def freshness(self, request: Request) -> Response:
        """How far each stage was behind over the last hour."""
        freshness = self._watcher.freshness
        summaries = freshness.summaries()
        series = {each.stage: freshness.series(each.stage) for each in summaries}
        return self._pages.page(
            request,
            "freshness.html.j2",
            "Freshness",
            "time",
            summaries=summaries,
            slow=slow_stage(summaries),
            charts={
                stage: chart(points, self._watcher.sample.at) for stage, points in series.items()
            },
            reads=READS,
            width=WIDTH,
            height=HEIGHT,
        )

    def timeline(self, request: Request) -> Response:
        """The last batches of each stream by phase."""
        given = request.query_params.get("minutes", "")
        spans = {str(span): span for span in timeline.SPANS}
        minutes = spans.get(given, timeline.USUAL_SPAN)
        names = stream_names(self._lake.topics)
        wanted = request.query_params.get("q", "")
        shown = [name for name in names if wanted.lower() in name.lower()]
        return self._pages.page(
            request,
            "timeline.html.j2",
            "Timeline",
            "time",
            lanes=timeline.lanes(self._lake.settings, shown, time.time(), minutes),
            minutes=minutes,
            spans=timeline.SPANS,
            phases=[*timeline.PHASES],
            q=wanted,
            width=timeline.WIDTH,
            height=timeline.HEIGHT,
        )

    def gold(self, request: Request) -> Response:
        """Models, tests, builds, and the published snapshot."""
        sample = self._watcher.sample
        return self._pages.page(
            request,
            "gold.html.j2",
            "Gold",
            "gold",
            gold=gold_page(self._lake, Manifest(target_path(self._lake.settings))),
            behind=sample.gold_behind,
            q=request.query_params.get("q", ""),
        )

    def explain(self, request: Request) -> Response:
        """Which rows of a kept model a change affects, or why all are computed."""
        model = request.query_params.get("model", "")
        manifest = Manifest(target_path(self._lake.settings))
        text = explain_built(self._lake, manifest, model)
        return self._pages.page(
            request, "explain.html.j2", f"Explain {model}", "gold", model=model, text=text
        )

    def system(self, request: Request) -> Response:
        """Settings, versions and logs."""
        settings, given = self._lake.settings, request.query_params
        log_name = given.get("log", support.OWN_LOG)
        text = given.get("q", "")
        lines = support.log_end(settings, log_name)
        return self._pages.page(
            request,
            "system.html.j2",
            "System",
            "",
            settings=support.settings_shown(settings),
            all_settings=given.get("settings") == "all",
            versions=support.versions(),
            logs=support.log_names(settings),
            log=log_name,
            lines=[line for line in lines if text.lower() in line.lower()],
            q=text,
        )

    def checks(self, request: Request) -> Response:
        """The checks of `lakehouse doctor`."""
        return self._pages.page(
            request, "checks.html.j2", "Checks", "", findings=examine(self._lake), ran=time.time()
        )

    def bundle(self, request: Request) -> Response:
        """A support bundle to download."""
        content = support.support_bundle(self._lake, self._watcher.sample, examine(self._lake))
        name = f"lakehouse-support-{dt.datetime.now(dt.timezone.utc):%Y%m%d-%H%M%S}.zip"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type="application/zip", headers=headers)

    async def login(self, request: Request) -> Response:
        """Ask for the token, and remember the browser that knows it."""
        wrong = False
        if request.method == "POST":
            given = (await fields(request)).get("token", "")
            if self._access.is_token(given.strip()):
                answer = RedirectResponse("/", 303)
                answer.set_cookie(
                    COOKIE,
                    self._access.cookie(),
                    max_age=COOKIE_SECONDS,
                    httponly=True,
                    samesite="strict",
                    secure=self._access.is_encrypted,
                )
                return answer
            wrong = True
            await anyio.sleep(1)  # slows down guessing; the token is long, too
        page = self._pages.templates.get_template("login.html.j2").render(wrong=wrong)
        return HTMLResponse(page, 401 if wrong else 200)

    async def health(self, request: Request) -> Response:
        """Whether the console answers, for scripts."""
        following = self.tail.followers.count
        pages = self._watcher.pages
        return JSONResponse({"status": "ok", "pages": pages, "following": following})

    async def refused(self, request: Request, error: Exception) -> Response:
        """The page for a request that cannot be answered."""
        assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class
        why = error.detail if error.detail else "This page does not exist."
        return self._pages.error(request, error.status_code, why)

    def failed(self, request: Request, error: Exception) -> Response:
        """The page for an error."""
        if isinstance(error, LakehouseError):
            return self._pages.error(request, 503, said(error))
        why = redact(f"{type(error).__name__}: {error}".splitlines()[0])
        log.error("console page failed", path=request.url.path, why=why)
        return self._pages.error(request, 500, why)


def _number(given: Any) -> int:
    """The number of a page, from 1."""
    text = given.get("page", "1")
    return max(int(text), 1) if text.isascii() and text.isdigit() and len(text) < 7 else 1
