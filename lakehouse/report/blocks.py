"""What the page is made of; the template knows each block by its `kind`."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lakehouse.report.charts import bars
from lakehouse.report.snapshot import NotShownError, Snapshot

Form = Literal["text", "items", "flag", "number", "money", "percent", "decimal", "time"]


@dataclass(frozen=True)
class Tile:
    """One number of the head; None where it is not known yet."""

    name: str
    form: Form
    value: Any


@dataclass(frozen=True)
class Table:
    """Rows under a title; the form of a column says how its values are written."""

    title: str
    columns: dict[str, Form]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    wide: bool = False
    kind: str = field(default="table", init=False)

    @property
    def is_wordy(self) -> bool:
        """Whether it is too wide for a phone, which then shows each row as a list."""
        return sum(form in ("text", "items") for form in self.columns.values()) > 1


@dataclass(frozen=True)
class Figure:
    """A chart under a title.

    name: unique on the page. spec: Vega-Lite. legend: names of the series, and their colours.
    """

    name: str
    title: str
    spec: dict[str, Any]
    legend: Sequence[tuple[str, str]] = ()
    note: str = ""
    wide: bool = False
    kind: str = field(default="figure", init=False)


@dataclass(frozen=True)
class Notice:
    """Stands where something is not there yet, and says what to run."""

    text: str
    kind: str = field(default="notice", init=False)


Block = Table | Figure | Notice


@dataclass(frozen=True)
class Section:
    """A chapter of the page; `name` is its anchor."""

    name: str
    title: str
    blocks: Sequence[Block]


def section(
    lake: Snapshot, name: str, title: str, *parts: Callable[[Snapshot], Iterable[Block]]
) -> Section:
    """A section of parts, with a notice for each part that has nothing to show yet."""
    blocks: list[Block] = []
    for part in parts:
        try:
            blocks += part(lake)
        except NotShownError as why:
            blocks.append(Notice(str(why)))
    return Section(name, title, blocks)


def table(
    title: str,
    columns: dict[str, Form],
    rows: list[dict[str, Any]],
    note: str = "",
    *,
    wide: bool = False,
) -> Table:
    """A table of the rows of a query, whose columns are in the order of these."""
    return Table(title, columns, [tuple(row.values()) for row in rows], note, wide)


def bar_chart(name: str, title: str, rows: list[dict[str, Any]], by: str, measure: str) -> Figure:
    """A bar for each row of a query: the column `measure` by the column `by`.

    Raises:
        NotShownError: there is no row.
    """
    if not rows:
        message = f"{title}: there is none yet."
        raise NotShownError(message)
    drawn = bars([(row[by], row[measure]) for row in rows], measure)
    return Figure(name, title, drawn)
