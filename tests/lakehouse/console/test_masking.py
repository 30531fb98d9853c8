"""Tests that pages show no personal value that the topic file declares."""

import json
from pathlib import Path
from typing import Any

import pytest
from topic import declared

from lakehouse.console.masking import HIDDEN, MASK, Masking

TOPICS = """
[topics.people]
kind = "changelog"
key = ["id"]
[topics.people.fields]
id = { type = "string", personal = "keep" }
eMail = { type = "string", personal = "hash" }
city = { type = "string", path = "home.town", personal = "mask", required = false }
age = "long"

[topics.visits]
kind = "events"
key = ["id"]
[topics.visits.fields]
id = "long"
person = "string"
[topics.visits.lookups]
who = { topic = "people", on = "person" }
"""


@pytest.fixture
def masking(tmp_path: Path) -> Masking:
    return Masking(declared(tmp_path, TOPICS), shows_all=False)


def payload(masking: Masking, topic: str, value: Any) -> Any:
    return json.loads(masking.payload(topic, json.dumps(value).encode()))


def test_members_are_masked_by_their_names_wherever_they_are(masking: Masking) -> None:
    given = {
        "id": "7",
        "EMAIL": "a@b.org",
        "age": 3,
        "home": {"town": "Bonn", "zip": 1},
        "before": [{"eMail": {"work": "x"}, "age": 4}],
        "none": None,
    }
    assert payload(masking, "people", given) == {
        "id": MASK,
        "EMAIL": MASK,
        "age": 3,
        "home": {"town": MASK, "zip": 1},
        "before": [{"eMail": MASK, "age": 4}],
        "none": None,
    }


@pytest.mark.parametrize(
    "content", [b'{"eMail": "a@b.org"', b"a@b.org", b"\xff\x00a@b.org", b'"a@b.org"', b"[" * 9999]
)
def test_a_payload_that_cannot_be_taken_apart_is_hidden(masking: Masking, content: bytes) -> None:
    assert masking.payload("people", content) == HIDDEN


def test_a_topic_without_personal_fields_is_shown_as_it_is(masking: Masking) -> None:
    assert masking.payload("visits", b"<xml/>") == "<xml/>"
    assert masking.payload("visits", b"\xff") == "base64:/w=="
    assert masking.payload("visits", None) == ""
    assert payload(masking, "visits", {"id": 1, "person": "7"}) == {"id": 1, "person": "7"}


def test_the_payload_of_a_topic_that_is_no_longer_declared_is_masked_by_all_names(
    masking: Masking,
) -> None:
    assert payload(masking, "former", {"eMail": "a@b.org", "x": 1}) == {"eMail": MASK, "x": 1}
    assert masking.key("former", "7") == MASK


def test_keys_are_masked_if_a_part_of_them_is_personal(masking: Masking) -> None:
    assert masking.key("people", "7") == MASK
    assert masking.key("visits", "7") == "7"
    assert masking.key("people", None) == ""


def test_rows_are_masked_by_column_and_within_structs(masking: Masking) -> None:
    row = {"id": 1, "e_mail": "a", "e_mail_hash": "h", "who": {"city": "Bonn", "age": 3}, "x": [1]}
    assert masking.row("silver.enriched_visits", row) == {
        "id": MASK,
        "e_mail": MASK,
        "e_mail_hash": MASK,
        "who": {"city": MASK, "age": 3},
        "x": [1],
    }
    message = {"key": "7", "payload": b'{"eMail": "a"}', "properties": [("a", "b")], "ledger": 1}
    assert masking.row("bronze.people", message) == {
        "key": MASK,
        "payload": json.dumps({"eMail": MASK}, indent=2),
        "properties": HIDDEN,
        "ledger": 1,
    }
    refused = {"topic": "people", "key": "7", "payload": b"a@b.org"}
    assert masking.row("silver.quarantine", refused) == {
        "topic": "people",
        "key": MASK,
        "payload": HIDDEN,
    }


def test_all_is_shown_if_that_is_allowed(tmp_path: Path) -> None:
    masking = Masking(declared(tmp_path, TOPICS), shows_all=True)
    assert masking.payload("people", b"a@b.org") == "a@b.org"
    assert masking.key("people", "7") == "7"
    assert masking.row("silver.people_state", {"e_mail": "a"}) == {"e_mail": "a"}
    assert not masking.masks("e_mail")
