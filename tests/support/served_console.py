"""A console on a lake without Spark and a broker, and a browser that looks at it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page
from quiet_lake import QuietLake
from tenacity import Retrying, stop_after_delay, wait_fixed

from lake.settings.settings import LakeSettings, load_settings
from lakehouse.console.server import console
from lakehouse.runtime.ports import free_port

PATIENCE_MS = 20_000


def quiet_settings(home: Path, **own: Any) -> LakeSettings:
    """Return settings of a lake whose broker does not answer."""
    nowhere = f"127.0.0.1:{free_port()}"
    given = {
        "pulsar_url": f"pulsar://{nowhere}",
        "pulsar_admin_url": f"http://{nowhere}",
        "console_port": free_port(),
        **own,
    }
    return load_settings(home=home, **given)


@contextmanager
def serving(quiet: QuietLake) -> Iterator[httpx.Client]:
    """Serve the console of a lake, and wait until it has looked at it."""
    with console(quiet.lake) as address, httpx.Client(base_url=address, timeout=30) as client:
        for attempt in Retrying(stop=stop_after_delay(30), wait=wait_fixed(0.1), reraise=True):
            with attempt:
                page = client.get("/tables", headers=bearer(quiet)).text
                assert "There are no tables yet" not in page or not quiet.lake.tables("bronze")
        yield client


def bearer(quiet: QuietLake) -> dict[str, str]:
    """Return the header with the token, if the console requires one."""
    token = quiet.settings.console_token
    return {"Authorization": f"Bearer {token.get_secret_value()}"} if token else {}


@contextmanager
def opened(
    browser: Browser, width: int = 1280, scheme: Any = "light"
) -> Iterator[tuple[Page, list[str], list[str]]]:
    """Open a tab. Also returns the errors that it reports, and what it asks for."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    errors: list[str] = []
    requests: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
    page.on("dialog", lambda dialog: errors.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: requests.append(request.url))
    yield page, errors, requests
    context.close()
