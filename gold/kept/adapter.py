"""The dbt adapter `lakehouse`: dbt-spark's, which also keeps models.

dbt's macros cannot import Python, so they call methods of the adapter. A profile has `type:
lakehouse`, and otherwise the options of dbt-spark. The macros of the adapter are in `gold/package`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import agate
from dbt.adapters.base.meta import available
from dbt.adapters.base.plugin import AdapterPlugin
from dbt.adapters.events.logging import AdapterLogger
from dbt.adapters.spark.connections import SparkConnectionManager, SparkCredentials
from dbt.adapters.spark.impl import SparkAdapter
from dbt_common.exceptions import CompilationError

from gold.kept.keeper import Keeper, KeptError

logger = AdapterLogger("Lakehouse")


class LakehouseCredentials(SparkCredentials):
    """The options of a profile."""

    @property
    def type(self) -> str:
        """The adapter's name in a profile."""
        return "lakehouse"


class LakehouseConnectionManager(SparkConnectionManager):
    """Connections as dbt-spark opens them."""

    TYPE = "lakehouse"


class LakehouseAdapter(SparkAdapter):
    """Keeps models. One object serves all threads of a run of dbt."""

    ConnectionManager = LakehouseConnectionManager

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._keeper = Keeper(self._query, logger.info)

    @available
    def keep(
        self,
        relation: str,
        model: Mapping[str, Any],
        sql: str,
        sources: Mapping[str, Mapping[str, Any]],
        build: str,
    ) -> str:
        """Bring the table of a model up to date, as `Keeper.keep`.

        Raises:
            CompilationError: the model cannot be kept as it is declared.
        """
        try:
            return self._keeper.keep(relation, model, sql, sources, build)
        except KeptError as error:
            raise CompilationError(str(error)) from error

    @available
    def note_whole(self, relation: str) -> None:
        """Note that a table was created or replaced, as `Keeper.note_whole`.

        Raises:
            CompilationError: the rows of the table cannot be compared.
        """
        try:
            self._keeper.note_whole(relation)
        except KeptError as error:
            raise CompilationError(str(error)) from error

    @available
    def passed(self, relations: list[str]) -> agate.Table | None:
        """The result of a test that passes, if none of its tables has changed in this run.

        Called by the materialization of tests. The tables passed when they were last published.
        """
        if not self._keeper.are_unchanged(relations):
            return None
        return agate.Table([[0, False, False]], ["failures", "should_warn", "should_error"])

    def _query(self, sql: str) -> list[Any]:
        _, cursor = self.connections.add_query(sql, auto_begin=False)
        return cursor.fetchall() or []


Plugin = AdapterPlugin(
    adapter=LakehouseAdapter,  # type: ignore[arg-type]
    credentials=LakehouseCredentials,
    include_path=str(Path(__file__).resolve().parents[1] / "package"),
    dependencies=["spark"],
    project_name="dbt_lakehouse",
)
