"""Tests all of silver with thousands of random messages, compared with plain Python.

Values of every type, including odd ones, are sent with every kind of key, in any order, to topics
of all kinds whose number of partitions has changed. They arrive in batches of any size, one of
them twice. `make nightly` sends many times as many.
"""

import datetime as dt
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from model import Message, Position
from odd_values import TOKENS
from pyspark.sql import SparkSession
from silver_lake import SilverLake
from topic import declared
from types_model import RefusedError, read_json, value_of, value_of_key

from lake.streams.checkpoint import newest_file
from silver.refine import QUERY

ROUNDS = int(os.environ.get("TEST_ROUNDS", "1"))
MESSAGES = 1_200 if ROUNDS > 1 else 400  # of each topic in a round
TIMES = [None, *(dt.datetime(2026, 1, 1, 0, n, tzinfo=dt.timezone.utc) for n in range(3))]
TYPES = {  # of the fields, each with a valid value
    "flag": ("boolean", "true"),
    "small": ("int", "7"),
    "large": ("long", "8"),
    "ratio": ("double", "0.5"),
    "price": ("decimal(12,2)", "13.75"),
    "name": ("string", '"Ada"'),
    "raw": ("binary", '"AAEC"'),
    "day": ("date", '"2026-01-05"'),
    "at": ("timestamp", '"2026-01-05T12:30:00Z"'),
    "ms": ("timestamp_ms", "1767616200000"),
}
FIELDS = "\n".join(
    f'{n} = {{ type = "{kind}", required = false }}' for n, (kind, _) in TYPES.items()
)
KEYS = {"shop": "string", "id": "int"}
TOPIC = """
[topics.{name}]
kind = "{kind}"
key = ["shop", "id"]
{options}
[topics.{name}.fields]
shop = "string"
id = "int"
{own}
{fields}
"""
BY_SEQUENCE = 'sequence = ["seq"]\ndelete = { field = "op", equals = "d" }'
SEQUENCE = 'seq = "long"\nop = { type = "string", required = false }'
PATH = 'lsn = { type = "long", path = "source.lsn" }'
TOPICS = "".join(
    TOPIC.format(name=name, kind=kind, options=options, own=own, fields=FIELDS)
    for name, kind, options, own in (
        ("whole", "changelog", "", ""),
        ("partial", "changelog", 'updates = "partial"', ""),
        (
            "ordered",
            "changelog",
            'sequence = ["seq"]\ndelete = { field = "op", equals = "d" }',
            SEQUENCE,
        ),
        ("rows", "changelog", 'envelope = "debezium"\nsequence = ["lsn"]', PATH),
        ("facts", "events", 'event_time = "at"', ""),
    )
)
Key = tuple[str, int]
Values = dict[str, Any]


class Read(NamedTuple):
    """The content of a message.

    order: the message with the highest order wins. values: None if the message deletes its key.
    """

    key: Key
    order: tuple[Any, ...]
    values: Values | None


