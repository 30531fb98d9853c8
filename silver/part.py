"""Says which tables of silver are rebuilt together, if not all are.

A table is rebuilt with what is computed from it: the events that look up a changelog, and the views
of both. The rebuild reads other tables where it needs them, and does not change them.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.types import StructType

from lake.streams.checkpoint import interrupted
from lake.tables.lake import Lake
from lake.tables.spec import TableSpec
from lake.tables.table import Table
from pulsar_spark.errors import LakehouseError, SettingsError
from silver.contract.tables import (
    CUTS,
    QUARANTINE,
    RECONCILIATION,
    SCHEMAS,
    silver_tables,
    tables_of,
)
from silver.declared import changed_declarations

COMMAND = "lakehouse replay --table silver"
OF_ALL_TOPICS = (QUARANTINE, RECONCILIATION, CUTS, SCHEMAS)


@dataclass(frozen=True)
class Part:
    """Tables of silver that are rebuilt together.

    name: the name by which they are asked for, without `silver.`.
    topics: the topics of whose messages the tables are made, sorted.
    made: the full names of the tables that are rebuilt, in the order of `silver_tables`.
    """

    name: str
    topics: tuple[str, ...]
    made: tuple[str, ...]

    @classmethod
    def of(cls, lake: Lake, name: str) -> "Part":
        """The tables that are rebuilt if one is asked for: it, and what is computed from it.

        Args:
            lake: the lake.
            name: a changelog or one of its tables, `enriched_<events>`, or a view with a key.

        Raises:
            SettingsError: there is no such table.
        """
        topics, names = lake.topics, dict[str, str]()
        for topic in topics.topics.values():
            names |= {spec.name: topic.name for spec in tables_of(topic, topics)}
        names |= {topic.name: topic.name for topic in topics.changelogs()}
        views = [query.view.name for query in topics.view_queries]
        if name not in {*names, *views}:
            known = (f"silver.{each}" for each in (*names, *views))
            message = f"'silver.{name}' cannot be rebuilt. Choose one of {', '.join(known)}."
            raise SettingsError(message)
        chosen = {names[name]} if name in names else set()
        chosen |= {
            topic.name
            for topic in topics.events()
            if any(lookup.topic in chosen for lookup in topic.lookups.values())
        }
        changed = {spec.name for each in chosen for spec in tables_of(topics.topics[each], topics)}
        changed |= {name} & {*views}
        read_as = chosen & {topic.name for topic in topics.changelogs()}
        for query in topics.view_queries:
            if (changed | read_as) & {*query.reads}:
                changed.add(query.view.name)
        made = (spec.full_name for spec in silver_tables(topics) if spec.name in changed)
        return cls(name, tuple(sorted(chosen)), tuple(made))

    @property
    def command(self) -> str:
        """The command that rebuilds these tables, and that continues an interrupted rebuild."""
        return f"{COMMAND}.{self.name}"

    def has(self, spec: TableSpec) -> bool:
        """Whether a table is rebuilt, or changed because others are."""
        return spec.full_name in self.made or (bool(self.topics) and spec in OF_ALL_TOPICS)


def refuse_other_changes(lake: Lake, part: Part) -> None:
    """Check that the states which the rebuilt events look up are as declared.

    Raises:
        LakehouseError: one is not, so it must be rebuilt first.
    """
    for name in part.topics:
        for lookup in lake.topics.topics[name].lookups.values():
            if lookup.topic in part.topics:
                continue
            for spec in tables_of(lake.topics.topics[lookup.topic], lake.topics):
                for what in _differences(lake.table(spec)):
                    message = (
                        f"{spec.full_name}, whose rows silver.{part.name} looks up, {what}. "
                        f"Rebuild both with `{COMMAND}.{lookup.topic}`."
                    )
                    raise LakehouseError(message)


def _differences(table: Table) -> Iterator[str]:
    """How a table differs from what is declared, so that a rebuild would give other rows."""
    if not table.exists():
        yield "does not exist yet"
        return
    known = StructType.fromJson(json.loads(table.log().schema().to_json()))
    try:
        yield from (f"lacks the field '{place}'" for place, _, _ in table.spec.missing(known))
    except LakehouseError:
        yield "has columns that cannot be changed"
    if [*changed_declarations(table)]:
        yield "was made by other declarations"


def outdated(lake: Lake, query: str) -> list[Part]:
    """The parts that a rebuild with the current topic file would change.

    Called by `lakehouse plan`, and by `lakehouse up --rebuild`, which rebuilds them. A rebuild that
    was interrupted comes first.

    Args:
        lake: the lake.
        query: the name of silver's query.
    """
    declared = [
        *(spec for topic in lake.topics.topics.values() for spec in tables_of(topic, lake.topics)),
        *(spec for spec in silver_tables(lake.topics) if spec.name in lake.topics.queried),
    ]
    changed = [
        spec for spec in declared if lake.table(spec).exists() and [*_differences(lake.table(spec))]
    ]
    found = {spec.name: Part.of(lake, spec.name) for spec in changed}
    whole = [
        part
        for part in found.values()
        if not any({*part.made} < {*other.made} for other in found.values())
    ]
    parts = {part.made: part for part in reversed(whole)}  # the first of those with equal tables
    begun = interrupted(Path(lake.settings.checkpoint_path(query))) or ""
    command, _, name = begun.rpartition(".")
    first = [Part.of(lake, name)] if command == COMMAND else []
    return [*first, *(part for part in reversed(parts.values()) if part not in first)]
