"""Finds the tables from which declared sinks take their rows, and checks where they lead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from lake.topics.address import Address
from lake.topics.misplaced import Misplaced
from lake.topics.sink import Export, Publish, Sink
from lake.topics.topic import OWN_COLUMNS, Topic, hash_column, snake_case

if TYPE_CHECKING:
    from lake.topics.topic_file import TopicFile

# Schemas without tables for readers, or whose tables never change a row.
RESERVED = re.compile(r"(bronze|gold_build\w*|cut_\w+)\.")


@dataclass(frozen=True)
class Source:
    """The Delta table `<schema>.<table>` from which a sink takes its rows.

    missing: the lookup that must be NULL, if the sink takes only the rows that lack it.
    topics: the topics from which the rows are made; None if they are not known, as for a mart.
    columns: the names that its columns may have; None if they are not known.
    """

    schema: str
    table: str
    missing: str | None = None
    topics: frozenset[str] | None = None
    columns: frozenset[str] | None = None

    @property
    def full_name(self) -> str:
        """`<schema>.<table>`, the table's name in SQL."""
        return f"{self.schema}.{self.table}"


def check_sinks(topics: TopicFile) -> None:
    """Check the sinks of a topic file. Called when the file is read.

    Raises:
        ValueError: a sink has a wrong source or target. The message names the sink.
    """
    seen: dict[tuple[str | None, ...], Export] = {}
    for export in topics.export.values():
        _check_columns(source_of(topics, export), export)
        same = seen.setdefault((export.table, export.url_env, export.url_file), export)
        if same is not export:
            message = (
                f"sinks '{same.name}' and '{export.name}' both export to the table {export.table} "
                "of one database; name another 'table'"
            )
            raise ValueError(message)
    for sink in topics.publish.values():
        source = source_of(topics, sink)
        _check_columns(source, sink)
        personal = _personal_columns(topics, source)
        for name in sink.properties.values():
            if name in personal:
                message = (
                    f"sink '{sink.name}' sends the personal field '{name}' as a property, which a "
                    "delete would repeat after `lakehouse forget`; send it as a column only"
                )
                raise ValueError(message)
    sinks = {name: sink.address for name, sink in topics.publish.items()}
    refuse_wrong_addresses(topics, topics.short_addresses, sinks)


def _check_columns(source: Source, sink: Sink) -> None:
    """Check that the columns that a sink names may be in its table.

    Raises:
        ValueError: one cannot.
    """
    kind = "publish" if isinstance(sink, Publish) else "export"
    if sink.where:
        try:
            check_condition(sink, source.columns)
        except ValueError as error:
            raise Misplaced((kind, sink.name, "where"), str(error)) from error
    if source.columns is None:
        return
    named = [*sink.key, *sink.columns]
    if isinstance(sink, Publish):
        named += [*sink.properties.values(), *filter(None, [sink.event_time])]
    for name in named:
        if name not in source.columns:
            message = (
                f"sink '{sink.name}' names '{name}', which is no column of {sink.source}; its "
                f"columns are {', '.join(sorted(source.columns - OWN_COLUMNS))}"
            )
            raise ValueError(message)


def check_condition(sink: Sink, columns: Iterable[str] | None) -> None:
    """Check the condition of a sink.

    Args:
        sink: a sink with a condition.
        columns: the columns that it may use; None if they are not known yet.

    Raises:
        ValueError: it is not a deterministic condition on one row, or cannot be evaluated by such a
            sink. The message names the sink.
    """
    from lake.topics.computed import columns_of  # few files need a parser of SQL

    try:
        known = None if columns is None else {column.lower() for column in columns}
        columns_of(str(sink.where), known)
        if isinstance(sink, Export):
            from lake.topics.condition import Condition

            Condition(str(sink.where))
    except ValueError as error:
        message = f"sink '{sink.name}' has a 'where' that {error}"
        message = message.replace("a column of another field of the topic", "a column of its table")
        message = message.replace("an expression of one message", "an expression of one row")
        raise ValueError(message) from error


def refuse_wrong_addresses(
    topics: TopicFile, addresses: Mapping[str, Address], sinks: Mapping[str, str]
) -> None:
    """Check the addresses of sinks: no two are equal, and none leads to its own table.

    Nor is one that of an import.

    Called when a topic file is read, and again with full names.

    Args:
        topics: the topic file.
        addresses: the address of each declared topic.
        sinks: the address of each sink.

    Raises:
        ValueError: an address is wrong. The message names the sink.
    """
    _refuse_clashes(sinks)
    for name, address in sinks.items():
        for filled in topics.imports:
            if addresses[filled].holds(address):
                message = (
                    f"sink '{name}' publishes to the topic {address}, to which only the import "
                    f"'{filled}' publishes; name another 'topic'"
                )
                raise ValueError(message)
    made_from: dict[str, Iterable[str]] = {}
    for name, sink in topics.publish.items():
        known = source_of(topics, sink).topics
        made_from[name] = addresses if known is None else known
    _refuse_cycles(addresses, sinks, made_from)


