"""Assembles the page and writes it."""

import base64
import datetime as dt
import hashlib
import os
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gold.dbt.docs import docs_page
from gold.dbt.manifest import Manifest
from gold.dbt.process import target_path
from lake.durable import write_durably
from lake.tables.lake import Lake
from lakehouse.operate.status import lake_status
from lakehouse.report import forms, overview
from lakehouse.report.blocks import Figure, section
from lakehouse.report.declared import Declared
from lakehouse.report.snapshot import Snapshot
from pulsar_spark.errors import LakehouseError, SettingsError

VEGA_LITE = alt.SCHEMA_VERSION.rpartition(".")[0]  # the version that altair writes, such as v6.4
TEMPLATES = Path(__file__).with_name("templates")


def write_report(lake: Lake, out: Path | None = None, *, now: dt.datetime) -> Path:
    """Write a page about the lake that needs no network and no other file.

    Args:
        lake: the lake.
        out: the file to write; if None, `lakehouse-report.html` in the home folder.
        now: the time of the report, from which ages are computed.

    Returns:
        The file.

    Raises:
        LakehouseError: the lake has no table yet.
        SettingsError: `out` is a folder, or an exposure declares a part that cannot be drawn.
    """
    out = out or lake.settings.home_dir / "lakehouse-report.html"
    if out.is_dir():
        message = f"--out {out} is a folder; name a file, such as {out / 'lakehouse-report.html'}."
        raise SettingsError(message)
    lines = lake_status(lake)
    if all(line.rows is None for line in lines):
        message = (
            f"There are no tables in {lake.settings.tables} yet, so there is nothing to report. "
            "Run `lakehouse up` and `lakehouse publish`, or `lakehouse demo` for generated data."
        )
        raise LakehouseError(message)
    snapshot = Snapshot(lake)
    declared = Declared(Manifest(target_path(lake.settings)))
    published = overview.published_state(snapshot)
    tiles = [*declared.tiles(snapshot), overview.refused(snapshot)]
    waiting = overview.waiting(lines)
    found = [
        *declared.sections(snapshot),
        section(
            snapshot, "waiting", "Incomplete and refused", lambda _: [waiting], overview.quarantine
        ),
    ]
    docs = docs_page(lake.settings)
    figures = [block for each in found for block in each.blocks if isinstance(block, Figure)]
    text = _render(
        made_at=now,
        published=published,
        tiles=tiles,
        stages=overview.flow(lines, published, now),
        sections=found,
        specs={figure.name: figure.spec for figure in figures},
        docs=os.path.relpath(docs, out.resolve().parent) if docs.exists() else None,
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    write_durably(out, text)
    return out


def _render(**shown: Any) -> str:
    pages = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters |= {"written": forms.written, "instant": forms.instant}
    style, script = (TEMPLATES / "page.css").read_text(), _script()
    return pages.get_template("page.html.j2").render(
        style=style, script=script, digest=_digest(script), **shown
    )


@cache
def _script() -> str:
    """The script that draws the charts, with all that it needs. Bundling it takes a second."""
    draw = (TEMPLATES / "page.js").read_text()
    bundle: str = vl_convert.javascript_bundle(draw, vl_version=VEGA_LITE)
    return bundle


def _digest(script: str) -> str:
    """The script's hash for the page's content security policy, which allows no other script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
