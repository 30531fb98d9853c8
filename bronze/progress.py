"""How far bronze has come in its topics, read from the checkpoint and the broker; no Spark."""

from dataclasses import dataclass

from bronze.admin import PulsarAdmin
from bronze.checkpoint import last_commit, source_offsets
from bronze.offsets import Offset, from_json
from bronze.options import PulsarOptions
from bronze.planning import Planner
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
    return from_json(source_offsets(file.read_text())["0"]) if file else {}


def topic_lag(admin: PulsarAdmin, settings: LakeSettings, topic: str) -> Lag:
    """How far what readers can see is ahead of bronze.

    Raises:
        BrokerError: the broker does not answer, or has no such topic.
    """
    name = settings.full_topic(topic)
    planner = Planner(PulsarOptions.parse({**settings.connection.options(), "topic": name}), admin)
    last = planner.last_positions()
    landed = {n: p for n, p in committed_offset(settings, topic).items() if n in last}
    counts = (planner.waiting(landed, last), planner.waiting({}, landed))
    return Lag(*(sum(entries for entries, _ in each.values()) for each in counts))
