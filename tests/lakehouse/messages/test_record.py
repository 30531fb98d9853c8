"""Tests that a message is checked before it is sent, by the rules that silver applies."""

import json
from pathlib import Path
from typing import Any

import pytest
from topic import declared

from lake.topics.topic import Topic
from lakehouse.messages.encode import Encoded
from lakehouse.messages.record import RecordError, checked, tombstone

TEXT = """
[topics.sales]
kind = "events"
key = ["shopId", "number"]
event_time = "soldAt"
[topics.sales.fields]
shopId = "string"
number = "long"
soldAt = "timestamp"
price = "decimal(8,2)"
paid = { type = "boolean", required = false }
buyer = { type = "long", absent = -1 }

[topics.people]
kind = "changelog"
key = ["id"]
message_key = "house"
sequence = ["version"]
delete = { field = "op", equals = "d" }
truncate = { field = "op", equals = "t" }
[topics.people.fields]
id = "long"
house = { type = "long", required = false }
version = "long"
op = "string"
name = "string"

[topics.parts]
kind = "changelog"
key = ["id"]
updates = "partial"
[topics.parts.fields]
id = "long"
name = "string"
size = "int"

[topics.rows]
kind = "changelog"
key = ["id"]
envelope = "debezium"
sequence = ["lsn"]
[topics.rows.fields]
id = "int"
name = "string"
lsn = { type = "long", path = "source.lsn" }

[topics.pairs]
kind = "changelog"
key = ["a", "b"]
fields = { a = "int", b = "boolean", c = "string" }

[topics.kept]
kind = "changelog"
key = ["id"]
delete = "never"
fields = { id = "int" }

[topics.avro]
kind = "events"
key = ["id"]
schema = "registry"
fields = { id = "int" }
"""
SALE = {
    "shopId": "a|b",
    "number": 7,
    "soldAt": "2026-01-02T03:04:05.678901234+01:00",
    "price": "13.755",
    "buyer": -1,
}


@pytest.fixture
def topics(tmp_path: Path) -> dict[str, Topic]:
    return declared(tmp_path, TEXT).topics


def test_a_message_is_sent_as_written_with_its_key_and_event_time(topics: dict[str, Topic]) -> None:
    text = json.dumps(SALE, indent=1).replace("13.755", "13.7500")
    message = checked(topics["sales"], text)
    assert message.value == text.encode()
    assert message.key == "a|b|7"
    assert message.event_time_ms == 1_767_319_445_678
    assert checked(topics["sales"], text, "mine").key == "mine"


def test_values_that_stand_for_null_are_accepted(topics: dict[str, Topic]) -> None:
    for change in ({"buyer": None}, {"buyer": -1, "paid": None}, {"paid": True}):
        if change.get("buyer", 0) is None:
            with pytest.raises(RecordError, match="field 'buyer' is missing or null"):
                checked(topics["sales"], json.dumps({**SALE, **change}))
        else:
            assert checked(topics["sales"], json.dumps({**SALE, **change}))


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in SALE.items() if name not in names}


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (
            {**SALE, "shopid": 1},
            "'shopid' is not declared, did you mean 'shopId'? Its fields are s",
        ),
        ({**SALE, "x1": 1, "x2": 2}, "'x1', 'x2' are not declared. Its fields are shopId, number"),
        ({**SALE, "number": "7"}, "field 'number' is \"7\", which is not of type long"),
        ({**SALE, "number": 7.0}, "field 'number' is 7.0, which is not of type long"),
        ({**SALE, "number": 2**63}, "field 'number' is 9223372036854775808, which is not of"),
        (
            {**SALE, "price": 1e9},
            "field 'price' is 1000000000.0, which is not of type decimal(8,2)",
        ),
        ({**SALE, "soldAt": 5}, "field 'soldAt' is 5, which is not of type timestamp"),
        ({**SALE, "paid": {}}, "field 'paid' is an object, which is not of type boolean"),
        ({**SALE, "shopId": True}, "field 'shopId' is true, which is not of type string"),
        (without("price"), "field 'price' is missing or null, but required"),
        (without("price", "soldAt"), "fields 'soldAt', 'price' are missing or null, but required"),
        ([1], "the message is not a JSON object"),
    ],
)
def test_what_silver_would_quarantine_is_refused_with_the_field(
    topics: dict[str, Topic], record: Any, says: str
) -> None:
    with pytest.raises(RecordError) as error:
        checked(topics["sales"], json.dumps(record))
    assert says in str(error.value)
    assert str(error.value).startswith("sales: ")
    assert "--raw" in str(error.value)


