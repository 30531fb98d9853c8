"""Output for users: results on stdout, progress and errors on stderr."""

from __future__ import annotations

import contextlib
import csv
import datetime as dt
import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import IO, TYPE_CHECKING, Any, cast

import structlog
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from lake.settings.log_format import is_json
from lakehouse.runtime.context import Form

if TYPE_CHECKING:
    from lakehouse.runtime.jars import Progress as JarProgress

NARROWEST = 8  # characters of a column whose words are broken
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # but tabs and line breaks

log = structlog.get_logger()


class _StandardErr:
    """Stderr as text for people, or as one JSON log event per line if logs are in JSON.

    It does not inherit from `io.TextIOBase`, which would flush it when Python has already ended.
    """

    def write(self, text: str) -> int:
        """Write a text that consists of whole lines."""
        if is_json():
            for line in filter(None, map(str.strip, text.splitlines())):
                log.info(line)
        else:
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush stderr."""
        sys.stderr.flush()

    def isatty(self) -> bool:
        """Whether the text goes to a terminal unchanged."""
        return sys.stderr.isatty() and not is_json()


out = Console(highlight=False)
# Lines are wrapped to the width of a terminal only; in a log they stay whole.
err = Console(
    file=cast(IO[str], _StandardErr()), highlight=False, soft_wrap=not sys.stderr.isatty()
)


@contextlib.contextmanager
def step(what: str) -> Iterator[None]:
    """Show that a piece of work is running, and print how long it took."""
    started = time.monotonic()
    with err.status(what) if err.is_terminal else contextlib.nullcontext():
        yield
    err.print(f"{what} [dim]{time.monotonic() - started:.1f} s[/dim]")


@contextlib.contextmanager
def jar_progress(what: str) -> Iterator[JarProgress]:
    """A progress bar for jars, which appears only when a jar is fetched."""
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
    form: Form = "table",
    title: str | None = None,
) -> None:
    """Print a result as a table, or as plain CSV or JSON for other programs.

    The title is printed only above a table.
    """
    if form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([[_text(value) for value in row] for row in rows])
    elif form == "json":
        found = [dict(zip(columns, row, strict=True)) for row in rows]
        json.dump(found, sys.stdout, default=_json, ensure_ascii=False)
        sys.stdout.write("\n")
    else:
        out.print(as_table(columns, rows, title, width=out.width))


def as_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    title: str | None = None,
    *,
    width: int,
) -> Table:
    """A result as a table for people, with columns that hold numbers aligned to the right.

    Lines are wrapped between words, so that names stay whole if the width allows it.

    Args:
        columns: the names of the columns.
        rows: the rows.
        title: printed above the table.
        width: the characters of a line.
    """
    table = Table(title=title, title_justify="left", title_style="bold")
    texts = [[printable(_text(value)) for value in row] for row in rows]
    widths = _widths(columns, [[row[n] for row in texts] for n in range(len(columns))], width)
    for number, column in enumerate(columns):
        right = any(_is_number(row[number]) for row in rows)
        table.add_column(
            column,
            justify="right" if right else "left",
            overflow="fold",
            width=widths[number] if widths else None,
        )
    for row in texts:
        table.add_row(*map(Text, row))  # not as strings, in which `[true]` would be markup
    return table


def printable(text: str) -> str:
    """A text with escapes for the characters by which it could control a terminal."""
    return CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def _widths(names: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """The width of each column at which words stay whole; None if there is none.

    Each column gets the width of its longest word. The rest of the line is given to the columns
    whose texts are longer, the shortest first. The name of a column may be wrapped. If the words do
    not fit, those of the widest columns are broken, but not those of the first one.
    """
    words = [" ".join([name, *column]).split() for name, column in zip(names, cells, strict=True)]
    least = [max(map(cell_len, column), default=0) for column in words]
    whole = [
        max([needed, *map(cell_len, "\n".join(column).splitlines())])
        for needed, column in zip(least, cells, strict=True)
    ]
    left = width - sum(least) - 3 * len(cells) - 1  # without borders
    while left < 0:
        widest = max(range(1, len(cells)), key=lambda n: least[n], default=0)
        if least[widest] <= NARROWEST:
            return None
        least[widest] -= 1
        left += 1
    found = [*least]
    wanting = sorted(range(len(cells)), key=lambda n: whole[n] - least[n])
    for place, number in enumerate(wanting):
        share = min(whole[number] - least[number], left // (len(wanting) - place))
        found[number] += share
        left -= share
    for number, name in enumerate(names):  # what is left may hold the names on one line
        share = max(min(cell_len(name) - found[number], left), 0)
        found[number] += share
        left -= share
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if value is None:
        return ""
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
