"""Runs SQL without Spark on the tables of silver and gold as of one moment."""

import re
from typing import Any

import pyarrow as pa
from deltalake import QueryBuilder
from deltalake.exceptions import DeltaError

from gold.tables import published_tables
from lake.tables.lake import Lake

MISSING = re.compile(r"table 'datafusion\.([\w.]+)' not found")


class NotShownError(Exception):
    """A part of the page has nothing to show yet. The message says why, and what to run.

    is_missing: whether a table does not exist yet.
    """

    def __init__(self, message: str, *, is_missing: bool = False) -> None:
        super().__init__(message)
        self.is_missing = is_missing


class Snapshot:
    """All tables of silver and gold, opened together so that the whole page shows one moment."""

    def __init__(self, lake: Lake) -> None:
        self._sql = QueryBuilder()
        tables = [*lake.tables("silver").values(), *published_tables(lake)]
        for schema in sorted({"silver", "gold", *(table.spec.layer for table in tables)}):
            self._sql.execute(f"create schema {schema}")
        for table in tables:
            self._sql.register(f'{table.spec.layer}."{table.spec.name}"', table.log())

    def table(self, sql: str) -> pa.Table:
        """The result of a query, which should be small, because it is held in memory.

        DataFusion runs the query and aggregates in a stream.

        Args:
            sql: the query, which names tables as `gold.customers`.

        Raises:
            NotShownError: a table does not exist, or the query is not valid.
        """
        try:
            return pa.table(self._sql.execute(sql).read_all())
        except DeltaError as error:
            said = str(error).splitlines()[0]
            if missing := MISSING.search(said):
                layer = "silver" if missing[1].startswith("silver.") else "gold"
                message = f"{missing[1]} is not built yet. Run `lakehouse {layer} --available-now`."
                raise NotShownError(message, is_missing=True) from error
            message = f"the query is refused: {said}"
            raise NotShownError(message) from error

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """The rows of a query's result. Errors are those of `table`."""
        found: list[dict[str, Any]] = self.table(sql).to_pylist()
        return found

    def row(self, sql: str) -> dict[str, Any]:
        """The only row of a query's result. Errors are those of `table`."""
        [found] = self.rows(sql)
        return found
