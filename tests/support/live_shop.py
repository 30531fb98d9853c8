"""A producer that keeps publishing the shop's messages while a test does other things."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any

from messages import item, order, user
from model import LakeModel, Message, Position
from shop_lake import ShopLake

from lake.streams.supervisor import Stream
from lakehouse.messages.publish import create_topics

DEADLINE_SECONDS = 300


def until(condition: Callable[[], bool], what: str, seconds: int = DEADLINE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"timed out after {seconds} s, waiting for {what}"
        threading.Event().wait(0.1)


def shop_message(rng: random.Random, number: int) -> tuple[str, str, bytes]:
    """Return topic, key and payload of the n-th message; the first 16 are users and items."""
    kind = rng.choice(["users", "items", "orders", "orders"])
    key = rng.randrange(8)
    if number < 16:  # so that every line finds its user and item in the end
        kind, key = ["users", "items"][number % 2], number // 2
    payload = {
        "users": lambda k, n: user(k, lastName=f"v{n}"),
        "items": lambda k, n: item(k, price=n),
        "orders": lambda k, n: order(n // 3, n, k, (k + n) % 8),
    }[kind](key, number)
    return kind, str(number // 3 if kind == "orders" else key), payload


class LiveShop:
    """Publishes users, items and orders one by one, in order within each key, until stopped.

    It records every message with its position, so that the model can compute the expected tables.
    """

    def __init__(self, lake: ShopLake) -> None:
        self._lake = lake
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._publish)
        self._sent: list[Message] = []

    def __enter__(self) -> "LiveShop":
        create_topics(self._lake.lake)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def stop(self) -> list[Message]:
        """Stop publishing and return all messages sent."""
        self.__exit__()
        return self._sent

    @property
    def count(self) -> int:
        return len(self._sent)

    def _publish(self) -> None:
        rng = random.Random(11)
        client = self._lake.settings.connection.client()
        producers = {
            name: client.create_producer(self._lake.settings.full_topic(name))
            for name in ("users", "items", "orders")
        }
        number = 0
        while number < 16 or not self._stop.wait(0.02):
            kind, key, payload = shop_message(rng, number)
            place = producers[kind].send(payload, partition_key=key)
            position = Position(
                place.ledger_id(), place.entry_id(), max(place.batch_index(), 0), place.partition()
            )
            self._sent.append(Message(kind, position, key, payload))
            number += 1
        client.close()


def assert_right(lake: ShopLake, sent: list[Message]) -> None:
    """Check that each message has been processed once.

    Looked-up rows and positions are not compared: the version of a user that an order gets depends
    on when the order was refined.
    """
    model = LakeModel()
    model.batch(sent)
    for topic in ("users", "items"):
        assert lake.current(topic) == model.current(topic)
    for topic in lake.topics.topics:
        rows = lake.table(topic, "bronze").count()
        assert rows == sum(m.topic == topic for m in sent), topic

    def facts(lines: dict[tuple[int, int], dict[str, Any]]) -> dict[tuple[int, int], Any]:
        looked_up = ("user", "item", "user_position", "item_position")
        return {
            key: ({n: v for n, v in line.items() if n not in looked_up}, line["user"]["id"])
            for key, line in lines.items()
        }

    assert facts(lake.enriched()) == facts(model.enriched)
    assert lake.quarantined() == set()
    assert lake.audited(condition="silver_batch >= 0").total() == len(sent)


@contextmanager
def kept(streams: list[Stream]) -> Iterator[None]:
    """Keep streams running during the block, and check that none was given up."""
    stop = Event()
    with ThreadPoolExecutor(len(streams)) as pool:
        endings = [pool.submit(each.keep, stop) for each in streams]
        try:
            yield
        finally:
            stop.set()
    assert [each.exception() for each in endings] == [None] * len(streams)