def source_of(topics: TopicFile, sink: Sink) -> Source:
    """The table from which a sink takes its rows.

    Raises:
        ValueError: there is no such table, or it has no changes that a sink could follow.
    """
    schema, _, name = sink.source.partition(".")
    if RESERVED.match(sink.source):
        message = (
            f"sink '{sink.name}' has the source '{sink.source}', whose rows are not for sinks; "
            "take a table of silver or a mart of gold"
        )
        raise ValueError(message)
    if schema != "silver":
        return Source(schema, name)
    known = _silver_sources(topics)
    if name in known:
        return known[name]
    if name in topics.views:
        message = (
            f"sink '{sink.name}' takes its rows from the view '{name}', which is computed when it "
            "is read; give the view a 'key' and 'columns', so that silver keeps it as a table"
        )
        raise ValueError(message)
    named = ", ".join(f"silver.{each}" for each in known)
    message = f"sink '{sink.name}' has the source '{sink.source}', which is none of {named}"
    raise ValueError(message)


def _silver_sources(topics: TopicFile) -> dict[str, Source]:
    """The tables of silver from which sinks may take rows, by the names that readers use."""
    found: dict[str, Source] = {}
    for topic in topics.changelogs():
        state, made_from, columns = f"{topic.name}_state", frozenset({topic.name}), _columns(topic)
        found[topic.name] = found[state] = Source("silver", state, None, made_from, columns)
        if topic.history:
            versions = f"{topic.name}_history"
            found[versions] = Source("silver", versions, None, made_from, columns)
    for topic in topics.events():
        made_from = frozenset({topic.name, *(each.topic for each in topic.lookups.values())})
        name = f"enriched_{topic.name}"
        found[name] = Source("silver", name, None, made_from, _columns(topic))
    for name, (topic, lookup) in topics.missing_views().items():
        found[name] = replace(found[f"enriched_{topic.name}"], missing=lookup)
    for query in topics.view_queries:
        parts = [found[name].topics or () for name in query.reads if name in found]
        name, columns = query.view.name, frozenset(query.view.columns)
        found[name] = Source("silver", name, None, frozenset().union(*parts), columns)
    return found


def _columns(topic: Topic) -> frozenset[str]:
    """The names that columns of a topic's tables may have, silver's own among them."""
    lookups = (part for name in topic.lookups for part in (name, f"{name}_position"))
    fields = (snake_case(name) for name in topic.fields)
    return frozenset({*fields, *map(hash_column, topic.hashed), *lookups, *OWN_COLUMNS})


def _personal_columns(topics: TopicFile, source: Source) -> set[str]:
    """The columns of a table that hold personal fields of messages."""
    return {
        snake_case(name)
        for topic in source.topics or ()
        for name, spec in topics.topics[topic].fields.items()
        if spec.personal
    }


def _refuse_clashes(sinks: Mapping[str, str]) -> None:
    """Check that no two sinks publish to the same topic.

    Keys of different tables may be equal, and nothing orders their changes.

    Args:
        sinks: the address of each sink.

    Raises:
        ValueError: two sinks have the same address.
    """
    seen: dict[str, str] = {}
    for name, address in sinks.items():
        if address in seen:
            message = (
                f"sinks '{seen[address]}' and '{name}' both publish to the topic {address}. Their "
                "keys could clash, and nothing orders their changes: declare a view with a key "
                "that is the UNION ALL of both, with a column in the key that tells them apart, "
                "and publish that view"
            )
            raise ValueError(message)
        seen[address] = name


def _refuse_cycles(
    topics: Mapping[str, Address], sinks: Mapping[str, str], sources: Mapping[str, Iterable[str]]
) -> None:
    """Check that no message leads, through tables and sinks, to the same topic again.

    Args:
        topics: the address of each declared topic.
        sinks: the address of each sink.
        sources: for each sink, the declared topics that its table is made from.

    Raises:
        ValueError: there is a cycle. The message names a sink.
    """
    landed = {
        address: name
        for address in sinks.values()
        for name, landing in topics.items()
        if landing.holds(address)
    }
    feeds: dict[str, set[str]] = {}  # topic -> topics from which sinks fill it
    for name, address in sinks.items():
        if address in landed:
            feeds.setdefault(landed[address], set()).update(sources[name])
    try:
        TopologicalSorter(feeds).prepare()
    except CycleError as error:
        ring = set(error.args[1])
        name = next(n for n, address in sinks.items() if landed.get(address) in ring)
        message = (
            f"sink '{name}' publishes to the topic {sinks[name]}, which is landed and leads to the "
            f"table of the sink again ({' -> '.join(reversed(error.args[1]))}), so its messages "
            "would never end; name another 'topic'"
        )
        raise ValueError(message) from None
