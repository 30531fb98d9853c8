"""The tables of silver and gold as of one moment, and SQL on them without Spark."""

from typing import Any

import pyarrow as pa
from deltalake import QueryBuilder
from deltalake.exceptions import DeltaError

from lake.settings.settings import LakeSettings
from lake.tables.storage import open_table
from lake.tables.table import delta_tables

LAYERS = ("silver", "gold")


class NotShownError(Exception):
    """A part of the page has nothing to show yet; says why, and what to run."""


class Snapshot:
    """All tables of silver and gold, opened at once, so that the whole page shows one moment."""

    def __init__(self, settings: LakeSettings) -> None:
        self._sql = QueryBuilder()
        self._tables = set()
        for layer in LAYERS:
            for table, place in delta_tables(settings, layer).items():
                name = f"{layer}.{table}"
                self._sql.register(f'"{name}"', open_table(settings, place))
                self._tables.add(name)

    def rows(self, sql: str, *tables: str) -> list[dict[str, Any]]:
        """The result of a query, which should be small: sums are made by DataFusion, in a stream.

        Args:
            sql: names its tables in quotes, such as `"gold.customers"`.
            tables: those that it reads.

        Raises:
            NotShownError: a table is not there, or has other columns.
        """
        for table in tables:
            if table not in self._tables:
                layer = table.split(".")[0]
                message = f"{table} is not built yet. Run `lakehouse {layer} --available-now`."
                raise NotShownError(message)
        try:
            found: list[dict[str, Any]] = pa.table(self._sql.execute(sql).read_all()).to_pylist()
        except DeltaError as error:
            message = f"{' and '.join(tables)} cannot be shown: {str(error).splitlines()[0]}"
            raise NotShownError(message) from error
        return found

    def row(self, sql: str, *tables: str) -> dict[str, Any]:
        """The only row of a result; arguments and errors as of `rows`."""
        [found] = self.rows(sql, *tables)
        return found
