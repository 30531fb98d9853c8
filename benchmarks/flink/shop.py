"""The published messages and the expected rows, both computed from the order's number."""

import json
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pulsar
import pyarrow as pa

from benchmarks.silver import ITEMS, order
from lake.settings.settings import LakeSettings

LATE = 100  # one user in 100 is published after the orders

RESULT = (
    *("invoice_id", "line_item_id", "user_id", "item_id", "item_name", "item_category", "price"),
    *("created_ms", "user.id", "user.first_name", "user.last_name", "user.email_address"),
    *("user.created_ms", "item.id", "item.name", "item.category", "item.price"),
)


def user(n: int) -> dict[str, Any]:
    """The only message of user `n`."""
    return {
        "id": n,
        "firstName": "Ada",
        "lastName": f"v{n}",
        "emailAddress": f"user{n}@example.org",
        "createdAt": 1_700_000_000_000 + n,
        "deletedAt": -1,
        "mergedAt": -1,
        "parentUserId": -1,
    }


def item(n: int) -> dict[str, Any]:
    """The only message of item `n`."""
    return {
        "id": n,
        "createdAt": 1_700_000_000_000,
        "adjective": "old",
        "category": "tea",
        "modifier": "green",
        "name": f"tea {n}",
        "price": 3.25,
    }


def late(users: int) -> range:
    """The users that are published after the orders."""
    return range(users - users // LATE, users)


def fill(settings: LakeSettings, orders: int, users: int) -> None:
    """Publish all users but the late ones, then the items, then that many orders."""
    publish(settings, "users", user, range(late(users).start))
    publish(settings, "items", item, range(ITEMS))
    publish(settings, "orders", lambda n: order(n, users), range(orders))


def publish(
    settings: LakeSettings, topic: str, message: Callable[[int], dict[str, Any]], ids: Iterable[int]
) -> None:
    """Send messages to a topic as fast as the broker accepts them, batched and compressed."""
    client = settings.connection.client()
    producer = client.create_producer(
        settings.full_topic(topic),
        batching_enabled=True,
        batching_max_messages=1000,
        block_if_queue_full=True,
        max_pending_messages=20_000,
        compression_type=pulsar.CompressionType.LZ4,
    )
    for n in ids:
        producer.send_async(json.dumps(message(n)).encode(), None, partition_key=str(n))
    producer.flush()
    client.close()


def expected(orders: int, users: int) -> pa.Table:
    """The rows that the table must have in the end: each order with its user and item."""
    price = Decimal("3.25")
    rows = []
    for n in range(orders):
        made, buyer, thing = order(n, users), user(n * 7919 % users), item(n % ITEMS)
        rows.append(
            (
                *(made["invoiceId"], made["lineItemId"], made["userId"], made["itemId"]),
                *(made["itemName"], made["itemCategory"], price, made["createdAt"]),
                *(buyer["id"], buyer["firstName"], buyer["lastName"], buyer["emailAddress"]),
                *(buyer["createdAt"], thing["id"], thing["name"], thing["category"], price),
            )
        )
    columns = [pa.array(column) for column in zip(*rows, strict=True)]
    return pa.table(dict(zip(RESULT, columns, strict=True)))
