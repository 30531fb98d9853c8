"""Tests silver on real Spark and Delta tables against the model after every run."""

import itertools
import random
from collections import Counter
from pathlib import Path

import pytest
from messages import item, message, order, user
from model import LakeModel, Message
from pyspark.sql import DataFrame, SparkSession
from silver_lake import PUBLISHED, SilverLake

from lake.streams.checkpoint import BatchSpan, source_offsets
from lake.tables import arrow
from lake.topics.topic_file import TopicFile
from pulsar_spark.schema import ENVELOPE_DDL
from silver.records import batch_stats
from silver.records.decode import Decoder
from silver.refine import Refinery, refine


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> SilverLake:
    return SilverLake(spark, tmp_path)


def assert_equal(lake: SilverLake, model: LakeModel) -> None:
    assert lake.current("users") == model.current("users")
    assert lake.current("items") == model.current("items")
    assert lake.enriched() == model.enriched
    assert lake.quarantined() == model.quarantined


def history(seed: int, length: int) -> list[Message]:
    """Return a random history of few keys.

    It has updates, deletes, resends, bad records, and orders before their user.
    """
    rng = random.Random(seed)
    found = []
    for entry in range(length):
        kind = rng.choice(["users", "users", "items", "orders", "orders", "orders"])
        key, poison = rng.randrange(6), rng.random() < 0.1
        if kind == "users":
            parent = rng.choice([-1, -1, rng.randrange(6)])
            name = f"v{entry}"
            payload = user(key, lastName=name, parentUserId=parent) if rng.random() < 0.8 else None
        elif kind == "items":
            payload = item(key, price=entry + 0.125) if rng.random() < 0.8 else b""
        else:
            payload = order(rng.randrange(5), key, rng.randrange(6), rng.randrange(6), price=entry)
        if poison:
            payload = rng.choice([b"{", b"[]", b"\xff", b'{"id": "x"}', (payload or b"{}")[:-9]])
        found.append(message(kind, entry, key, payload))
    return found


