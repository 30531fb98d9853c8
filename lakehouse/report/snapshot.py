"""Runs SQL without Spark on the tables of silver and gold as of one moment."""

from typing import Any

import pyarrow as pa
from deltalake import QueryBuilder
from deltalake.exceptions import DeltaError

from lake.tables.lake import Lake

LAYERS = ("silver", "gold")


class NotShownError(Exception):
    """A part of the page has nothing to show yet. The message says why, and what to run."""


class Snapshot:
    """All tables of silver and gold, opened together so that the whole page shows one moment."""

    def __init__(self, lake: Lake) -> None:
        self._sql = QueryBuilder()
        self._tables = set()
        for layer in LAYERS:
            for table in lake.tables(layer).values():
                self._sql.register(f'"{table.full_name}"', table.log())
                self._tables.add(table.full_name)

    def rows(self, sql: str, *tables: str) -> list[dict[str, Any]]:
        """The rows of a query's result, which should be small, because it is held in memory.

        DataFusion runs the query and aggregates in a stream.

        Args:
            sql: the query, with table names in quotes, such as `"gold.customers"`.
            tables: the tables that the query reads.

        Raises:
            NotShownError: a table does not exist or lacks a column.
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
        """The only row of a query's result. Arguments and errors are those of `rows`."""
        [found] = self.rows(sql, *tables)
        return found
