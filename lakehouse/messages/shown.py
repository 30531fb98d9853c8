"""Shows messages to people and to programs: the payload as JSON, as text, or else in base64."""

from __future__ import annotations

import base64
import datetime as dt
import json
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from lake.topics.field_type import FieldType
from lake.topics.nested import Tree
from pulsar_spark.broker.admin import PulsarAdmin
from silver.records.by_schema import PayloadError, Schema, schema_of, text_of

if TYPE_CHECKING:
    from lake.settings.settings import LakeSettings
    from lake.topics.topic import Topic
    from lakehouse.messages.consume import Received

COLUMNS = ("partition", "key", "publish time (UTC)", "event time (UTC)", "payload")
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
TOMBSTONE = "(tombstone)"


class Content(NamedTuple):
    """A decoded payload. `note` says why it is not JSON, if a schema was to decode it."""

    form: Literal["json", "text", "base64"]
    text: str
    note: str = ""


class Decoder:
    """Decodes the payloads of a topic.

    settings: the address of the broker, which is asked for schemas when a message needs one.
    address: the full name of the topic on the broker.
    topic: its declaration; None if it is not declared.
    """

    def __init__(self, settings: LakeSettings, address: str, topic: Topic | None) -> None:
        self._settings = settings
        self._name = address
        self._form = topic.format if topic else "json"
        self._values = topic.values if topic else ["value"]
        self._tree: Tree = topic.payload_tree if topic else {"value": FieldType("")}
        self._schemas: dict[int, Schema] = {}

    def content(self, payload: bytes, version: int | None) -> Content:
        """Decode a payload, which is not empty, with the version of its schema.

        Never raises an error for a payload: what cannot be decoded is shown in base64.
        """
        if self._form == "bytes":
            return _base64(payload)
        note = ""
        if self._form != "registry" and (text := _as_json(payload)):
            return Content("json", text)
        if version is not None:
            try:
                schema = schema_of(self._known(version), version)
                text, _ = text_of(payload, schema, self._values, tree=self._tree)
                return Content("json", _one_line(text))
            except PayloadError as error:
                note = f"schema version {version}: the payload {error}"
        elif self._form == "registry" and (text := _as_json(payload)):
            return Content("json", text, "published without a schema")
        try:
            return Content("text", payload.decode(), note)
        except UnicodeDecodeError:
            return _base64(payload, note)

    def cells(self, message: Received) -> list[str]:
        """The cells of a message in a table with the columns `COLUMNS`."""
        text = TOMBSTONE
        if message.payload is not None:
            form, text, note = self.content(message.payload, message.version)
            text = f"base64 {text}" if form == "base64" else text
            text = f"{text} ({note})" if note else text
        return [
            str(message.partition) if message.partition >= 0 else "",
            message.key or "",
            _plain(message.publish_ms),
            _plain(message.event_ms) if message.event_ms else "",
            text,
        ]

    def line(self, message: Received) -> str:
        """A message as one line of JSON. A payload in JSON keeps all digits of its numbers."""
        fields: dict[str, Any] = {
            "partition": message.partition,
            "position": ":".join(map(str, message.position)),
            "key": message.key,
            "publish_time": instant(message.publish_ms),
            "event_time": instant(message.event_ms) if message.event_ms else None,
        }
        payload = "null"
        if message.payload is not None:
            form, payload, note = self.content(message.payload, message.version)
            fields |= {} if form == "json" else {"encoding": form}
            fields |= {"note": note} if note else {}
            payload = payload if form == "json" else json.dumps(payload, ensure_ascii=False)
        return f'{json.dumps(fields, ensure_ascii=False)[:-1]}, "payload": {payload}}}'

    def _known(self, version: int) -> dict[int, Schema]:
        if version not in self._schemas:
            with PulsarAdmin(self._settings.connection) as admin:
                found = admin.schemas(self._name)
            self._schemas |= {x["version"]: Schema(x["type"], x.get("data", "")) for x in found}
        return self._schemas


def instant(milliseconds: int) -> str:
    """An instant as ISO 8601 in UTC, or the milliseconds if it is not in the years 1 to 9999."""
    try:
        return (EPOCH + dt.timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")
    except OverflowError:
        return str(milliseconds)


def _plain(milliseconds: int) -> str:
    return instant(milliseconds).removesuffix("+00:00").replace("T", " ")


def _as_json(payload: bytes) -> str | None:
    try:
        text = payload.decode()
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return _one_line(text)


def _refuse(constant: str) -> None:
    raise ValueError(constant)  # Python accepts NaN and Infinity, which JSON does not have


def _one_line(text: str) -> str:
    """A JSON text without line breaks, which are only ever between its tokens."""
    return " ".join(text.split("\n")).replace("\r", " ").strip()


def _base64(payload: bytes, note: str = "") -> Content:
    return Content("base64", base64.b64encode(payload).decode(), note)
