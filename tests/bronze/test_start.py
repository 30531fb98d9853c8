"""Tests where landing begins: at the declared start, once, and nothing after it is skipped."""

import datetime as dt
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from topic import LiveTopic, Outgoing, landed

from bronze import ingest, landing
from bronze.ingest import subscription
from bronze.lag import topic_lag
from bronze.start import NAME, starting_position
from lake.streams.checkpoint import checkpoint_id
from lake.tables.lake import Lake
from lake.topics.topic_file import TopicFile
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.errors import CheckpointError, SettingsError


def begin_at(topic: LiveTopic, start: str) -> None:
    declared = topic.topics.topics["orders"].model_copy(update={"start": start})
    topic.topics = TopicFile(topics={"orders": declared})


def waiting(topic: LiveTopic) -> tuple[int, int]:
    """Return the entries that have not landed, and those that have."""
    with PulsarAdmin(topic.settings.connection) as admin:
        lag = topic_lag(admin, Lake(topic.settings, topic.topics), "orders")
    return lag.entries, sum(lag.landed.values())


def numbered(*numbers: int) -> list[Outgoing]:
    return [Outgoing(str(n).encode(), key=f"k{n}") for n in numbers]


def numbers(topic: LiveTopic) -> list[int]:
    return sorted(int(row.payload or b"") for row in landed(topic))


def test_latest_is_decided_once_even_if_nothing_lands_at_first(
    topic: LiveTopic, land: Callable[[], None]
) -> None:
    begin_at(topic, "latest")
    topic.send(numbered(*range(10)))
    assert waiting(topic) == (0, 0)
    land()
    assert numbers(topic) == []
    topic.send(numbered(10, 11, 12, 13, 14))
    assert waiting(topic) == (5, 0)
    topic.create(partitions=3)
    land()
    assert numbers(topic) == [10, 11, 12, 13, 14]
    assert waiting(topic) == (0, 5)
    begin_at(topic, "earliest")
    topic.send(numbered(15))
    land()
    assert numbers(topic) == [10, 11, 12, 13, 14, 15], "a later change of start changes nothing"
    begin_at(topic, "latest")
    topic.send(numbered(16))
    land()
    assert numbers(topic) == [10, 11, 12, 13, 14, 15, 16]


def test_a_first_batch_that_is_repeated_begins_where_it_began(
    topic: LiveTopic, land: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies in the first batch, for which Spark stores no beginning."""
    topic.send(numbered(0, 1))
    begin_at(topic, "latest")

    def decide(*args: Any) -> str:
        start = starting_position(*args)
        topic.send(numbered(2, 3, 4))
        return start

    def die(*_: object) -> None:
        message = "killed"
        raise RuntimeError(message)

    with monkeypatch.context() as patch:
        patch.setattr(ingest, "starting_position", decide)
        patch.setattr(landing.Landing, "_append", die)
        with pytest.raises(Exception, match="killed"):
            land()
    topic.send(numbered(5))
    land()
    land()
    assert numbers(topic) == [2, 3, 4, 5]
    with PulsarAdmin(topic.settings.connection) as admin:
        mine = subscription(str(checkpoint_id(topic.settings, "bronze.orders")))
        assert all(admin.subscription(each, mine) for each in admin.partitions(topic.name))


def test_an_instant_lands_what_was_published_at_it_or_later(
    topic: LiveTopic, land: Callable[[], None]
) -> None:
    topic.send(numbered(*range(8)))
    sent = time.time()
    while time.time() < sent + 0.002:  # publish times are in milliseconds
        pass
    begin_at(topic, dt.datetime.now(dt.timezone.utc).isoformat())
    topic.send(numbered(*range(8, 12)))
    assert waiting(topic) == (4, 0)
    land()
    assert numbers(topic) == [8, 9, 10, 11]
    assert waiting(topic) == (0, 4)


def test_an_instant_that_has_not_come_and_a_torn_decision_are_refused(
    topic: LiveTopic, land: Callable[[], None]
) -> None:
    begin_at(topic, "2999-01-01T00:00:00Z")
    with pytest.raises(SettingsError, match="2999-01-01T00:00:00Z', which has not come yet"):
        land()
    assert waiting(topic) == (0, 0)
    begin_at(topic, "latest")
    land()
    file = Path(topic.settings.checkpoint_path("bronze.orders")) / NAME
    file.write_text(file.read_text()[:-1])
    with pytest.raises(CheckpointError, match=f"{NAME} is empty or torn"):
        land()
