"""What a dbt project declares for the report and the demo, as `meta` of its exposures.

`meta: {report: …}` is a part of `lakehouse report`, with the keys of `Part`. `meta: {demo: …}` is a
query in Spark SQL whose result `lakehouse demo` prints. The label of the exposure is the title. The
parts are in the order in which dbt lists the exposures: by file, and within a file as written.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, ValidationError

from gold.dbt.manifest import Manifest
from lakehouse.report.blocks import Block, Figure, Form, Section, Table, Tile, section
from lakehouse.report.charts import REST, SERIES, Unit, bars, over_time
from lakehouse.report.snapshot import NotShownError, Snapshot
from pulsar_spark.errors import SettingsError

DAYS_BY_DAY, DAYS_BY_MONTH = 92, 15 * 366  # longer spans are shown by month or by year


class Part(BaseModel):
    """A part of the report.

    show: `number`: a figure in the head of the page, the only value of the query. `bars`: a bar for
        each row, with the first column as its name and the second as its length. `table`: all rows.
        `over_time`: bars by day, month or year; the query has the columns `start` (a time) and
        `value`, and possibly `series`, of which the largest get colours of their own.
    sql: a query in DataFusion's SQL, which Delta's Python reader runs. It names tables of silver
        and gold as `gold.customers`.
    section: the heading above it; parts with the same section stand together. A `number` has none.
    form: how a `number` is written.
    columns: how columns of a `table` are written. By default, their types decide.
    note: a sentence below it.
    wide: whether it takes the whole width of the page.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    show: Literal["number", "bars", "table", "over_time"]
    sql: str
    section: str = ""
    form: Form = "number"
    columns: dict[str, Form] = {}
    note: str = ""
    wide: bool = False


class Declared:
    """The exposures of a project that the report and the demo show."""

    def __init__(self, manifest: Manifest) -> None:
        """Read and check the exposures.

        Raises:
            SettingsError: one has an unknown key, lacks one, or has an invalid value.
        """
        self.queries: dict[str, str] = {}
        self._parts: list[tuple[str, str, Part]] = []
        for exposure in manifest.exposures:
            meta = {**exposure.get("meta", {}), **exposure.get("config", {}).get("meta", {})}
            title = exposure.get("label") or exposure["name"].replace("_", " ")
            if "demo" in meta:
                self.queries[title] = str(meta["demo"])
            if "report" in meta:
                self._parts.append((exposure["name"], title, _part(exposure, meta["report"])))

    def tiles(self, lake: Snapshot) -> Sequence[Tile]:
        """The figures in the head of the page. A value is None if its table does not exist yet."""
        return [
            Tile(title, part.form, _number(lake, part))
            for _, title, part in self._parts
            if part.show == "number"
        ]

    def sections(self, lake: Snapshot) -> Sequence[Section]:
        """The sections of the project, in the order of their first parts."""
        found: dict[str, list[Callable[[Snapshot], Iterable[Block]]]] = {}
        for name, title, part in self._parts:
            if part.show != "number":
                found.setdefault(part.section, []).append(_drawn(name, title, part))
        return [
            section(lake, _anchor(heading), heading, *parts) for heading, parts in found.items()
        ]


def _part(exposure: dict[str, Any], given: object) -> Part:
    where = f"{exposure['original_file_path']}: exposure '{exposure['name']}': meta.report"
    try:
        part = Part.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(each) for each in first["loc"])
        what = "unknown key" if first["type"] == "extra_forbidden" else first["msg"]
        message = f"{where}{f'.{name}' if name else ''}: {what}."
        raise SettingsError(message) from error
    if part.show != "number" and not part.section:
        message = f"{where}: '{part.show}' needs a 'section', the heading above it."
        raise SettingsError(message)
    return part


