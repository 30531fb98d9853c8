"""Tests that every message the broker drops under a stream is detected, with no false alarms."""

import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from deltalake import DeltaTable
from java_client import JavaClient
from live_shop import until
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from topic import LiveTopic, Outgoing, Sent

from bronze.ingest import ingest
from bronze.landing import Landing
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import BatchSpan
from lake.streams.job import await_streams
from lake.tables.lake import Lake
from lakehouse.runtime.broker import Broker
from pulsar_spark.errors import DataLossError, LakehouseError
from pulsar_spark.options import PulsarOptions
from pulsar_spark.source import PulsarStreamReader

TRIGGERS = int(os.environ.get("TEST_TRIGGERS", "30"))
GUARD = "guard"
NONE_KEPT = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}

Place = tuple[int, int]


class Api:
    """The broker's admin API, called without our own client."""

    def __init__(self, settings: LakeSettings) -> None:
        self._url = f"{settings.pulsar_admin_url}/admin/v2"
        self._namespace = settings.pulsar_namespace

    def post(self, path: str, **content: Any) -> None:
        httpx.post(f"{self._url}/{path}", timeout=30, **content).raise_for_status()

    def of_namespace(self, policy: str, **content: Any) -> None:
        self.post(f"namespaces/{self._namespace}/{policy}", **content)

    def unload(self, partition: str) -> None:
        path = f"{self._url}/{partition.replace('://', '/')}/unload"
        httpx.put(path, timeout=30).raise_for_status()

    def stats(self, partition: str) -> dict[str, Any]:
        path = f"{self._url}/{partition.replace('://', '/')}/internalStats"
        found: dict[str, Any] = httpx.get(path, timeout=30).raise_for_status().json()
        return found

    def kept(self, partition: str, subscription: str = GUARD) -> Place:
        place = self.stats(partition)["cursors"][subscription]["markDeletePosition"]
        ledger, entry = map(int, place.split(":"))
        return ledger, entry


class Query:
    """Calls a stream reader in the same order as Spark, but reads batches in this process."""

    def __init__(self, topic: LiveTopic, losses: Path | None = None) -> None:
        self._options = {
            "serviceUrl": topic.settings.pulsar_url,
            "adminUrl": topic.settings.pulsar_admin_url,
            "topic": topic.name,
            "subscription": GUARD,
        }
        if losses:
            self._options |= {"failOnDataLoss": "false", "dataLossTable": str(losses)}
        self.payloads: list[bytes] = []
        self._reader = self._new_reader()
        self._stood = self._committed = self._reader.initialOffset()

    def _new_reader(self) -> PulsarStreamReader:
        return PulsarStreamReader(PulsarOptions.parse(self._options))

    def restart(self) -> None:
        """Continue from the same checkpoint with a new reader, as in another process."""
        self._reader.stop()
        self._reader = self._new_reader()

    def trigger(self, planned: Callable[[], object] = lambda: None) -> None:
        """Run one trigger; `planned` is called between planning a batch and reading it."""
        end = self._reader.latestOffset(self._stood, ReadAllAvailable())
        if end == self._stood:
            return
        if self._committed != self._stood:
            self._reader.commit(self._stood)
            self._committed = self._stood
        planned()
        for task in self._reader.partitions(self._stood, end):
            for rows in self._reader.read(task):
                self.payloads += rows.column("payload").to_pylist()
        self._stood = end

    def stop(self) -> None:
        self._reader.stop()


@pytest.fixture
def topic(broker: Broker, settings: LakeSettings) -> LiveTopic:
    return LiveTopic(settings, "facts", 1)


@pytest.fixture
def query(topic: LiveTopic) -> Iterator[Query]:
    running = Query(topic)
    yield running
    running.stop()


def numbered(first: int, end: int) -> list[Outgoing]:
    return [Outgoing(b"%04d" % number) for number in range(first, end)]


def skip_all(topic: LiveTopic, subscription: str = GUARD) -> None:
    path = f"{topic.name.replace('://', '/')}-partition-0/subscription/{subscription}/skip_all"
    Api(topic.settings).post(path)


def expire(topic: LiveTopic) -> None:
    """Expire messages, as the broker does every five minutes by default if there is a TTL."""
    api, partition = Api(topic.settings), f"{topic.name}-partition-0"
    path = f"{partition.replace('://', '/')}/subscription/{GUARD}/expireMessages/1"
    ledger, entry = map(int, api.stats(partition)["lastConfirmedEntry"].split(":"))

    def are_expired() -> bool:
        try:
            api.post(path)
        except httpx.HTTPStatusError as refused:  # while the broker itself expires messages
            if refused.response.status_code != httpx.codes.CONFLICT:
                raise
        return api.kept(partition) >= (ledger, entry)

    until(are_expired, "messages to expire")


