"""The building blocks of the page. The template tells blocks apart by their `kind`."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lakehouse.report.snapshot import NotShownError, Snapshot

Form = Literal["text", "list", "flag", "number", "money", "percent", "decimal", "time"]


@dataclass(frozen=True)
class Tile:
    """One number in the head of the page. The value is None if it is not known yet."""

    name: str
    form: Form
    value: Any


@dataclass(frozen=True)
class Table:
    """Rows below a title. The form of a column says how its values are formatted."""

    title: str
    columns: dict[str, Form]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    wide: bool = False
    kind: str = field(default="table", init=False)

    @property
    def is_wordy(self) -> bool:
        """Whether the table is too wide for a phone, which then shows each row as a list."""
        return sum(form in ("text", "list") for form in self.columns.values()) > 1


@dataclass(frozen=True)
class Figure:
    """A chart below a title.

    name: unique on the page. spec: in Vega-Lite. legend: name and colour of each series.
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
    """Stands in for a part that cannot be shown yet, and says what to run."""

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
    """A section with the blocks of all parts, or a notice for a part with nothing to show yet."""
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
    """A table with the rows of a query, whose columns must be in the order of `columns`."""
    return Table(title, columns, [tuple(row.values()) for row in rows], note, wide)