def _anchor(heading: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-") or "section"


def _number(lake: Snapshot, part: Part) -> Any:
    try:
        found = lake.table(part.sql)
    except NotShownError:
        return None
    return found.column(0)[0].as_py() if found.num_rows and found.num_columns else None


def _drawn(name: str, title: str, part: Part) -> Callable[[Snapshot], Iterable[Block]]:
    draw = {"bars": _bars, "table": _table, "over_time": _over_time}[part.show]

    def block(lake: Snapshot) -> Iterable[Block]:
        try:
            return [draw(lake, name.replace("_", "-"), title, part)]
        except NotShownError as why:
            if why.is_missing:
                raise
            message = f"{title}: {why}"
            raise NotShownError(message) from why

    return block


def _bars(lake: Snapshot, name: str, title: str, part: Part) -> Block:
    found = lake.table(part.sql)
    if found.num_columns < 2:
        message = "bars need two columns, a name and a number."
        raise NotShownError(message)
    _require_rows(found)
    columns = [found.column(number).to_pylist() for number in (0, 1)]
    rows = [(str(label), value) for label, value in zip(*columns, strict=True)]
    drawn = bars(rows, found.column_names[1])
    return Figure(name, title, drawn, note=part.note, wide=part.wide)


def _table(lake: Snapshot, name: str, title: str, part: Part) -> Block:
    found = lake.table(part.sql)
    if unknown := part.columns.keys() - {*found.column_names}:
        message = f"'columns' names {min(unknown)}, which the query does not return."
        raise NotShownError(message)
    forms = {field.name: part.columns.get(field.name, _form(field.type)) for field in found.schema}
    rows = [tuple(row.values()) for row in found.to_pylist()]
    return Table(title, forms, rows, part.note, part.wide)


def _over_time(lake: Snapshot, name: str, title: str, part: Part) -> Block:
    shown = f"({part.sql}) as shown"
    span = lake.row(f"select min(start) as since, max(start) as until from {shown}")  # noqa: S608 - the project's own SQL
    if span["since"] is None:
        message = "no data yet."
        raise NotShownError(message)
    unit = _unit((span["until"] - span["since"]).days)
    columns = lake.table(f"select * from {shown} limit 0").column_names  # noqa: S608 - as above
    if "series" not in columns:
        rows = lake.rows(
            f"select date_trunc('{unit}', start) as start, sum(value) as value "  # noqa: S608 - as above
            f"from {shown} where start is not null group by 1 order by 1"
        )
        drawn, legend = over_time(rows, unit, title.lower()), []
    else:
        rows = lake.rows(_by_series(shown, unit))
        places = {row["place"]: row["name"] for row in rows}
        legend = [(places[place], (*SERIES, REST)[place - 1]) for place in sorted(places)]
        drawn = over_time(rows, unit, title.lower(), legend)
    return Figure(name, f"{title}, by {unit}", drawn, legend, part.note, part.wide)


def _by_series(shown: str, unit: Unit) -> str:
    """The SQL of the values by time, with the largest series, and all others as one."""
    return f"""
        with ranked as (
            select series, row_number() over (order by sum(value) desc, series) as place
            from {shown} group by series
        )
        select
            date_trunc('{unit}', shown.start) as start,
            case
                when ranked.place > {len(SERIES)} then 'all others'
                else coalesce(cast(ranked.series as varchar), 'none')
            end as name,
            cast(least(ranked.place, {len(SERIES) + 1}) as int) as place,
            sum(shown.value) as value
        from {shown}
        inner join ranked on shown.series is not distinct from ranked.series
        where shown.start is not null
        group by 1, 2, 3 order by 1, 3
        """  # noqa: S608 - the project's own SQL


def _require_rows(found: pa.Table) -> None:
    if not found.num_rows:
        message = "no data yet."
        raise NotShownError(message)


def _unit(days: int) -> Unit:
    return "day" if days <= DAYS_BY_DAY else "month" if days <= DAYS_BY_MONTH else "year"


def _form(kind: pa.DataType) -> Form:
    """How values of a type are written unless the project says otherwise."""
    if pa.types.is_boolean(kind):
        return "flag"
    if pa.types.is_integer(kind):
        return "number"
    if pa.types.is_decimal(kind):
        return "money"
    if pa.types.is_floating(kind):
        return "decimal"
    if pa.types.is_timestamp(kind):
        return "time"
    return "list" if pa.types.is_list(kind) or pa.types.is_large_list(kind) else "text"