def evict(topic: LiveTopic) -> None:
    api, partition = Api(topic.settings), f"{topic.name}-partition-0"
    before = api.kept(partition)
    quota = {"limitSize": 1, "limitTime": -1, "policy": "consumer_backlog_eviction"}
    api.of_namespace("backlogQuota", json=quota)
    until(lambda: api.kept(partition) > before, "the quota to evict messages")
    quota |= {"limitSize": 1 << 30}
    api.of_namespace("backlogQuota", json=quota)


def at(sent: Sent) -> str:
    return f"{sent.ledger}:{sent.entry}"


def losses(place: Path) -> list[tuple[str, str]]:
    """Return the recorded losses, sorted by position."""
    rows = DeltaTable(place).to_pyarrow_table().to_pylist()
    return sorted(((row["behind"], row["up_to"]) for row in rows), key=lambda pair: span(*pair))


def span(behind: str, up_to: str) -> tuple[Place, Place]:
    first, last = (tuple(map(int, each.split(":"))) for each in (behind, up_to))
    return (first[0], first[1]), (last[0], last[1])


@pytest.mark.parametrize(
    ("drop", "moment"),
    [
        (skip_all, "between two batches"),
        (expire, "between two batches"),
        pytest.param(evict, "between two batches", marks=pytest.mark.nightly),
        pytest.param(skip_all, "stopped", marks=pytest.mark.nightly),
        (expire, "a batch is planned and not done"),
    ],
)
def test_messages_dropped_while_a_stream_runs_stop_it(
    topic: LiveTopic, query: Query, drop: Callable[[LiveTopic], None], moment: str
) -> None:
    sent = topic.send(numbered(0, 10))
    query.trigger()
    sent += topic.send(numbered(10, 15))
    query.trigger()
    sent += topic.send(numbered(15, 20))

    def happens() -> None:
        drop(topic)
        if moment != "between two batches":
            query.restart()

    if moment != "a batch is planned and not done":
        happens()
        topic.send(numbered(20, 30))
    planned = happens if moment == "a batch is planned and not done" else lambda: None
    with pytest.raises(DataLossError, match=r"the broker has dropped them \(message TTL") as error:
        query.trigger(planned)
    up_to = "{}:{}".format(*Api(topic.settings).kept(f"{topic.name}-partition-0"))
    assert f"messages after {at(sent[14])} up to {up_to} were not read" in str(error.value)
    assert query.payloads == [b"%04d" % number for number in range(15)]


@pytest.mark.parametrize(
    "drop", [expire, *(pytest.param(drop, marks=pytest.mark.nightly) for drop in (skip_all, evict))]
)
def test_an_accepted_loss_covers_exactly_the_messages_that_do_not_land(
    topic: LiveTopic, tmp_path: Path, drop: Callable[[LiveTopic], None]
) -> None:
    """There are two losses, with batches before and after, restarts, and triggers without data."""
    query = Query(topic, tmp_path / "losses")
    sent, lost = topic.send(numbered(0, 5)), []
    query.trigger()
    for first in (5, 15):
        begun = sent[-1]
        sent += topic.send(numbered(first, first + 5))
        drop(topic)
        kept = Api(topic.settings).kept(f"{topic.name}-partition-0")
        lost += [(at(begun), "{}:{}".format(*kept))]
        if first == 5:
            query.trigger(query.restart)
        sent += topic.send(numbered(first + 5, first + 10))
        query.restart()
        query.trigger(query.restart)
        query.trigger()
    query.stop()
    assert losses(tmp_path / "losses") == lost
    ranges = [span(*pair) for pair in lost]
    landed = [
        each.payload
        for each in sent
        if not any(behind < each[1:3] <= up_to for behind, up_to in ranges)
    ]
    assert query.payloads == landed
    assert len(landed) < len(sent)


def test_a_loss_is_noticed_when_its_ledger_is_deleted(topic: LiveTopic, query: Query) -> None:
    """The broker then moves the subscription to the next ledger, as if everything had been read."""
    api, partition = Api(topic.settings), f"{topic.name}-partition-0"
    api.of_namespace("retention", json=NONE_KEPT)
    sent = topic.send(numbered(0, 10))
    query.trigger()
    sent += topic.send(numbered(10, 15))
    query.trigger()
    sent += topic.send(numbered(15, 20))
    query._reader.latestOffset(query._stood, ReadAllAvailable())  # noqa: SLF001 - a look
    skip_all(topic)
    api.unload(partition)
    until(lambda: api.stats(partition)["ledgers"][0]["ledgerId"] > sent[0].ledger, "its deletion")
    with pytest.raises(DataLossError, match=f"messages after {at(sent[14])} up to .*:-1 "):
        query.trigger()


