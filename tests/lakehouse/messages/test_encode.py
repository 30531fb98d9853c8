"""Tests that CSV rows become the documented JSON messages."""

import json
from pathlib import Path
from typing import Any

import pytest
from topic import declared

from lake.settings.settings import SHOP_TOPICS
from lake.topics.topic import Topic
from lake.topics.topic_file import load_topics
from lakehouse.messages.encode import EncodeError, RowEncoder, RowError, epoch_ms, why_not_sent

TOPICS = load_topics(SHOP_TOPICS).topics
USER = {
    "id": "0",
    "created_at": "2015-08-16 23:27:30",
    "deleted_at": "",
    "email_address": 'a"b@example.org',
    "first_name": "Zoë",
    "last_name": "",
    "merged_at": "2015-08-17 00:00:00.5",
    "parent_user_id": "",
}
ORDER = {
    "invoice_id": "5",
    "line_item_id": "7",
    "user_id": "1",
    "item_id": "2",
    "item_name": "fuzzy dongle",
    "item_category": "dongle",
    "price": "13.750000000000002",
    "created_at": "2017-03-18 22:31:33",
    "paid_at": "",
}


def encoder(topic: str, row: dict[str, str]) -> RowEncoder:
    return RowEncoder(TOPICS[topic], list(row), "file.csv")


def test_a_user_has_minus_one_for_a_missing_value() -> None:
    message = encoder("users", USER).encode(USER, 2)
    assert message.key == "0"
    assert message.event_time_ms is None
    assert json.loads(message.value) == {
        "id": 0,
        "firstName": "Zoë",
        "lastName": "",
        "emailAddress": 'a"b@example.org',
        "createdAt": 1_439_767_650_000,
        "deletedAt": -1,
        "mergedAt": 1_439_769_600_500,
        "parentUserId": -1,
    }


def test_an_order_is_keyed_by_invoice_at_the_time_it_was_created() -> None:
    message = encoder("orders", ORDER).encode(ORDER, 2)
    assert message.key == "5"
    assert message.event_time_ms == 1_489_876_293_000
    assert b'"price":13.750000000000002,' in message.value, "a price keeps all its digits"
    assert json.loads(message.value)["paidAt"] == -1


def test_times_without_an_offset_are_utc() -> None:
    assert epoch_ms("1970-01-01 00:00:01") == 1000
    assert epoch_ms("1970-01-01T01:00:00+01:00") == 0
    assert epoch_ms("1969-12-31 23:59:59.999") == -1


@pytest.mark.parametrize(
    ("column", "cell", "says"),
    [
        ("invoice_id", "x", "file.csv:9: column 'invoice_id' has 'x', which is not a valid long"),
        ("price", "", "file.csv:9: column 'price' is empty"),
        ("price", "NaN", "'NaN', which is not a valid decimal(12,2)"),
        ("price", "true", "'true', which is not a valid decimal(12,2)"),
        ("created_at", "yesterday", "'yesterday', which is not a valid timestamp_ms"),
    ],
)
def test_an_invalid_cell_is_reported_with_its_location(column: str, cell: str, says: str) -> None:
    row = {**ORDER, column: cell}
    with pytest.raises(EncodeError) as error:
        encoder("orders", row).encode(row, 9)
    assert says in str(error.value)


def test_a_missing_column_is_reported_before_anything_is_sent() -> None:
    columns = {name: cell for name, cell in ORDER.items() if name != "price"}
    with pytest.raises(EncodeError, match="no column 'price' for field 'price' of topic 'orders'"):
        encoder("orders", columns)


@pytest.mark.parametrize(
    ("kind", "cell", "sent"),
    [
        ("timestamp_ms", "1500000000000", 1_500_000_000_000),
        ("timestamp", "2017-07-14T02:40:00+00:00", 1_500_000_000_000),
        ("date", "2017-07-14", 1_499_990_400_000),
        ("timestamp", "1969-12-31", None),
        ("timestamp_ms", "", None),
    ],
)
def test_the_event_time_is_sent_unless_it_is_absent_or_before_1970(
    kind: str, cell: str, sent: int | None
) -> None:
    row = {"id": "1", "at": cell}
    assert sales(kind, row).encode(row, 2).event_time_ms == sent


def test_a_field_that_is_no_time_is_refused_as_event_time() -> None:
    for cell in ("noon", "9" * 30):
        row = {"id": "1", "at": cell}
        with pytest.raises(
            RowError, match=f"file.csv:2: column 'at' has '{cell}'.*valid event time"
        ):
            sales("string", row).encode(row, 2)


def test_a_file_without_the_optional_event_time_has_none() -> None:
    assert sales("timestamp", {"id": "1"}).encode({"id": "1"}, 2).event_time_ms is None


def test_a_file_needs_the_column_of_the_message_key() -> None:
    fields: dict[str, Any] = {"id": "long", "who": {"type": "string", "required": False}}
    topic = Topic(name="sales", kind="events", key=["id"], message_key="who", fields=fields)
    with pytest.raises(EncodeError, match="no column 'who' for field 'who' of topic 'sales'"):
        RowEncoder(topic, ["id"], "file.csv")
    assert RowEncoder(topic, ["id", "who"], "f").encode({"id": "1", "who": "me"}, 2).key == "me"


def test_a_boolean_is_true_false_1_or_0() -> None:
    topic = Topic(name="t", kind="events", key=["id"], fields={"id": "boolean"})  # type: ignore[dict-item]
    encoder = RowEncoder(topic, ["id"], "file.csv")
    assert [encoder.encode({"id": c}, 2).value for c in ("TRUE", "0")] == [
        b'{"id":true}',
        b'{"id":false}',
    ]
    with pytest.raises(RowError, match="'yes', which is not a valid boolean. Correct the row, or"):
        encoder.encode({"id": "yes"}, 2)