def test_a_text_that_silver_would_not_read_as_meant_is_refused(topics: dict[str, Topic]) -> None:
    text = json.dumps(SALE)
    for broken, says in (
        (text[:-1], "is not JSON: "),
        (text + "x", "is not JSON: Extra data"),
        (text.replace("{", '{"number": 1, ', 1), "has the field 'number' twice"),
        (text.replace('"number"', '"\\u006eumber"'), "name of 'number' is written with escapes"),
    ):
        with pytest.raises(RecordError, match=says):
            checked(topics["sales"], broken)


def test_a_key_of_half_a_character_or_an_op_that_is_no_text_is_refused(
    topics: dict[str, Topic],
) -> None:
    with pytest.raises(RecordError, match=r"the message key '\\ud83d\|1' has half of a surrogate"):
        checked(topics["sales"], json.dumps({**SALE, "shopId": "\ud83d", "number": 1}))
    for op in ([], {}, 1, None, True):
        with pytest.raises(RecordError, match="has the op .*, which is not one of c, u, r, d, t"):
            checked(topics["rows"], json.dumps({"op": op, "after": {"id": 1}}))


def test_a_delete_needs_only_key_and_sequence_and_a_truncation_only_the_sequence(
    topics: dict[str, Topic],
) -> None:
    people = topics["people"]
    row = {"id": 1, "house": 5, "version": 2, "op": "u", "name": "Ada"}
    assert checked(people, json.dumps(row)).key == "5", "the declared message key"
    assert checked(people, '{"id": 1, "version": 2, "op": "d"}', "5").key == "5"
    assert checked(people, '{"version": 2, "op": "t"}').key is None
    with pytest.raises(RecordError, match="field 'version' is missing"):
        checked(people, '{"id": 1, "op": "d"}')
    with pytest.raises(RecordError, match="field 'id' is missing"):
        checked(people, '{"version": 1, "op": "d"}')
    with pytest.raises(RecordError, match="'house' is missing, so there is no message key.* --key"):
        checked(people, '{"id": 1, "version": 2, "op": "d"}')


def test_a_partial_update_may_lack_fields_but_not_set_a_required_one_to_null(
    topics: dict[str, Topic],
) -> None:
    assert checked(topics["parts"], '{"id": 1, "size": 3}').key == "1"
    with pytest.raises(RecordError, match="field 'name' is missing or null"):
        checked(topics["parts"], '{"id": 1, "name": null}')


def test_the_row_is_found_in_its_envelope(topics: dict[str, Topic]) -> None:
    rows, row = topics["rows"], {"id": 1, "name": "x"}
    source = {"source": {"lsn": 9, "db": "mine"}, "ts_ms": 5}
    assert checked(rows, json.dumps({"op": "c", "before": None, "after": row, **source})).key == "1"
    assert checked(rows, json.dumps({"op": "d", "before": {"id": 2}, **source})).key == "2"
    assert checked(rows, json.dumps({"op": "t", **source})).key is None
    for message, says in (
        ({"op": "c", "after": row}, "field 'lsn' is missing"),
        ({"op": "c", "after": {**row, "y": 1}, **source}, "'y' is not declared"),
        ({"op": "u", "before": row, **source}, "has no row in 'after', which the op u needs"),
        ({"op": "x", "after": row}, 'has the op "x", which is not one of c, u, r, d, t'),
        (row, "has the op null"),
    ):
        with pytest.raises(RecordError, match=says):
            checked(rows, json.dumps(message))


def test_a_tombstone_needs_a_key_of_the_topic(topics: dict[str, Topic]) -> None:
    assert tombstone(topics["pairs"], "7|true") == Encoded("7|true", None, b"", {})
    assert tombstone(topics["rows"], "7").value == b""
    for name, key, says in (
        ("pairs", "7", r"'7' is not a key of the topic, .* form <a: int>\|<b: boolean>"),
        ("pairs", "7|TRUE", "is not a key"),
        ("sales", "a|7", "takes no tombstones, because it has events"),
        ("kept", "7", "because it is declared with delete = 'never'"),
        ("people", "7", "because it has a sequence"),
    ):
        with pytest.raises(RecordError, match=says):
            tombstone(topics[name], key)