@pytest.mark.parametrize("ttl", [0, 3600])
def test_deletion_of_a_ledger_that_was_read_is_a_loss_only_if_messages_expire(
    topic: LiveTopic, query: Query, ttl: int
) -> None:
    """After a restart the ledger's contents are unknown, but without TTL only read ones go."""
    api, partition = Api(topic.settings), f"{topic.name}-partition-0"
    api.of_namespace("retention", json=NONE_KEPT)
    sent = topic.send(numbered(0, 10))
    query.trigger()
    sent += topic.send(numbered(10, 11))
    query.trigger()
    query._reader.commit(query._stood)  # noqa: SLF001 - as before the next batch
    api.unload(partition)
    until(lambda: api.stats(partition)["ledgers"][0]["ledgerId"] > sent[0].ledger, "its deletion")
    assert api.kept(partition) > sent[-1][1:3]
    query.trigger()  # it has seen everything
    query.restart()
    topic.send(numbered(11, 12))
    if ttl:
        api.of_namespace("messageTTL", json=ttl)
        with pytest.raises(DataLossError, match=f"after {at(sent[-1])}"):
            query.trigger()
        return
    query.trigger()
    assert query.payloads == [b"%04d" % number for number in range(12)]


def test_dropped_ends_of_transactions_are_not_a_loss(
    topic: LiveTopic, query: Query, java: JavaClient
) -> None:
    producer = java.producer(f"{topic.name}-partition-0")
    for outcome in ("commit", "abort"):
        transaction = java.transaction()
        producer.newMessage(transaction).value(outcome.encode()).send()
        getattr(transaction, outcome)().get()
    api, partition = Api(topic.settings), f"{topic.name}-partition-0"
    until(lambda: api.stats(partition)["entriesAddedCounter"] >= 4, "the transaction markers")
    query.trigger()
    skip_all(topic)
    topic.send(numbered(0, 3))
    query.trigger()
    assert query.payloads == [b"commit", b"0000", b"0001", b"0002"]


def test_there_are_no_false_alarms(
    broker: Broker, settings: LakeSettings, java: JavaClient
) -> None:
    """Triggers run with transactions, chunks, empty partitions, unloads, crashes and restarts.

    Read messages are deleted at once, so ledgers come and go.
    """
    topic = LiveTopic(settings, "facts", 3)
    api = Api(settings)
    api.of_namespace("retention", json=NONE_KEPT)
    rng = random.Random(3)
    query, expected = Query(topic), []
    producer = java.producer(f"{topic.name}-partition-1")
    client = settings.connection.client()
    chunked = client.create_producer(f"{topic.name}-partition-1", chunking_enabled=True)
    for number in range(TRIGGERS):
        payload = b"%04d" % number
        match rng.choice(["plain", "batch", "commit", "abort", "chunks", "nothing", "unload"]):
            case "plain" | "batch" as kind:
                topic.send([Outgoing(payload, key="a")] * 5, batched=kind == "batch")
                expected += [payload] * 5
            case "commit" | "abort" as outcome:
                transaction = java.transaction()
                producer.newMessage(transaction).value(payload).send()
                getattr(transaction, outcome)().get()
                expected += [payload] if outcome == "commit" else []
            case "chunks":
                expected += [payload + bytes(6 << 20)]
                chunked.send(expected[-1])
            case "unload":
                for partition in range(3):
                    api.unload(f"{topic.name}-partition-{partition}")
        if rng.random() < 0.2:
            query.restart()
        query.trigger(query.restart if rng.random() < 0.1 else lambda: None)
    client.close()
    until(lambda: query.trigger() or len(query.payloads) >= len(expected), "all messages")
    query.stop()
    assert sorted(query.payloads) == sorted(expected)


@pytest.mark.parametrize("accepts", [False, True])
def test_a_spark_stream_notices_messages_dropped_between_two_batches(
    spark: SparkSession, topic: LiveTopic, monkeypatch: pytest.MonkeyPatch, accepts: bool
) -> None:
    sent = topic.send(numbered(0, 20))
    own = {"max_messages_per_trigger": 5, "trigger": "0 seconds", "accept_data_loss": accepts}
    topic.settings = topic.settings.model_copy(update=own)
    land, second, dropped = Landing.land, threading.Event(), threading.Event()

    def wait_in_the_second(self: Landing, batch: Any, span: BatchSpan) -> None:
        if span.id == 1:
            second.set()
            assert dropped.wait(60)
        land(self, batch, span)

    monkeypatch.setattr(Landing, "land", wait_in_the_second)
    [stream] = ingest(spark, Lake(topic.settings, topic.topics))
    assert second.wait(60)
    [subscription] = Api(topic.settings).stats(f"{topic.name}-partition-0")["cursors"]
    skip_all(topic, subscription)
    dropped.set()
    path = topic.settings.table_path("bronze", "facts")

    def landed() -> list[bytes]:
        return sorted(DeltaTable(path).to_pyarrow_table()["payload"].to_pylist())

    if accepts:
        sent += topic.send(numbered(20, 25))
        until(lambda: len(landed()) >= 15, "the rest to land")
        place = Path(topic.settings.table_path("bronze", "data_loss"))
        assert losses(place) == [(at(sent[9]), at(sent[19]))]
        stream.stop()
    else:
        with pytest.raises(LakehouseError, match=f"after {at(sent[9])} up to {at(sent[19])}"):
            await_streams([stream])
    expected = [*range(10), *range(20, 25)] if accepts else range(10)
    assert landed() == [b"%04d" % number for number in expected]
