"""Builders of messages: of the shop's, with valid ids and defaults, and of any topic's."""

import json
from typing import Any

from model import Message, Position

PEOPLE_AND_VISITS = """
[topics.people]
kind = "changelog"
key = ["id"]
[topics.people.fields]
id = "int"
{people}

[topics.visits]
kind = "events"
key = ["id"]
[topics.visits.fields]
id = "int"
person = "int"
{visits}
[topics.visits.lookups]
visitor = {{ topic = "people", on = "person" }}
"""
"""Template of a topic file, to be formatted with additional fields for `people` and `visits`."""


def message(topic: str, entry: int, key: object, payload: bytes | None) -> Message:
    return Message(topic, Position(1, entry, 0, 0), str(key), payload)


def json_message(topic: str, entry: int, key: object = None, **fields: Any) -> Message:
    """Build a JSON message whose key is the field `id`, unless another key is given."""
    key = fields["id"] if key is None else key
    return message(topic, entry, key, json.dumps(fields).encode())


def user(user_id: int, **fields: Any) -> bytes:
    message = {
        "id": user_id,
        "firstName": "Ada",
        "lastName": "Lovelace",
        "emailAddress": f"user{user_id}@example.org",
        "createdAt": 1_400_000_000_000 + user_id,
        "deletedAt": -1,
        "mergedAt": -1,
        "parentUserId": -1,
    }
    return json.dumps({**message, **fields}).encode()


def item(item_id: int, **fields: Any) -> bytes:
    message = {
        "id": item_id,
        "createdAt": 1_361_536_172_000,
        "adjective": "fuzzy",
        "category": "dongle",
        "modifier": "",
        "name": "fuzzy dongle",
        "price": 15.0,
    }
    return json.dumps({**message, **fields}).encode()


def order(invoice_id: int, line_item_id: int, user_id: int, item_id: int, **fields: Any) -> bytes:
    message = {
        "invoiceId": invoice_id,
        "lineItemId": line_item_id,
        "userId": user_id,
        "itemId": item_id,
        "itemName": "fuzzy dongle",
        "itemCategory": "dongle",
        "price": 15.0,
        "createdAt": 1_489_876_693_000,
        "paidAt": 1_489_929_044_000,
    }
    return json.dumps({**message, **fields}).encode()