class Producer:
    """Sends random messages to the topics."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._entries = iter(self._rng.sample(range(100_000), 100_000))

    def messages(self, topic: str) -> list[Message]:
        rng, found = self._rng, []
        for _ in range(MESSAGES):
            place = Position(
                rng.randint(1, 3), next(self._entries), 0, rng.randint(0, 2), rng.choice(TIMES)
            )
            shop, id_ = rng.choice(["x", "y", "a|b"]), rng.randint(0, 40)
            key = rng.choice([f"{shop}|{id_}"] * 6 + [None, shop, f"{shop}|{id_}|", f"|{id_}"])
            payload = self._payload(topic, shop, id_)
            found.append(Message(topic, place, key, payload))
        return found

    def _payload(self, topic: str, shop: str, id_: int) -> bytes | None:
        rng = self._rng
        kind = rng.random()
        if kind < 0.08:
            return rng.choice([b"", None])
        if kind < 0.12:
            return rng.choice([b"{", b"[1]", b"7", b'{"id": 1} x', b"\xff{}", b"null", b'"text"'])
        names = rng.sample([*TYPES], rng.randint(1, len(TYPES)))
        row = {n: TYPES[n][1] if rng.random() < 0.97 else rng.choice(TOKENS) for n in names}
        row = {"shop": json.dumps(shop), "id": str(id_), **row}
        if topic == "ordered":
            row["seq"] = rng.choice([*map(str, range(5)), "null", '"1"'])
            row["op"] = rng.choice(['"d"', '"u"', "null"])
        text = _object(row)
        if topic == "rows":
            op = rng.choice(["c", "u", "r", "d", "x"])
            sides = {"before": text, "after": "null"} if op == "d" else {"after": text}
            source = _object({"lsn": str(rng.randint(0, 5))})
            text = _object({"op": json.dumps(op), **sides, "source": source})
        return text.encode("utf-8", "surrogatepass")


def _object(members: dict[str, str]) -> str:
    return f"{{{', '.join(f'{json.dumps(name)}: {value}' for name, value in members.items())}}}"


def read(message: Message) -> Read:
    """Return what silver must read in a message.

    Raises:
        RefusedError: the message must be quarantined.
    """
    topic, place = message.topic, message.position.order
    if not message.payload:
        if topic in ("facts", "ordered"):
            raise RefusedError(message)
        return Read(_key_of(message.key), (-1, *place) if topic == "rows" else place, None)
    try:
        content = read_json(message.payload.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RefusedError(message) from error
    if not isinstance(content, dict):
        raise RefusedError(message)
    deletes, order = False, place
    if topic == "rows":
        op = content.get("op")
        if op not in ("c", "u", "r", "d"):
            raise RefusedError(message)
        deletes, order = op == "d", (value_of("long", content["source"]["lsn"]), *place)
        content = content["before" if deletes else "after"]
    if topic == "ordered":
        sequence = value_of("long", content.get("seq"))
        if sequence is None:
            raise RefusedError(message)
        order, deletes = (sequence, *place), content.get("op") == "d"
    key = value_of("string", content.get("shop")), value_of("int", content.get("id"))
    if None in key:
        raise RefusedError(message)
    values = {name: value_of(TYPES[name][0], content[name]) for name in TYPES if name in content}
    if topic != "partial":
        values = dict.fromkeys(TYPES) | values
    return Read(key, order, None if deletes else values)


def _key_of(text: str | None) -> Key:
    parts = [] if text is None else text.split("|")
    if len(parts) != len(KEYS):
        raise RefusedError(text)
    shop, id_ = (value_of_key(kind, part) for kind, part in zip(KEYS.values(), parts, strict=True))
    if shop is None or id_ is None:
        raise RefusedError(text)
    return shop, id_


def rows(topic: str, reads: list[Read]) -> dict[Key, Values | None]:
    """Return the rows by definition: the content of each key's message with the highest order."""
    found: dict[Key, Values | None] = {}
    for each in sorted(reads, key=lambda each: each.order):
        if topic == "partial":
            before = found.get(each.key) or {}
            now = None if each.values is None else {**before, **each.values}
            found[each.key] = now
        else:
            found[each.key] = each.values
    if topic == "partial":
        return {key: each and dict.fromkeys(TYPES) | each for key, each in found.items()}
    return found


def cuts(messages: list[Message], rng: random.Random) -> Iterator[list[Message]]:
    end = rng.randrange(1, len(messages))
    yield messages[:end]
    yield messages[end:]


@pytest.mark.timeout(300 + 120 * ROUNDS)
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_silver_and_plain_python_agree_on_random_messages(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    lake, rng = (
        SilverLake(spark, tmp_path / "lake", declared(tmp_path, TOPICS)),
        random.Random(seed),
    )
    producer = Producer(seed)
    sent = {name: producer.messages(name) for name in lake.topics.topics}
    for batch in zip(*(cuts(each, rng) for each in sent.values()), strict=True):
        for each in batch:
            lake.put(each)
        lake.refine()
    commit = newest_file(Path(lake.settings.checkpoint_path(QUERY)) / "commits")
    assert commit is not None
    commit.unlink()  # as a kill leaves it: the batch is repeated
    lake.refine()
    refused = set()
    for topic, messages in sent.items():
        reads = []
        for message in messages:
            try:
                reads.append(read(message))
            except RefusedError:
                refused.add((topic, message.position))
        name = f"enriched_{topic}" if topic == "facts" else f"{topic}_state"
        found = {}
        for row in lake.table(name).toArrow().to_pylist():
            values = {n: row[n] for n in TYPES}
            found[row["shop"], row["id"]] = None if row.get("is_deleted") else values
        assert found == rows(topic, reads), topic
    assert lake.quarantined() == refused
    assert len(refused) > MESSAGES // 2
