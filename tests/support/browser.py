"""The installed Chromium, for tests of web pages; the tests skip if there is none."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome")
SHOTS = os.environ.get("TEST_SCREENSHOTS")  # a folder, to write the pictures of the docs


@contextmanager
def chromium() -> "Iterator[Browser]":
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"no Chromium on the PATH ({', '.join(NAMES)})")
    from playwright.sync_api import sync_playwright  # which tests without a browser need not load

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            args=["--no-sandbox"],  # root cannot use the sandbox; only our own pages are opened
        )
        yield browser
        browser.close()
