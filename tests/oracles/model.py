"""The expected contents of bronze, silver and the audit tables for the shop, in plain Python.

Shares no code with the product. `Lake` takes the same batches of messages as the silver query and
holds the expected table contents after each batch. Rows are dictionaries of the table's columns.
"""

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any, NamedTuple

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
BEFORE_ALL = dt.datetime(1, 1, 1, tzinfo=dt.timezone.utc)


class Position(NamedTuple):
    ledger: int
    entry: int
    batch_index: int
    partition: int
    order_time: dt.datetime | None = None

    @property
    def order(self) -> tuple[Any, ...]:
        return self.order_time or BEFORE_ALL, *self[:4]


class Message(NamedTuple):
    topic: str
    position: Position
    key: str | None
    payload: bytes | None


class BadRecordError(Exception):
    pass


INTEGER, TEXT, MONEY, INSTANT = "integer", "text", "money", "instant"

FIELDS: dict[str, dict[str, tuple[str, str]]] = {
    "users": {
        "id": ("id", INTEGER),
        "firstName": ("first_name", TEXT),
        "lastName": ("last_name", TEXT),
        "emailAddress": ("email_address", TEXT),
        "createdAt": ("created_at", INSTANT),
        "deletedAt": ("deleted_at", INSTANT),
        "mergedAt": ("merged_at", INSTANT),
        "parentUserId": ("parent_user_id", INTEGER),
    },
    "items": {
        "id": ("id", INTEGER),
        "createdAt": ("created_at", INSTANT),
        "adjective": ("adjective", TEXT),
        "category": ("category", TEXT),
        "modifier": ("modifier", TEXT),
        "name": ("name", TEXT),
        "price": ("price", MONEY),
    },
    "orders": {
        "invoiceId": ("invoice_id", INTEGER),
        "lineItemId": ("line_item_id", INTEGER),
        "userId": ("user_id", INTEGER),
        "itemId": ("item_id", INTEGER),
        "itemName": ("item_name", TEXT),
        "itemCategory": ("item_category", TEXT),
        "price": ("price", MONEY),
        "createdAt": ("created_at", INSTANT),
        "paidAt": ("paid_at", INSTANT),
    },
}
MINUS_ONE_MEANS_NONE = {"deletedAt", "mergedAt", "parentUserId", "paidAt"}


def money(value: Any) -> Decimal:
    try:
        exact = Decimal(value)
        rounded = exact.quantize(Decimal("0.01"), rounding=ROUND_HALF_UP)
    except (InvalidOperation, TypeError, ValueError) as error:
        raise BadRecordError(value) from error
    if isinstance(value, bool) or not exact.is_finite() or abs(rounded) >= Decimal(10) ** 10:
        raise BadRecordError(value)
    return rounded


def instant(value: Any) -> dt.datetime:
    try:
        return EPOCH + dt.timedelta(milliseconds=value)
    except OverflowError as error:
        raise BadRecordError(value) from error


def typed(kind: str, value: Any) -> Any:
    if kind == TEXT:
        if not isinstance(value, str):
            raise BadRecordError(value)
        return value.encode("utf-8", "replace").decode()  # replaces unpaired surrogates
    if kind == MONEY:
        return money(value)
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**63:
        raise BadRecordError(value)
    return instant(value) if kind == INSTANT else value


def decode(topic: str, payload: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(payload.decode("utf-8"), parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise BadRecordError(payload) from error
    if not isinstance(fields, dict):
        raise BadRecordError(payload)
    row: dict[str, Any] = {}
    for name, (column, kind) in FIELDS[topic].items():
        value = fields.get(name)
        if value is None:
            raise BadRecordError(name)
        none = name in MINUS_ONE_MEANS_NONE and value == -1
        row[column] = None if none else typed(kind, value)
    return row


@dataclass
class LakeModel:
    """The expected contents of silver after the batches so far."""

    states: dict[str, dict[int, tuple[Position, dict[str, Any] | None]]] = field(
        default_factory=lambda: {"users": {}, "items": {}}
    )
    enriched: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    quarantined: set[tuple[str, Position]] = field(default_factory=set)
    messages: Counter[str] = field(default_factory=Counter)

    def batch(self, messages: Iterable[Message]) -> None:
        orders: list[tuple[Position, dict[str, Any]]] = []
        touched: dict[str, set[int]] = {"users": set(), "items": set()}
        for message in messages:
            self.messages[message.topic] += 1
            try:
                if message.topic == "orders":
                    orders.append((message.position, decode("orders", message.payload or b"")))
                else:
                    touched[message.topic].add(self._change(message))
            except BadRecordError:
                self.quarantined.add((message.topic, message.position))
        for position, row in orders:
            self._order(position, row)
        for row in self.enriched.values():
            if row["user_id"] in touched["users"] or row["item_id"] in touched["items"]:
                self._look_up(row)

    def current(self, topic: str) -> dict[int, dict[str, Any]]:
        rows = self.states[topic].items()
        return {key: self._as_known(topic, key) for key, (_, row) in rows if row is not None}

    def missing(self, lookup: str) -> set[tuple[int, int]]:
        return {key for key, row in self.enriched.items() if row[lookup] is None}

    def _change(self, message: Message) -> int:
        if message.payload:
            row: dict[str, Any] | None = decode(message.topic, message.payload)
            key = row["id"] if row else -1
        else:
            row = None
            try:
                key = int(message.key or "")
            except ValueError as error:
                raise BadRecordError(message.key) from error
        state = self.states[message.topic]
        if key not in state or message.position.order > state[key][0].order:
            state[key] = (message.position, row)
        return key

    def _order(self, position: Position, row: dict[str, Any]) -> None:
        key = (row["invoice_id"], row["line_item_id"])
        if key in self.enriched and self.enriched[key]["position"].order >= position.order:
            return
        empty = {"user": None, "user_position": None, "item": None, "item_position": None}
        self.enriched[key] = {**row, **empty, "position": position}
        self._look_up(self.enriched[key])

    def _look_up(self, row: dict[str, Any]) -> None:
        for name, topic in (("user", "users"), ("item", "items")):
            key = row[f"{name}_id"]
            if row[name] is None and key in self.states[topic]:
                position, found = self.states[topic][key]
                row[name] = {**self._as_known(topic, key), "is_deleted": found is None}
                row[f"{name}_position"] = position

    def _as_known(self, topic: str, key: int) -> dict[str, Any]:
        """Return the row of a key; a deleted row has only its key."""
        _, row = self.states[topic][key]
        columns = dict.fromkeys(column for column, _ in FIELDS[topic].values())
        known = row or {**columns, "id": key}
        return {**known, "resolved_id": self.survivor(key)} if topic == "users" else known

    def survivor(self, user: int) -> int | None:
        """Return the canonical key at the end of a merge chain, None if the chain is a cycle."""
        seen = set()
        while user not in seen:
            seen.add(user)
            _, row = self.states["users"].get(user, (None, None))
            if row is None or row["parent_user_id"] is None:
                return user
            user = row["parent_user_id"]
        return None
