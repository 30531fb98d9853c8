"""Makes the pages of the console from templates, and reads the forms that they send."""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from lake.tables.lake import Lake
from lakehouse.console import live
from lakehouse.console.guard import Access
from lakehouse.console.watcher import Watcher

HERE = Path(__file__).parent
MENU = (
    ("/", "Flow"),
    ("/freshness", "Freshness"),
    ("/streams", "Streams"),
    ("/quarantine", "Quarantine"),
    ("/tables", "Tables"),
    ("/live", "Live"),
    ("/sql", "SQL"),
    ("/timeline", "Timeline"),
    ("/gold", "Gold"),
    ("/system", "System"),
)


class PageMaker:
    """Makes pages, with what all of them show.

    instance: tells the server from the one before it.
    """

    def __init__(self, lake: Lake, watcher: Watcher, access: Access) -> None:
        self._settings = lake.settings
        self._watcher = watcher
        self._access = access
        self.instance = str(time.time_ns())
        self.templates = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.templates.filters |= {
            "ago": _time,
            "duration": live.duration,
            "size": live.size_of,
            "number": "{:,}".format,
            "href": live.table_href,
        }
        self.templates.globals |= {"query": query, "levels": live.LEVELS, "counted": live.counted}

    def page(
        self, request: Request, template: str, title: str, sections: str, /, **shown: Any
    ) -> Response:
        """A page.

        Args:
            request: what was asked for.
            template: the file.
            title: of the page.
            sections: the parts of the lake, separated by spaces, with whose changes the page is
                loaded again.
            shown: what the template shows.
        """
        sample = self._watcher.sample
        digests = live.sections(sample)
        settings = self._settings
        text = self.templates.get_template(template).render(
            title=title,
            menu=MENU,
            path=request.url.path,
            home=settings.home_dir.parent.name or "lakehouse",
            digests={name: digests[name] for name in sections.split()},
            instance=self.instance,
            csrf=self._access.csrf,
            actions=settings.console_actions,
            problem=sample.problem,
            **shown,
        )
        status = int(shown.get("status", 200)) if template == "error.html.j2" else 200
        return HTMLResponse(text, status)

    def error(self, request: Request, status: int, why: str) -> Response:
        """The page that says why a request cannot be answered."""
        title = "Not found" if status == 404 else "This did not work"
        return self.page(request, "error.html.j2", title, "", status=status, why=why)

    async def form(self, request: Request, *, acts: bool = True) -> dict[str, str]:
        """The fields of a form that one of our own pages has sent.

        Args:
            request: what was sent.
            acts: whether the form changes something, which a console that only shows refuses.

        Raises:
            HTTPException: actions are not allowed, or the form is not from a page of this process.
        """
        if acts:
            self.require_actions()
        found = await fields(request)
        if not self._access.is_csrf(found.get("csrf", "")):
            raise HTTPException(403, "The page is older than the server. Load it again.")
        return found

    def require_actions(self) -> None:
        """Refuse what changes the lake, unless it is allowed."""
        if not self._settings.console_actions:
            why = "This console is read-only. Start it with --console-actions to allow actions."
            raise HTTPException(403, why)


async def fields(request: Request) -> dict[str, str]:
    """The fields of a form, which the guard has found to be short."""
    content = (await request.body()).decode("utf-8", "replace")
    return dict(parse_qsl(content, keep_blank_values=True, max_num_fields=20))


def query(**given: object) -> str:
    """The query of an address, without what is empty."""
    return urlencode({name: value for name, value in given.items() if value})


def _time(moment: float | str | dt.datetime | None) -> dict[str, str] | None:
    """An instant for a `<time>` element: for machines, and for people."""
    if not moment:
        return None
    if isinstance(moment, str):
        moment = dt.datetime.fromisoformat(moment)
    elif not isinstance(moment, dt.datetime):
        moment = dt.datetime.fromtimestamp(moment, dt.timezone.utc)
    moment = moment.astimezone(dt.timezone.utc)
    return {
        "iso": moment.isoformat(timespec="milliseconds"),
        "text": f"{moment:%Y-%m-%d %H:%M:%S} UTC",
    }
