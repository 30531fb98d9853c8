"""A sink from a table of gold to a real PostgreSQL, and an oracle that compares both."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from topic import GOOD, declared

from lake.settings.settings import LakeSettings, load_settings
from lake.streams.job import await_streams
from lake.tables.lake import Lake
from lakehouse.sinks.export import export_sinks

FEED = {"delta.enableChangeDataFeed": "true"}
VARIABLE = "SINK_OF_THE_TESTS"
DECLARED = """
[export.{name}]
from = "gold.source"
table = "public.target"
key = {key}
url_env = "{variable}"
"""


class Exported:
    """The table `gold.source` and its copy `public.target`."""

    def __init__(
        self,
        folder: Path,
        address: str,
        key: Sequence[str] = ("id",),
        more: str = "",
        where: str | None = None,
    ) -> None:
        os.environ[VARIABLE] = self.address = address
        names = json.dumps(list(key))
        text = DECLARED.format(name="copy", key=names, variable=VARIABLE)
        text += (f"where = {json.dumps(where)}\n" if where else "") + more
        self.key, self.where = key, where
        self.settings: LakeSettings = load_settings(home=folder / "home")
        self.lake = Lake(self.settings, declared(folder, GOOD + text))
        self.path = self.settings.table_path("gold", "source")

    @property
    def delta(self) -> DeltaTable:
        return DeltaTable(self.path)

    def write(self, rows: pa.Table, mode: Any = "append", **options: Any) -> None:
        write_deltalake(self.path, rows, mode=mode, configuration=FEED, **options)

    def merge(self, rows: pa.Table) -> None:
        same = " AND ".join(f"t.{name} = s.{name}" for name in self.key)
        merge = self.delta.merge(rows, same, source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def export(self) -> None:
        """Bring the database up to date, in the process of the test."""
        sinks = list(self.lake.topics.export.values())
        await_streams(export_sinks(self.lake, sinks, available_now=True))

    def query(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute("SET TIME ZONE 'UTC'")
            connection.row_factory = psycopg.rows.dict_row  # type: ignore[assignment]
            cursor = connection.execute(sql, values or None)
            return list(cursor.fetchall()) if cursor.description else []  # type: ignore[arg-type]

    def refused(self) -> list[dict[str, Any]]:
        return self.query("SELECT * FROM lakehouse_refused ORDER BY key")

    def expected(self, without: Sequence[Any] = ()) -> dict[Any, dict[str, Any]]:
        """Return the rows of the lake by key, read by DuckDB."""
        files = self.delta.to_pyarrow_dataset().to_table()
        rows = duckdb.sql(f"SELECT * FROM files WHERE {self.where or True}")
        rows = rows.to_arrow_table().to_pylist()
        assert files is not None
        found = {self._key_of(row): row for row in rows}
        assert len(found) == len(rows)
        return {key: row for key, row in found.items() if key not in without}

    def actual(self) -> dict[Any, dict[str, Any]]:
        rows = self.query("SELECT * FROM public.target")
        return {self._key_of(row): row for row in rows}

    def assert_equal(self, without: Sequence[Any] = ()) -> None:
        expected, actual = self.expected(without), self.actual()
        assert actual == expected

    def _key_of(self, row: dict[str, Any]) -> Any:
        values = tuple(row[name] for name in self.key)
        return values[0] if len(values) == 1 else values
