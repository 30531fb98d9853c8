"""Tests how far bronze is behind its topics."""

from collections.abc import Callable

from topic import LiveTopic, some

from bronze.lag import topic_lag
from lake.tables.lake import Lake
from pulsar_spark.broker.admin import PulsarAdmin


def test_lag_counts_messages_that_have_not_landed(
    topic: LiveTopic, land: Callable[[], None]
) -> None:
    def lag() -> int:
        with PulsarAdmin(topic.settings.connection) as admin:
            return topic_lag(admin, Lake(topic.settings, topic.topics), "orders").messages(20)

    topic.send(some(20))
    assert lag() == 20
    land()
    assert lag() == 0
    topic.send(some(7))
    assert lag() == 7
