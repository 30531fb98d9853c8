"""Runs the sinks that the topic file declares in `[publish.<name>]`: tables to Pulsar topics.

Each sink is a streaming query of its own in the session of the process, and sends what
`publish_table` sends. Its checkpoint holds its definition, because a topic that was filled by
another one would be a mixture.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lake.durable import read_json, write_durably
from lake.observe.lineage import Flow, address_place, table_at
from lake.quoting import identifier
from lake.streams.checkpoint import TOGETHER, Running, claim
from lake.streams.supervisor import Stream
from lake.tables.lake import Lake
from lake.tables.table import Table
from lake.topics.sink import Publish
from lake.topics.sink_source import check_condition, source_of
from lakehouse.messages.publish_table import Form, changes_of, prepare_topic, send
from lakehouse.sinks.waiting import WaitingStream
from pulsar_spark.errors import CheckpointError, SettingsError

DEFINITION = "lakehouse.sink.json"
# What decides which messages a topic holds. Event time and properties may change.
FIXED = ("from", "topic", "key", "columns", "where", "deletes")


def publish_sinks(
    spark: SparkSession, lake: Lake, sinks: Sequence[Publish], *, available_now: bool = False
) -> list[Stream]:
    """The streams of sinks, which begin when they are kept.

    A sink whose table does not exist yet waits for it. With `available_now`, the streams end when
    they have sent all present changes.
    """
    addresses = lake.topics.sink_addresses(lake.settings.pulsar_namespace)
    return [
        WaitingStream(
            sink.label,
            lake.settings,
            partial(_start, spark, lake, sink, addresses[sink.name], available_now),
            source_table(lake, sink).exists,
            available_now=available_now,
            flow=Flow(
                (table_at(lake.settings, source_table(lake, sink)),),
                (address_place(lake.settings, addresses[sink.name]),),
            ),
        )
        for sink in sinks
    ]


def source_table(lake: Lake, sink: Publish) -> Table:
    """The table from which a sink takes its rows. It need not exist yet."""
    source = source_of(lake.topics, sink)
    return lake.named(source.schema, source.table)


def form_of(lake: Lake, sink: Publish) -> Form:
    """Which rows a sink sends, and how."""
    missing = source_of(lake.topics, sink).missing
    conditions = [f"({sink.where})"] if sink.where else []
    conditions += [f"{identifier(missing)} IS NULL"] if missing else []
    return Form(
        sink.key,
        where=" AND ".join(conditions) or None,
        columns=sink.columns or None,
        op=sink.op,
        event_time=sink.event_time,
        properties=sink.properties,
        sink=sink.name,
    )


def _start(
    spark: SparkSession, lake: Lake, sink: Publish, address: str, available_now: bool
) -> Running:
    """Start the query of a sink.

    Raises:
        CheckpointError: another process runs the sink, or its definition has changed.
        SettingsError: the table does not fit the sink.
    """
    table, form = source_table(lake, sink), form_of(lake, sink)
    checkpoint = claim(lake.settings, sink.label)
    try:
        changes = changes_of(spark, table, replace(form, where=None))
        if sink.where:
            try:
                check_condition(sink, changes.columns)
            except ValueError as error:
                message = f"{lake.settings.topics}: {error}."
                raise SettingsError(message) from error
        changes = changes_of(spark, table, form)
        check_definition(lake, sink, address)
        definition = json.dumps(_definition(sink, address, table))
        write_durably(Path(checkpoint.path) / DEFINITION, definition)
        prepare_topic(lake.settings, address, sink.partitions)
        return send(lake.settings, changes, address, form, checkpoint, available_now)
    except BaseException:
        checkpoint.release()
        raise


def _definition(sink: Publish, address: str, table: Table) -> dict[str, Any]:
    given = sink.model_dump(by_alias=True)
    return {**{name: given[name] for name in FIXED}, "from": table.full_name, "topic": address}


def check_definition(lake: Lake, sink: Publish, address: str) -> None:
    """Check that a sink is the one that has filled its topic. Called by `lakehouse plan`, too.

    Raises:
        CheckpointError: its definition has changed.
    """
    name = sink.label
    stored = _stored(Path(lake.settings.checkpoint_path(name)))
    definition = _definition(sink, address, source_table(lake, sink))
    changed = [key for key in FIXED if stored and stored.get(key) != definition[key]]
    if stored and changed:
        key = changed[0]
        what = (
            f"The sink {name} has '{key}' = {json.dumps(definition[key])}, but has sent messages "
            f"with {json.dumps(stored.get(key))}. Its topic would be a mixture of both."
        )
        remedy = (
            "Undo the change, or declare a sink under another name with another topic: it sends "
            "all rows from the beginning."
        )
        raise CheckpointError(what, remedy)


def _stored(checkpoint: Path) -> dict[str, Any] | None:
    return read_json(checkpoint / DEFINITION, TOGETHER, CheckpointError)