def test_any_batch_split_with_disorder_and_duplicates_gives_the_models_tables(
    lake: SilverLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds for small and large batches, in any sequence of the two (invariants 2 and 7).

    Small ones are written by delta-rs, or by Spark if files are large.
    """
    rng = random.Random(1)
    messages = [*history(1, 150), *(message("orders", 200 + m, 1, b"") for m in range(3))]
    cuts = [0, *sorted(rng.sample(range(1, len(messages)), 3)), len(messages)]
    batches = [messages[begin:end] for begin, end in itertools.pairwise(cuts)]
    model = LakeModel()
    limits = arrow.MOST_REWRITTEN, arrow.MOST_WITHOUT_VECTORS
    for number, small, (most, most_copied) in (
        (0, 1000, limits),
        (3, 0, limits),
        (2, 1000, (-1, -1)),
        (1, 1000, limits),
    ):
        monkeypatch.setattr(batch_stats, "FEW", small)
        monkeypatch.setattr(arrow, "MOST_REWRITTEN", most)
        monkeypatch.setattr(arrow, "MOST_WITHOUT_VECTORS", most_copied)
        monkeypatch.setattr(arrow, "REWRITTEN_FOR_EACH", 0)
        batch = batches[number]
        rng.shuffle(batch)
        lake.put(batch)
        lake.refine()
        model.batch(batch)
        assert_equal(lake, model)
    counted = [lake.audited(each) for each in ("applied", "superseded", "quarantined")]
    assert lake.audited() == sum(counted, Counter()) == model.messages
    assert lake.audited("quarantined") == Counter(topic for topic, _ in model.quarantined)
    assert lake.audited().keys() == {"users", "items", "orders"}


@pytest.mark.nightly
def test_a_topic_may_be_added_to_an_existing_lake(lake: SilverLake) -> None:
    """Its place in the file does not matter; the other topics continue where they were."""
    every, model = lake.topics, LakeModel()
    first, second = [message("users", 1, 0, user(0))], history(13, 40)[2:]
    lake.topics = TopicFile(topics={"users": every.topics["users"]})
    lake.put(first)
    lake.refine()
    model.batch(first)
    assert lake.current("users") == model.current("users")
    names = ("items", "users", "orders")
    lake.topics = TopicFile(topics={name: every.topics[name] for name in names})
    lake.put(second)
    lake.refine()
    model.batch(second)
    assert_equal(lake, model)
    assert lake.audited() == model.messages


def test_empty_bronze_tables_give_empty_silver_tables(lake: SilverLake) -> None:
    lake.refine()
    assert_equal(lake, LakeModel())
    lake.put([message("users", 1, 0, user(0))])
    lake.refine()
    assert set(lake.current("users")) == {0}


def test_silver_reads_no_snapshot_if_it_starts_before_anything_has_landed(
    lake: SilverLake,
) -> None:
    """Spark would take seconds to find that the snapshot is empty."""
    for name in lake.topics.topics:
        path = lake.settings.table_path("bronze", name)
        lake.spark.createDataFrame([], ENVELOPE_DDL).write.format("delta").mode("append").save(path)
    lake.refine()
    log = Path(lake.settings.checkpoint_path("silver")) / "offsets"
    begun = source_offsets((log / "0").read_text())
    assert begun.keys() == lake.topics.topics.keys()
    assert not any(offset["isStartingVersion"] for offset in begun.values())
    lines = [message("users", 1, 0, user(0)), message("orders", 1, 0, order(0, 0, 0, 0))]
    model = LakeModel()
    for line in lines:
        lake.put([line])
        model.batch([line])
        lake.refine()
    assert_equal(lake, model)


def test_a_batch_that_fails_and_is_replayed_changes_nothing_twice(
    lake: SilverLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 6: the batch fails before each step takes effect, and runs again after a restart.

    It is not the first batch, because Spark restarts with that one in a different way. In the end
    it runs twice, as if it had finished and only Spark's own commit was lost.
    """
    first, batch = (history(11, 60)[n : n + 30] for n in (0, 30))
    model = LakeModel()
    lake.put(first)
    lake.refine()
    lake.put(batch)

    def die(*_: object, **__: object) -> None:
        message = "killed here"
        raise RuntimeError(message)

    for step, small in (("_quarantine", 0), ("_write_audit", 1000)):
        monkeypatch.setattr(batch_stats, "FEW", small)
        with monkeypatch.context() as patch:
            patch.setattr(Refinery, step, die)
            with pytest.raises(Exception, match="killed here"):
                lake.refine()
    original = Refinery.refine

    def twice(self: Refinery, batch: DataFrame, span: BatchSpan) -> None:
        original(self, batch, span)
        original(self, batch, span)

    monkeypatch.setattr(Refinery, "refine", twice)
    lake.refine()
    for each in (first, batch):
        model.batch(each)
    assert_equal(lake, model)
    assert len(lake.rows("reconciliation", "silver_batch = 1")) == 3
    assert lake.audited().total() == 60
    assert lake.audited("quarantined").total() == len(model.quarantined)


def test_a_batch_that_lacks_messages_of_bronze_stops_the_job_and_is_not_audited(
    lake: SilverLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 7: messages are counted from bronze's log, not from the rows read."""
    lake.put(history(6, 20))
    lake.refine()
    books = lake.rows("reconciliation")
    lake.put([message("orders", 100 + entry, 1, b"{}") for entry in range(3)])
    decode = Decoder.rows
    with monkeypatch.context() as patch:
        patch.setattr(Decoder, "rows", lambda *args: decode(*args).where("position.entry <> 101"))
        with pytest.raises(Exception, match=r"Batch 1 of silver does not add up for topic orders"):
            lake.refine()
    assert lake.rows("reconciliation") == books
    lake.refine()
    assert lake.audited(condition="silver_batch = 1").total() == 3


def test_an_order_from_the_future_does_not_make_all_others_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    """If a producer's clock is wrong, the watermark does not pass the publish time."""
    lake = SilverLake(spark, tmp_path)
    [running] = refine(spark, lake.lake)
    published = round(PUBLISHED.timestamp() * 1000)
    for n, created in enumerate((9_999_999_999_999, published, published - 1)):
        lake.put([message("orders", n, n, order(n, 0, 0, 0, createdAt=created))])
        running.query.processAllAvailable()
    running.stop()
    booked = lake.rows("reconciliation", "topic = 'orders'")
    booked.sort(key=lambda row: row["silver_batch"])
    found = [(row["watermark"], row["late"]) for row in booked]
    assert found == [(PUBLISHED, 0), (PUBLISHED, 0), (PUBLISHED, 1)]


BIG = order(0, 0, 0, 0)
POISON = {
    "no number": BIG.replace(b"15.0", b"NaN"),
    "endless": BIG.replace(b"15.0", b"-Infinity"),
    "too large": BIG.replace(b"15.0", b"1e400"),
    "too many digits": BIG.replace(b"15.0", b"1" * 60),
    "exponent that fits": BIG.replace(b"15.0", b"1.5e1"),
    "a key twice": BIG.replace(b'"price": 15.0', b'"price": 15.0, "price": 16.0'),
    "a number as text": BIG.replace(b"15.0", b'"15.0"'),
    "a truth for a number": BIG.replace(b"15.0", b"true"),
    "byte order mark": b"\xef\xbb\xbf" + BIG,
    "half a character": BIG.replace(b"dongle", b"\xc3"),
    "half a surrogate": BIG.replace(b"dongle", b"\\ud800"),
    "a zero byte": BIG.replace(b"dongle", b"\\u0000"),
    "deep": b"[" * 20_000,
    "deep within": BIG.replace(b"15.0", b"[" * 5_000 + b"]" * 5_000),
    "unknown field": BIG.replace(b"{", b'{"unknown": {"a": [1]}, ', 1),
    "two objects": BIG + BIG,
    "a comment": b"/* */" + BIG,
    "single quotes": BIG.replace(b'"', b"'"),
    "year 10000": BIG.replace(b"1489876693000", b"253402300800000"),
    "before any calendar": BIG.replace(b"1489876693000", b"-99999999999999999"),
    "a date as text": BIG.replace(b"1489876693000", b'"0000-00-00"'),
    "beyond 64 bits": BIG.replace(b'"userId": 0', b'"userId": 9223372036854775808'),
    "a fraction as an id": BIG.replace(b'"userId": 0', b'"userId": 0.5'),
    "ten megabytes": BIG.replace(b"dongle", b"x" * 10_000_000),
}


def test_poison_messages_end_where_the_model_puts_them_and_nothing_stops(lake: SilverLake) -> None:
    batch = [
        message("orders", n, n, payload.replace(b'"invoiceId": 0', b'"invoiceId": %d' % n))
        for n, payload in enumerate(POISON.values())
    ]
    model = LakeModel()
    model.batch(batch)
    lake.put(batch)
    lake.refine()
    names = list(POISON)
    refused = {names[position.entry] for _, position in lake.quarantined()}
    assert refused == {names[position.entry] for _, position in model.quarantined}
    assert lake.enriched() == model.enriched