def test_payloads_with_a_schema_can_only_be_sent_raw(topics: dict[str, Topic]) -> None:
    with pytest.raises(RecordError, match="schema = 'registry'.*--raw and --key"):
        checked(topics["avro"], '{"id": 1}')


NESTED = """
[topics.readings]
kind = "changelog"
key = ["deviceId"]
updates = "partial"
delete = { field = "op", equals = "d" }
[topics.readings.fields]
deviceId = { type = "string", path = "device.id" }
latitude = { type = "double", path = "device.geo.lat" }
op = { type = "string", path = "meta.op", required = false }
tags = { type = "array<string>", required = false }

[topics.sales]
kind = "events"
key = ["saleId", "line"]
event_time = "at"
explode = { path = "basket.lines", index = "line" }
[topics.sales.fields]
saleId = "long"
line = "int"
at = { type = "timestamp_ms", path = "meta.at" }
sku = { type = "string", path = "basket.lines.sku" }
price = { type = "decimal(10,2)", path = "basket.lines.price", required = false }
"""
AT = 1_767_225_600_000


@pytest.fixture
def nested(tmp_path: Path) -> dict[str, Topic]:
    return declared(tmp_path, NESTED).topics


def test_nested_members_are_checked_where_they_are(nested: dict[str, Topic]) -> None:
    readings, sales = nested["readings"], nested["sales"]
    device = {"id": "d1", "geo": {"lat": 1.5}}
    assert checked(readings, json.dumps({"device": device, "tags": ["a", None]})).key == "d1"
    assert checked(readings, '{"device": {"id": "d1"}}').key == "d1"  # a part of the row
    assert checked(readings, '{"device": {"id": "d1"}, "meta": {"op": "d"}}').key == "d1"
    sale = {"saleId": 7, "meta": {"at": AT}, "basket": {"lines": [{"sku": "a", "price": "1.5"}]}}
    sent = checked(sales, json.dumps(sale))
    assert (sent.key, sent.event_time_ms) == ("7", AT)
    assert checked(sales, json.dumps({**sale, "basket": None})).key == "7"


@pytest.mark.parametrize(
    ("topic", "record", "says"),
    [
        (
            "readings",
            {"device": {"id": "d1", "geo": {"lon": 1}}},
            "'device.geo.lon' is not declared",
        ),
        (
            "readings",
            {"device": {"id": "d1", "geo": {"lta": 1}}},
            "did you mean 'lat'? The fields in",
        ),
        ("readings", {"device": 5}, "'device' is 5, but must be an object"),
        ("readings", {"device": {"id": "d1", "geo": []}}, "'device.geo' is an array, but must be"),
        (
            "readings",
            {"device": {"id": "d1", "geo": {"lat": None}}},
            "field 'latitude' is missing or",
        ),
        ("readings", {"device": {"id": "d1"}, "tags": ["a", 5]}, "because tags[1] is 5"),
        ("readings", {"device": {"id": "d1"}, "tags": "a"}, 'is "a", which is not of type array<s'),
        ("sales", {"basket": {"lines": [{"sku": 5}]}}, "because basket.lines[0].sku is 5"),
        (
            "sales",
            {"basket": {"lines": [{"sku": "a"}, {}]}},
            "'sku' is missing or null in basket.li",
        ),
        ("sales", {"basket": {"lines": [None]}}, "basket.lines[0] is null, but must be an element"),
        ("sales", {"basket": {"lines": {}}}, "field 'basket.lines' is an object, which is not of"),
        ("sales", {"basket": {"line": []}}, "did you mean 'lines'?"),
    ],
)
def test_a_nested_member_that_silver_would_refuse_is_named_with_its_place(
    nested: dict[str, Topic], topic: str, record: dict[str, Any], says: str
) -> None:
    more = {"saleId": 7, "meta": {"at": AT}} if topic == "sales" else {}
    with pytest.raises(RecordError) as error:
        checked(nested[topic], json.dumps({**more, **record}))
    assert says in str(error.value)