def sales(kind: str, row: dict[str, str]) -> RowEncoder:
    fields: dict[str, Any] = {"id": "long", "at": {"type": kind, "required": False}}
    topic = Topic(name="sales", kind="events", key=["id"], event_time="at", fields=fields)
    return RowEncoder(topic, [*row], "file.csv")


def test_bytes_are_base64_in_the_file_as_in_the_message() -> None:
    fields: dict[str, Any] = {"id": "long", "photo": "binary"}
    topic = Topic(name="pictures", kind="events", key=["id"], fields=fields)
    encoder = RowEncoder(topic, ["id", "photo"], "file.csv")
    assert json.loads(encoder.encode({"id": "1", "photo": "AP8="}, 2).value)["photo"] == "AP8="
    with pytest.raises(EncodeError, match="'no!', which is not a valid binary"):
        encoder.encode({"id": "1", "photo": "no!"}, 3)


def test_fields_from_elsewhere_in_the_message_are_not_sent_in_the_payload() -> None:
    def part(kind: str, name: str, **more: Any) -> dict[str, Any]:
        return {"type": kind, "from_message": name, **more}

    fields: dict[str, Any] = {
        **{"id": "long", "origin": part("string", "topic")},
        **{"device": part("int", "key"), "at": part("timestamp", "event_time")},
        **{"published": part("timestamp", "publish_time")},
        **{"tenant": part("string", "properties.the tenant"), "day": part("date", "properties.d")},
        **{"size": part("int", "properties.size", required=False)},
    }
    topic = Topic(name="t", kind="events", key=["id"], fields=fields)
    row = {
        "id": "1",
        "device": "7",
        "at": "1970-01-01 00:00:02",
        "tenant": 'a"é',
        "day": "2026-01-05",
    }
    message = RowEncoder(topic, [*row, "size"], "t.csv").encode({**row, "size": ""}, 2)
    assert message.value == b'{"id":1}'
    assert (message.key, message.event_time_ms) == ("7", 2000)
    assert message.properties == {"the tenant": 'a"é', "d": "2026-01-05"}
    with pytest.raises(EncodeError, match="'x', which is not a valid int"):
        RowEncoder(topic, [*row, "size"], "t.csv").encode({**row, "size": "", "device": "x"}, 2)
    with pytest.raises(EncodeError, match="no column 'tenant'"):
        RowEncoder(topic, ["id", "device", "at", "day"], "t.csv")


NESTED = """
[topics.readings]
kind = "events"
key = ["id"]
[topics.readings.fields]
id = { type = "long", path = "device.id" }
latitude = { type = "double", path = "device.geo.lat", required = false }
version = { type = "string", path = ["device", "fw.version"] }
tags = { type = "array<string>", required = false }
parts = "array<struct<no: int, price: decimal(10,2)>>"
ratio = "float"
"""
READING = {
    "id": "7",
    "latitude": "52.40",
    "version": "2",
    "tags": '["a",\n "b"]',
    "parts": '[{"no": 1, "price": 13.750000000000002}]',
    "ratio": "0.1",
}


@pytest.fixture
def readings(tmp_path: Path) -> RowEncoder:
    return RowEncoder(declared(tmp_path, NESTED).topics["readings"], [*READING], "file.csv")


def test_paths_become_objects_and_cells_of_nested_types_are_json(readings: RowEncoder) -> None:
    """Numbers keep their digits."""
    assert readings.encode(READING, 2).value == (
        b'{"device":{"id":7,"geo":{"lat":52.40},"fw.version":"2"},"tags":["a",  "b"],'
        b'"parts":[{"no": 1, "price": 13.750000000000002}],"ratio":0.1}'
    )
    nothing = {**READING, "latitude": "", "tags": ""}
    assert json.loads(readings.encode(nothing, 2).value) == {
        "device": {"id": 7, "fw.version": "2"},
        "parts": [{"no": 1, "price": 13.750000000000002}],
        "ratio": 0.1,
    }


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("[{", "which is not a valid array<struct<no: int, price: decimal(10,2)>>"),
        ('[{"no": "1"}]', "column 'parts' has '[{\"no\": \"1\"}]', which is not a valid array"),
        ("{}", "not a valid array"),
        ("[NaN]", "not a valid array"),
        ("", "column 'parts' is empty"),
    ],
)
def test_a_cell_whose_json_does_not_fit_is_reported(
    readings: RowEncoder, cell: str, says: str
) -> None:
    with pytest.raises(RowError) as error:
        readings.encode({**READING, "parts": cell}, 3)
    assert says in str(error.value)


def test_a_row_of_a_topic_that_is_exploded_has_the_whole_array(tmp_path: Path) -> None:
    text = """
    [topics.sales]
    kind = "events"
    key = ["id", "line"]
    explode = { path = "basket.lines", index = "line" }
    [topics.sales.fields]
    id = "long"
    line = "int"
    sku = { type = "string", path = "basket.lines.sku" }
    """
    topic = declared(tmp_path, text).topics["sales"]
    assert why_not_sent(topic) is None
    encoder = RowEncoder(topic, ["id", "basket.lines"], "sales.csv")
    found = encoder.encode({"id": "7", "basket.lines": '[{"sku": "a"}, {"sku": "b"}]'}, 2)
    assert found.key == "7"
    assert json.loads(found.value) == {
        "id": 7,
        "basket": {"lines": [{"sku": "a"}, {"sku": "b"}]},
    }
    with pytest.raises(RowError, match=r"sales.csv:3: column 'basket.lines' has '\[7\]', which is"):
        encoder.encode({"id": "7", "basket.lines": "[7]"}, 3)
