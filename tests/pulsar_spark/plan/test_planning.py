"""Tests which positions bound a batch, and how tasks divide it."""

import pytest
from java_client import JavaClient
from topic import LiveTopic, Outgoing, Sent

from lake.settings.settings import LakeSettings
from lakehouse.runtime.broker import Broker
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.eras import Era, Partitioning, Span
from pulsar_spark.errors import SettingsError
from pulsar_spark.offsets import START, Offset, Position
from pulsar_spark.options import PulsarOptions
from pulsar_spark.plan.planning import Planner


@pytest.fixture
def topic(broker: Broker, settings: LakeSettings) -> LiveTopic:
    return LiveTopic(settings, "planned", 2)


def planner(topic: LiveTopic, admin: PulsarAdmin, **options: str) -> Planner:
    given = {**topic.settings.connection.options(), "topic": topic.name, **options}
    return Planner(PulsarOptions.parse(given), admin)


def ends(topic: LiveTopic, sent: list[Sent]) -> Offset:
    """Return the last position of each partition."""
    found: Offset = {}
    for each in sent:
        name = f"{topic.name}-partition-{each.partition}"
        found[name] = max(Position(each.ledger, each.entry), found.get(name, START))
    return found


def test_the_last_positions_are_those_of_the_messages(topic: LiveTopic) -> None:
    with PulsarAdmin(topic.settings.connection) as admin:
        assert planner(topic, admin).last_positions() == {}
        sent = topic.send(Outgoing(b"x", key=str(n)) for n in range(9))
        assert planner(topic, admin).last_positions() == ends(topic, sent)


def test_partitions_share_a_limit_and_none_starves(topic: LiveTopic) -> None:
    """Each partition gets its share in entries; a later batch gets the rest."""
    sent = topic.send(Outgoing(bytes(100), key=str(n)) for n in range(40))
    counts = {n: sum(s.partition == n for s in sent) for n in (0, 1)}
    with PulsarAdmin(topic.settings.connection) as admin:
        plan = planner(topic, admin, maxMessagesPerTrigger="10")
        last, begun, batches = plan.last_positions(), dict[str, Position](), 0
        while begun != last:
            end = plan.limited(begun, last)
            waiting = plan.waiting(begun, end)
            assert sum(entries for entries, _ in waiting.values()) <= 11
            assert all(entries for name, (entries, _) in waiting.items() if end[name] != last[name])
            assert plan.estimate(begun, end).messages == sum(n for n, _ in waiting.values())
            begun, batches = end, batches + 1
        assert batches >= 4
        whole = plan.waiting({}, last)
    assert {int(name[-1]): entries for name, (entries, _) in whole.items()} == counts


def test_a_small_batch_is_one_task_and_a_large_one_is_split(topic: LiveTopic) -> None:
    topic.send(Outgoing(bytes(100_000), key="one") for _ in range(30))
    with PulsarAdmin(topic.settings.connection) as admin:
        plan = planner(topic, admin, maxBytesPerTask="1000000")
        last = plan.last_positions()
        [name] = last
        near = Position(last[name].ledger, last[name].entry - 3)
        [small] = plan.tasks({name: near}, last, {})
        assert [(each.after, each.until) for each in small.ranges] == [(near, last[name])]
        tasks = plan.tasks({}, last, {})
        ranges = [each for task in tasks for each in task.ranges]
    assert len(ranges) == len(tasks) == 4
    assert (ranges[0].after, ranges[-1].until) == (START, last[name])
    assert [r.until for r in ranges[:-1]] == [r.after for r in ranges[1:]]
    assert plan.tasks(last, last, {}) == []


def test_bounds_are_resolved_and_another_topics_partition_is_refused(topic: LiveTopic) -> None:
    sent = topic.send([Outgoing(b"x", key="one")])
    with PulsarAdmin(topic.settings.connection) as admin:
        plan = planner(topic, admin)
        assert plan.resolve("earliest") == {}
        assert plan.resolve("latest") == ends(topic, sent)
        assert {p.entry for p in plan.resolve(0).values()} == {-1}
        with pytest.raises(SettingsError, match="'elsewhere', which is not a partition of the top"):
            plan.resolve({"elsewhere": START})


def test_a_batch_never_ends_at_an_entry_that_readers_do_not_see(
    topic: LiveTopic, java: JavaClient
) -> None:
    """It ends neither at the mark of a transaction nor, if that was aborted, before the mark."""
    partition = f"{topic.name}-partition-0"
    producer = java.producer(partition)
    sent = producer.newMessage().value(b"plain").send()
    transaction = java.transaction()
    for number in range(3):
        producer.newMessage(transaction).value(f"{number}".encode()).send()
    transaction.abort().get()
    last = Position(sent.getLedgerId(), sent.getEntryId())
    with PulsarAdmin(topic.settings.connection) as admin:
        assert planner(topic, admin).last_positions() == {partition: last}


def test_a_topic_without_partitions_keeps_the_era_that_its_checkpoint_begins_with(
    topic: LiveTopic,
) -> None:
    """As after a restore on another broker, where positions begin again."""
    plain = f"{topic.name}-plain"
    client = topic.settings.connection.client()
    client.create_producer(plain).send(b"x")
    client.close()
    later = {plain: Partitioning(0, (Era(Span(7, 7), {}),))}
    with PulsarAdmin(topic.settings.connection) as admin:
        options = {**topic.settings.connection.options(), "topic": plain}
        plan = Planner(PulsarOptions.parse(options), admin)
        last = plan.last_positions()
        assert [*last] == [plain]
        assert plan.partitionings({}, {}) == {}
        assert plan.partitionings({}, later) == later
        [task] = plan.tasks({}, last, later)
        assert [each.order_times for each in task.ranges] == [Span(7, 7)]
