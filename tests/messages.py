"""What a producer sends: builders of the shop's messages, with ids and defaults that are valid."""

import json
from typing import Any


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
