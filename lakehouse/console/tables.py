"""What the page of a table shows: columns, a sample, versions and files. Read when it is opened."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError

from gold.dbt.manifest import Manifest
from gold.tables import published_tables
from lake.tables.lake import Lake
from lake.tables.log import TableFiles
from lake.tables.spec import type_text
from lake.tables.table import Table
from lakehouse.console.graph import full_name
from lakehouse.console.masking import Masking

SAMPLE_ROWS = 20
VERSIONS = 20
LONGEST_CELL = 200
LAYERS = ("bronze", "silver")


@dataclass(frozen=True)
class ColumnInfo:
    """A column of a table. `is_masked`: whether its values are personal and not shown."""

    name: str
    type: str
    nullable: bool
    description: str
    is_masked: bool


@dataclass(frozen=True)
class Version:
    """A version of a table: when and how it was written, and what changed, such as numbers."""

    number: int
    at: dt.datetime
    operation: str
    changes: str


@dataclass(frozen=True)
class TablePage:
    """What the page of a table shows. `problem` says why a part is missing."""

    name: str
    description: str
    path: str
    columns: list[ColumnInfo]
    versions: list[Version]
    newest_version: int
    rows: int
    size: int
    files: int
    properties: dict[str, str]
    sample: list[list[str | None]]
    problem: str = ""


def known_tables(lake: Lake) -> dict[str, Table]:
    """All tables that pages may show, by full name."""
    found = [table for layer in LAYERS for table in lake.tables(layer).values()]
    return {table.full_name: table for table in [*found, *published_tables(lake)]}


def table_page(table: Table, manifest: Manifest, masking: Masking) -> TablePage:
    """Read what the page of an existing table shows."""
    log = table.log()
    metadata, files = log.metadata(), TableFiles(log)
    model = next((m for m in manifest.models if full_name(m) == table.full_name), None)
    described = {
        name: c.get("description", "") for name, c in (model or {}).get("columns", {}).items()
    }
    columns = [
        ColumnInfo(
            each.name,
            type_text(json.loads(each.type.to_json())),
            each.nullable,
            str(each.metadata.get("comment") or described.get(each.name, "")),
            _is_masked(table.full_name, each.name, masking),
        )
        for each in log.schema().fields
    ]
    sample, problem = _sample(table, masking)
    return TablePage(
        table.full_name,
        metadata.description or (model or {}).get("description", ""),
        table.path,
        columns,
        [_version(entry) for entry in log.history(VERSIONS)],
        log.version(),
        files.rows,
        files.size,
        files.count,
        dict(sorted(metadata.configuration.items())),
        sample,
        problem,
    )


def _is_masked(table: str, column: str, masking: Masking) -> bool:
    return not table.startswith("bronze.") and masking.masks(column)


def _sample(table: Table, masking: Masking) -> tuple[list[list[str | None]], str]:
    try:
        rows = table.arrow.head(SAMPLE_ROWS)
    except (DeltaError, pa.ArrowException, OSError) as error:
        return [], f"The rows cannot be read: {str(error).splitlines()[0][:300]}"
    masked = (masking.row(table.full_name, row) for row in rows)
    return [[shown(value) for value in row.values()] for row in masked], ""


def shown(value: Any) -> str | None:
    """A value of a table as text; None for NULL. Long values are cut."""
    if value is None:
        return None
    if isinstance(value, bytes):
        text = value.decode("utf-8", "backslashreplace")
    elif isinstance(value, dt.datetime):
        text = _instant(value)
    elif isinstance(value, Mapping | list | tuple):
        text = json.dumps(value, default=_plain, ensure_ascii=False)
    elif isinstance(value, bool):
        text = str(value).lower()
    else:
        text = str(value)
    return text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 1]}…"


def row_text(row: Mapping[str, Any]) -> str:
    """A row on one line, without the columns that are NULL."""
    given = {name: value for name, value in row.items() if value is not None}
    return json.dumps(given, default=_shortened, ensure_ascii=False)


def _shortened(value: Any) -> str:
    return _instant(value) if isinstance(value, dt.datetime) else _plain(value)


def _instant(value: dt.datetime) -> str:
    text = value.isoformat(sep=" ", timespec="milliseconds" if value.microsecond else "seconds")
    return text.replace("+00:00", "Z")


def _plain(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _version(entry: Mapping[str, Any]) -> Version:
    metrics = {
        name: value
        for name, value in entry.get("operationMetrics", {}).items()
        if str(value) not in ("0", "[]", "{}") and not name.endswith(("Ms", "_ms"))
    }
    parts = itertools.islice(metrics.items(), 6)
    return Version(
        entry.get("version", 0),
        dt.datetime.fromtimestamp(entry.get("timestamp", 0) / 1000, dt.timezone.utc),
        str(entry.get("operation", "")),
        ", ".join(f"{name} {value}" for name, value in parts),
    )
