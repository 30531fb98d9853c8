"""The dbt adapter `lakehouse`: dbt-spark's, which also keeps models.

dbt's macros cannot import Python, so they call methods of the adapter. A profile has `type:
lakehouse`, and otherwise the options of dbt-spark. The macros of the adapter are in `gold/package`.
"""

import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import agate
from dbt.adapters.base.meta import available
from dbt.adapters.base.plugin import AdapterPlugin
from dbt.adapters.events.logging import AdapterLogger
from dbt.adapters.spark.connections import SparkConnectionManager, SparkCredentials
from dbt.adapters.spark.impl import SparkAdapter
from dbt_common.clients.agate_helper import Integer
from dbt_common.exceptions import CompilationError

from gold.kept.build_after import MAY_WAIT_ENV, LastComputed, pause_of
from gold.kept.constraints import constraint_of, constraints_of
from gold.kept.definitions import DEFINITIONS_ENV, Definitions
from gold.kept.keeper import Keeper, KeptError

PASSED = ("failures", "should_warn", "should_error")  # columns of the result of a test

NOTHING: dict[str, dict[str, int]] = {"silver": {}, "built": {}}

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
            CompilationError: the model's configuration does not allow it to be kept.
        """
        may_wait = os.environ.get(MAY_WAIT_ENV) == "true"
        until = self._last_computed.until(model) if may_wait else None
        try:
            return self._keeper.keep(relation, model, sql, sources, build, until)
        except KeptError as error:
            raise CompilationError(str(error)) from error

    @available
    def read_by(
        self, model: Mapping[str, Any], published: Mapping[str, Mapping[str, int]]
    ) -> Mapping[str, Mapping[str, int]]:
        """The versions of the tables with which the rows of a model agree.

        Args:
            model: the node of the model in dbt's graph.
            published: the versions of the last publication, by table: of `silver`, and of `built`
                for tables in gold_build.

        Returns:
            The same, or older ones if the model has waited. Empty if they are not known.
        """
        if pause_of(model) is None:
            return published
        known = self._last_computed.models.get(model["alias"])
        return {"silver": known.silver, "built": known.built} if known else NOTHING

    @available
    def is_redefined(
        self, relation: str, model: Mapping[str, Any], sql: str, reads: Iterable[str]
    ) -> bool:
        """Whether a model's definition, or the columns it returns, differ from what was published.

        Without known definitions they do not: `lakehouse gold` then rebuilds all models if any of
        them may have changed, and elsewhere no model is kept from one run to the next.

        Args:
            relation: the model's table.
            model: the node of the model in dbt's graph.
            sql: its compiled SQL.
            reads: the tables and views that it reads.
        """
        folder = os.environ.get(DEFINITIONS_ENV)
        known = Definitions.read(Path(folder)) if folder else None
        if known is None:
            return False
        return not known.has(model, sql) or self._keeper.has_other_columns(relation, sql, reads)

    @available
    def note_whole(self, relation: str, model: Mapping[str, Any]) -> None:
        """Note that a table was created or replaced, as `Keeper.note_whole`.

        Raises:
            CompilationError: the model's configuration does not allow it to be kept.
        """
        try:
            self._keeper.note_whole(relation, model)
        except KeptError as error:
            raise CompilationError(str(error)) from error

    @available
    def constraints(self, model: str, nodes: Iterable[Mapping[str, Any]]) -> dict[str, str]:
        """The constraints of a model's table, as `constraints_of`."""
        return constraints_of(model, nodes)

    @available
    def constrain(self, relation: str, wanted: Mapping[str, str]) -> None:
        """Replace the constraints of a table, as `Keeper.constrain`."""
        self._keeper.constrain(relation, wanted)

    @available
    def passed(
        self, test: Mapping[str, Any], relations: list[str], *, are_known: bool
    ) -> agate.Table | None:
        """The result of a test that is known to pass. None if it must be run.

        Called by the materialization of tests.

        Args:
            test: the node of the test in dbt's graph.
            relations: the tables that it reads.
            are_known: whether the published tables passed it.
        """
        constraint = constraint_of(test)
        is_enforced = constraint is not None and any(
            self._keeper.enforces(name, *constraint) for name in relations
        )
        if is_enforced or (are_known and self._keeper.are_unchanged(relations)):
            return agate.Table([[0, False, False]], PASSED, [Integer(), *[agate.Boolean()] * 2])
        return None

    @cached_property
    def _last_computed(self) -> LastComputed:
        folder = os.environ.get(DEFINITIONS_ENV)
        return (LastComputed.read(Path(folder)) if folder else None) or LastComputed("", {})

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
