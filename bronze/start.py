"""Where bronze begins to read a topic: decided once, when the topic is landed for the first time.

The decision is stored in the checkpoint before the query starts. Spark itself stores no offset
before the first batch is planned, and asks for the beginning again when it repeats that batch. By
then, `latest` would be a later position, and the messages before it would be skipped.
"""

import datetime as dt
import json
from pathlib import Path

from lake.durable import read_json, write_durably
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import TOGETHER, Checkpoint
from lake.tables.lake import Lake
from lake.topics.topic import Topic
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.errors import CheckpointError, SettingsError
from pulsar_spark.offsets import Offset, from_json, to_json
from pulsar_spark.options import PulsarOptions
from pulsar_spark.plan.planning import Planner

NAME = "lakehouse.start.json"


def starting_position(lake: Lake, topic: Topic, checkpoint: Checkpoint) -> str:
    """The option `startingPosition` of a topic's query, which has claimed its checkpoint.

    Raises:
        BrokerError: the position must be decided now, and the broker does not answer or does not
            have the topic.
        CheckpointError: the file with the decision is torn.
        SettingsError: the declared instant has not come yet.
    """
    address, folder = str(lake.address(topic.name)), Path(checkpoint.path)
    stored = _stored(folder, address)
    if stored is None and not checkpoint.has_started and topic.start != "earliest":
        _see_it_has_come(topic)
        with PulsarAdmin(lake.settings.connection) as admin:
            stored = _declared(admin, lake, topic)
        content = {"topic": address, "after": to_json(stored)}
        write_durably(folder / NAME, json.dumps(content))
    return "earliest" if stored is None else json.dumps(to_json(stored))


def begun(admin: PulsarAdmin, lake: Lake, topic: Topic, *, has_landed: bool) -> Offset:
    """The offset after which bronze reads a topic, or would if it started now.

    Args:
        admin: the broker.
        lake: the lake.
        topic: the topic.
        has_landed: whether a batch has landed. `start` is not considered any more then.

    Raises:
        BrokerError: the broker does not answer, or does not have the topic.
        CheckpointError: the file with the decision is torn.
    """
    stored = _stored(_folder(lake.settings, topic), str(lake.address(topic.name)))
    if stored is not None:
        return stored
    return {} if has_landed else _declared(admin, lake, topic)


def _stored(folder: Path, address: str) -> Offset | None:
    found = read_json(folder / NAME, TOGETHER, CheckpointError)
    return from_json(found["after"]) if found and found["topic"] == address else None


def _declared(admin: PulsarAdmin, lake: Lake, topic: Topic) -> Offset:
    """The offset that a declared start stands for at present."""
    if topic.start == "earliest":
        return {}
    bound = "startingPosition" if topic.start == "latest" else "startingTimestamp"
    given = {**lake.address(topic.name).options, bound: topic.start}
    options = PulsarOptions.parse({**lake.settings.connection.options(), **given})
    return Planner(options, admin).resolve(options.starting)


def _see_it_has_come(topic: Topic) -> None:
    """Check that a declared instant is in the past. Before, no position stands for it."""
    if topic.start == "latest":
        return
    instant = dt.datetime.fromisoformat(topic.start.replace("Z", "+00:00"))
    if instant > dt.datetime.now(dt.timezone.utc):
        message = (
            f"The topic {topic.name} has start = '{topic.start}', which has not come yet, so the "
            "position after which to read is unknown. Use an instant in the past, or 'latest'."
        )
        raise SettingsError(message)


def _folder(settings: LakeSettings, topic: Topic) -> Path:
    return Path(settings.checkpoint_path(f"bronze.{topic.name}"))
