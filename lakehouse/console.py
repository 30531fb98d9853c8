"""What people see: results on stdout, progress and errors on stderr."""

import contextlib
import csv
import datetime as dt
import json
import sys
import time
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from lakehouse.jars import Progress as JarProgress

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

Format = Literal["table", "csv", "json"]


@contextlib.contextmanager
def step(what: str) -> Iterator[None]:
    """Announce a piece of work, and how long it took."""
    started = time.monotonic()
    with err.status(what) if err.is_terminal else contextlib.nullcontext():
        yield
    err.print(f"{what} [dim]{time.monotonic() - started:.1f} s[/dim]")


@contextlib.contextmanager
def jar_progress(what: str) -> Iterator[JarProgress]:
    """A progress bar for jars; nothing is drawn if none is fetched."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(what, visible=False)

        def show(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total, visible=True)
            if not err.is_terminal and (done == total or done % 50 == 0):
                err.print(f"{what}: {done} of {total} ({name})")

        yield show


def print_rows(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    form: Format = "table",
    title: str | None = None,
) -> None:
    """Print a result; csv and json are on stdout alone, for other programs."""
    if form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([[_text(value, "") for value in row] for row in rows])
    elif form == "json":
        found = [dict(zip(columns, row, strict=True)) for row in rows]
        json.dump(found, sys.stdout, default=_json, ensure_ascii=False)
        sys.stdout.write("\n")
    else:
        table = Table(title=title, title_justify="left", title_style="bold")
        for column, value in zip(columns, rows[0] if rows else columns, strict=True):
            number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
            table.add_column(column, justify="right" if number else "left", overflow="fold")
        for row in rows:
            table.add_row(*(_text(value, "") for value in row))
        out.print(table)


def _text(value: Any, none: str) -> str:
    if value is None:
        return none
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, default=_json, ensure_ascii=False)
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _json(value: Any) -> Any:
    if isinstance(value, Decimal | dt.date):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", errors="backslashreplace")
    return str(value)
