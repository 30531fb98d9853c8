"""Measures how far bronze has read its topics, from the checkpoint and the broker without Spark."""

from collections.abc import Mapping
from dataclasses import dataclass

from bronze.start import begun
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import last_commit, source_offsets
from lake.tables.lake import Lake
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.offsets import OffsetJson, from_json
from pulsar_spark.options import PulsarOptions
from pulsar_spark.plan.planning import Planner


@dataclass(frozen=True)
class Lag:
    """The entries of a topic that have not landed yet. Exact, from ledger statistics.

    waiting: number of entries that have not landed, by topic partition.
    landed: number of landed entries that the broker still has, by topic partition. Entries before
        the declared start of a topic do not count.

    A batched entry holds several messages.
    """

    waiting: Mapping[str, int]
    landed: Mapping[str, int]

    @property
    def entries(self) -> int:
        """Number of entries that have not landed yet."""
        return sum(self.waiting.values())

    def messages(self, landed_messages: int) -> int:
        """The lag in messages: exact if it is 0, else estimated from the mean batch size so far.

        Args:
            landed_messages: the number of messages in the bronze table.
        """
        landed = sum(self.landed.values())
        if self.entries == 0 or landed == 0:
            return self.entries
        return round(self.entries * max(landed_messages / landed, 1))


def committed_offset(settings: LakeSettings, topic: str) -> OffsetJson:
    """The offset of the last finished batch of a topic's query; empty if there is none."""
    file = last_commit(settings, f"bronze.{topic}")
    return source_offsets(file.read_text())["0"] if file else {}


def topic_lag(admin: PulsarAdmin, lake: Lake, topic: str) -> Lag:
    """How far bronze is behind the messages that readers can see.

    Raises:
        BrokerError: the broker does not answer, or does not have the topic.
    """
    settings, read = lake.settings, lake.address(topic).options
    planner = Planner(PulsarOptions.parse({**settings.connection.options(), **read}), admin)
    last = planner.last_positions()
    committed = from_json(committed_offset(settings, topic))
    declared = lake.topics.topics[topic]
    start = begun(admin, lake, declared, has_landed=bool(committed))
    landed = {name: p for name, p in (start | committed).items() if name in last}
    counts = planner.waiting(landed, last), planner.waiting(start, landed)
    none = dict.fromkeys(planner.known_partitions, 0)
    return Lag(*(none | {name: entries for name, (entries, _) in each.items()} for each in counts))
