"""How far bronze has come in its topics, read from the checkpoint and the broker; no Spark."""

import json
from dataclasses import dataclass

from bronze.admin import PulsarAdmin
from bronze.checkpoint import last_commit, source_offsets
from bronze.offsets import START, Offset, from_json
from bronze.settings import LakeSettings


@dataclass(frozen=True)
class Lag:
    """What is not landed yet of a topic.

    entries: by ledger statistics, exact. A batched entry holds several messages.
    """

    entries: int
    landed_entries: int

    def messages(self, landed_messages: int) -> int:
        """The lag in messages: exact when it is 0, else by the mean batch size so far."""
        if self.entries == 0 or self.landed_entries == 0:
            return self.entries
        return round(self.entries * max(landed_messages / self.landed_entries, 1))


def committed_offset(settings: LakeSettings, topic: str) -> Offset:
    """The offset of the last finished batch of a topic's query; empty if there is none."""
    file = last_commit(settings, f"bronze.{topic}")
    return {} if file is None else from_json(json.loads(source_offsets(file)[topic]))


def topic_lag(admin: PulsarAdmin, settings: LakeSettings, topic: str) -> Lag:
    """How far the broker is ahead of bronze.

    Raises:
        BrokerError: the broker does not answer, or has no such topic.
    """
    offset = committed_offset(settings, topic)
    behind = landed = 0
    for name in admin.partitions(f"persistent://{settings.pulsar_namespace}/{topic}"):
        position = offset.get(name, START)
        log = admin.log(name)
        entries = log.entries_behind(position)
        behind += entries
        landed += log.entries_behind(START) - entries
    return Lag(behind, landed)
