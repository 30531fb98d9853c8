"""Merged keys: `resolved_id` follows `merged_into` through chains to the key that survives."""

from collections.abc import Iterable, Mapping
from typing import Any

import structlog
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from bronze.declarations import Topic, snake_case
from bronze.direct import DirectTable
from bronze.settings import LakeSettings
from bronze.tables import match
from silver.tables import state_table

log = structlog.get_logger()


def survivors(merged_into: Mapping[Any, Any]) -> dict[Any, Any]:
    """Of each merged key the one at the end of its chain, None if the chain is a cycle.

    Args:
        merged_into: the next key of each merged key; a key that is not among them survives.
    """
    found: dict[Any, Any] = {}
    for start in merged_into:
        chain, key = [], start
        on_chain = set()
        while key in merged_into and key not in found and key not in on_chain:
            chain.append(key)
            on_chain.add(key)
            key = merged_into[key]
        end = None if key in on_chain else found.get(key, key)
        found.update(dict.fromkeys(chain, end))
    return found


def resolve(spark: SparkSession, state: DeltaTable, settings: LakeSettings, topic: Topic) -> None:
    """Bring `resolved_id` of a state table up to date with its rows; replay-safe."""
    key, into = topic.key_columns[0], snake_case(topic.merged_into or "")
    table = DirectTable(state_table(topic), settings)
    merged = table.rows([key, into, "resolved_id"], f"{into} IS NOT NULL")
    ends = survivors({row[key]: row[into] for row in merged})
    wrong = [(row[key], ends[row[key]]) for row in merged if row["resolved_id"] != ends[row[key]]]
    _warn_of_cycles(topic, (k for k, end in wrong if end is None))
    if wrong:
        schema = state.toDF().select(key, "resolved_id").schema
        source = spark.createDataFrame(wrong, schema)
        merge = state.alias("t").merge(source.alias("s"), match([key]))
        merge.whenMatchedUpdate(set={"resolved_id": "s.resolved_id"}).execute()


def _warn_of_cycles(topic: Topic, keys: Iterable[Any]) -> None:
    found = sorted(keys)
    if found:
        log.warning(
            "merged in a cycle: no key survives, resolved_id is NULL",
            topic=topic.name,
            keys=found[:10],
            count=len(found),
        )
