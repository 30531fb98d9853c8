"""Tests that generated files fit any topic file; the expectations come from the files alone."""

import csv
import datetime as dt
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model import Message, Position
from nested_model import Declared, ddl, row_of
from pyspark.sql import SparkSession
from silver_lake import SilverLake
from topic import declared
from types_model import RefusedError, read_json, value_of

from lake.settings.settings import load_settings
from lake.topics.topic import Topic
from lake.topics.topic_file import TopicFile, load_topics
from lakehouse.messages.encode import Encoded, RowEncoder, RowError
from lakehouse.messages.generate import EVENTS, KEYS, generate
from pulsar_spark.errors import SettingsError

BANK = Path(__file__).parents[3] / "examples" / "bank" / "topics.toml"
TOPICS = """
[topics.people]
kind = "changelog"
key = ["id"]
sequence = ["version"]
delete = { field = "op", equals = "d" }
merged_into = "parentId"
event_time = "changedAt"
[topics.people.fields]
id = "string"
version = "int"
op = "string"
parentId = { type = "string", required = false }
changedAt = "timestamp_ms"
createdAt = "timestamp"
email = "string"
status = "string"
note = { type = "string", absent = "none" }
limit = { type = "decimal(8,2)", required = false }
visits = { type = "int", absent = -1 }

[topics.devices]
kind = "changelog"
key = ["serial"]
history = true
[topics.devices.fields]
serial = "long"
country = "string"
active = "boolean"

[topics.readings]
kind = "events"
key = ["device", "takenAt"]
event_time = "takenAt"
[topics.readings.fields]
device = "long"
takenAt = "timestamp"
ownerId = "string"
value = "double"
[topics.readings.lookups]
what = { topic = "devices", on = "device" }
owner = { topic = "people", on = "ownerId" }
"""
TYPES = [
    *("boolean", "int", "long", "float", "double", "string", "binary", "date", "timestamp"),
    *(
        "timestamp_ms",
        "decimal(1,0)",
        "decimal(2,2)",
        "decimal(12,2)",
        "decimal(38,0)",
        "decimal(38,18)",
    ),
]
NAMES = [
    *("name", "price", "email", "birthDate", "latitude", "is_open", "uuid", "updatedAt", "x"),
    *(
        "account_id",
        "percent",
        "op",
        "share",
        "year",
        "due",
        "temperature",
        "ip",
        "code",
        "payload",
    ),
]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def encoded(topic: Topic, folder: Path) -> list[Encoded]:
    """Return the messages that `publish` would send."""
    found = rows(folder / f"{topic.name}.csv")
    encoder = RowEncoder(topic, [*found[0]], topic.name)
    return [encoder.encode(row, line) for line, row in enumerate(found, start=2)]


def wrong_fields(topic: Topic, message: Encoded) -> list[str]:
    """Return the fields of a message that the documented types refuse, or that are missing."""
    values = read_json(message.value.decode())
    wrong = []
    for name, spec in topic.fields.items():
        value = values.get(name)
        if spec.absent is not None and str(value) == str(spec.absent):
            continue
        try:
            if value_of(spec.type, value) is None and spec.required:
                wrong.append(name)
        except RefusedError:
            wrong.append(name)
    return wrong


@pytest.fixture
def topics(tmp_path: Path) -> TopicFile:
    return declared(tmp_path, TOPICS)


def field(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    absent = {"string": "none", "int": -1, "long": -1, "timestamp_ms": -1}.get(kind)
    choices: list[dict[str, Any]] = [{"type": kind}, {"type": kind, "required": False}]
    return st.sampled_from([*choices, {"type": kind, "absent": absent}] if absent else choices)


@st.composite
def declarations(draw: st.DrawFn) -> TopicFile:
    """Draw a changelog and events that refer to it, with any valid mix of keys, types and rules."""

    def fields(prefix: str) -> dict[str, Any]:
        names = draw(st.lists(st.sampled_from(NAMES), max_size=5, unique=True))
        return {f"{prefix}{name}": draw(field(draw(st.sampled_from(TYPES)))) for name in names}

    def some(*options: Any) -> Any:
        return draw(st.sampled_from([None, *options]))

    key = draw(st.sampled_from(TYPES))
    state: dict[str, Any] = {"kind": "changelog", "key": ["id"], "fields": {"id": key}}
    state["fields"] |= fields("")
    if kind := some("date", "timestamp", "timestamp_ms", "string", "long"):
        state["fields"]["at"] = kind
        state["event_time"] = "at"
    if rule := some(("string", "d"), ("boolean", True), ("int", 1), ("string", "closed")):
        state["fields"]["rule"] = rule[0]
        state["delete"] = {"field": "rule", "equals": rule[1]}
    if rule := some(("string", "t"), ("boolean", False), ("long", 2)):
        state["fields"]["wipe"] = rule[0]
        state["truncate"] = {"field": "wipe", "equals": rule[1]}
    if (kind := some(*TYPES)) and "delete" in state:
        state["fields"]["order"] = kind
        state["sequence"] = ["order"]
    if draw(st.booleans()):
        state["fields"]["into"] = {"type": key, "required": False}
        state["merged_into"] = "into"
    facts: dict[str, Any] = {"kind": "events", "key": ["fact"], "fields": fields("f_")}
    facts["fields"] |= {"fact": draw(st.sampled_from(TYPES)), "who": key}
    facts["lookups"] = {"person": {"topic": "state", "on": "who"}}
    if extra := some("who", "when"):
        facts["key"] = draw(st.permutations(["fact", extra]))
    if "when" in facts["key"] or draw(st.booleans()):
        facts["fields"]["when"] = draw(st.sampled_from(["date", "timestamp", "timestamp_ms"]))
        facts["event_time"] = "when"
    return TopicFile.model_validate({"topics": {"state": state, "facts": facts}})


@settings(deadline=None, max_examples=60)
@given(
    declarations(),
    st.integers(0, 3),
    st.sampled_from([0.0002, 0.002]),
    st.sampled_from([0, 0.3]),
    st.sampled_from([0, 0.3]),
)
def test_any_topic_file_gives_files_that_publish_sends_and_that_the_types_accept(
    topics: TopicFile, seed: int, scale: float, late: float, broken: float
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = generate(topics, folder, scale, seed, late=late, broken=broken)
        messages = {each.name: encoded(each, folder) for each in topics.topics.values()}
        assert made.rows == {name: len(found) for name, found in messages.items()}
        for each, found in messages.items():
            topic = topics.topics[each]
            wrong = [fields for message in found if (fields := wrong_fields(topic, message))]
            assert all(len(fields) == 1 for fields in wrong), wrong
            spared = any(each in remark and "no broken rows" in remark for remark in made.remarks)
            assert len(wrong) == (0 if spared else round(len(found) * broken))
        if not broken:
            check_state(topics.topics["state"], rows(folder / "state.csv"))
            known = {row["id"] for row in rows(folder / "state.csv")}
            unknown = [row for row in rows(folder / "facts.csv") if row["who"] not in known]
            assert len(unknown) <= 5
        check_times(topics.topics["facts"], messages["facts"], late)


def check_state(topic: Topic, found: list[dict[str, str]]) -> None:
    """Check that deletes come last, that nothing is truncated, and that merges have no cycles."""
    last = {row["id"]: number for number, row in enumerate(found)}
    for number, row in enumerate(found):
        if "delete" in topic.model_fields_set and is_equal(topic, row, "rule", topic.delete):
            assert last[row["id"]] == number or len(last) < KEYS * 0.0002
        if topic.truncate:
            assert not is_equal(topic, row, "wipe", topic.truncate)
    if topic.merged_into:
        into = {row["id"]: row["into"] for row in found if row["into"]}
        for key in into:
            seen = [key]
            while seen[-1] in into:
                seen.append(into[seen[-1]])
                assert len(seen) == len({*seen}), f"{seen} is a cycle"
            assert seen[-1] in last


def is_equal(topic: Topic, row: dict[str, str], name: str, rule: Any) -> bool:
    equals = rule.equals
    return row[name] == (str(equals).lower() if isinstance(equals, bool) else str(equals))


def check_times(topic: Topic, found: list[Encoded], late: float) -> None:
    """Check how many events are before the latest event so far, with an event time or without."""
    times = [message.event_time_ms for message in found if message.event_time_ms is not None]
    assert len(times) == (len(found) if topic.event_time else 0)
    assert len(lags(times)) == (round(len(found) * late) if topic.event_time else 0)


def lags(times: list[int]) -> list[int]:
    """Return by how many milliseconds each late event is behind the latest event before it."""
    latest, found = times[0] if times else 0, []
    for time in times:
        if time < latest:
            found.append(latest - time)
        latest = max(latest, time)
    return found


def test_the_same_seed_gives_the_same_bytes_and_a_new_topic_does_not_change_the_others(
    tmp_path: Path, topics: TopicFile
) -> None:
    generate(topics, tmp_path / "one", 0.01, 1, late=0.1, broken=0.1)
    generate(topics, tmp_path / "again", 0.01, 1, late=0.1, broken=0.1)
    generate(topics, tmp_path / "other", 0.01, 2, late=0.1, broken=0.1)
    more = (
        TOPICS + '[topics.more]\nkind = "events"\nkey = ["id"]\n[topics.more.fields]\nid = "int"\n'
    )
    generate(declared(tmp_path, more), tmp_path / "more", 0.01, 1, late=0.1, broken=0.1)
    for name in topics.topics:
        one, again, other, wider = (
            (tmp_path / folder / f"{name}.csv").read_bytes()
            for folder in ("one", "again", "other", "more")
        )
        assert one == again == wider
        assert one != other


@pytest.mark.programs
def test_each_process_gives_the_same_bytes(tmp_path: Path) -> None:
    """The order of a set of texts depends on the process."""
    text = """
[topics.t]
kind = "changelog"
key = ["id"]
delete = { field = "ending", equals = "gone" }
truncate = { field = "clearing", equals = "all" }
fields = { id = "long", ending = "string", clearing = "string" }
"""
    declared(tmp_path, text)
    program = """
import sys
from pathlib import Path
from lake.topics.topic_file import load_topics
from lakehouse.messages.generate import generate
generate(load_topics(Path("topics.toml")), Path(sys.argv[1]), 0.002)
"""
    for seed in ("1", "2"):  # of which the order of the two fields differs
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", program, seed]
        subprocess.run(command, check=True, env=environment, cwd=tmp_path)
    assert (tmp_path / "1" / "t.csv").read_bytes() == (tmp_path / "2" / "t.csv").read_bytes()


def test_a_scale_of_1_gives_5000_keys_and_50000_events(tmp_path: Path) -> None:
    """A tenth of the scale gives a tenth of both, and takes a tenth of the time."""
    assert (KEYS, EVENTS) == (5_000, 50_000)
    assert generate(load_topics(BANK), tmp_path, 0.1).rows["transactions"] == 5_000
    accounts = Counter(row["account_id"] for row in rows(tmp_path / "accounts.csv"))
    assert len(accounts) == 500
    assert 2 < accounts.total() / len(accounts) < 4, "several messages per key"
    assert generate(load_topics(BANK), tmp_path, 0.00001).rows["transactions"] == 1


def test_nearly_all_lookups_find_a_key_that_was_created_before_the_event(
    tmp_path: Path, topics: TopicFile
) -> None:
    generate(topics, tmp_path, 0.1)
    changed = {row["id"]: row["changed_at"] for row in reversed(rows(tmp_path / "people.csv"))}
    devices = {row["serial"] for row in rows(tmp_path / "devices.csv")}
    readings = rows(tmp_path / "readings.csv")
    for column, known in (("owner_id", {*changed}), ("device", devices)):
        unknown = [row for row in readings if row[column] not in known]
        assert 0.001 < len(unknown) / len(readings) < 0.01, column
        used = Counter(row[column] for row in readings)
        assert len(used) > len(known) / 2
        assert max(used.values()) > 10 * len(readings) / len(used), "some keys are popular"
    found = [row for row in readings if row["owner_id"] in changed]
    assert all(changed[row["owner_id"]] <= row["taken_at"] for row in found)


def test_topics_that_one_field_refers_to_have_the_same_keys(tmp_path: Path) -> None:
    fields = '[topics.{0}]\nkind = "changelog"\nkey = ["id"]\n[topics.{0}.fields]\nid = "string"\n'
    text = "".join(fields.format(name) for name in ("users", "profiles", "shops"))
    text += """
[topics.sales]
kind = "events"
key = ["n"]
fields = { n = "int", buyer = "string", shop = "string" }
[topics.sales.lookups]
profile = { topic = "profiles", on = "buyer" }
user = { topic = "users", on = "buyer" }
at = { topic = "shops", on = "shop" }
[topics.returns]
kind = "events"
key = ["n"]
fields = { n = "int", sender = "string" }
lookups = { who = { topic = "users", on = "sender" } }
"""
    generate(declared(tmp_path, text), tmp_path, 0.02)
    keys = {n: {row["id"] for row in rows(tmp_path / f"{n}.csv")} for n in ("users", "profiles")}
    assert keys["users"] == keys["profiles"]
    for name, column in (("sales", "buyer"), ("returns", "sender")):
        used = {row[column] for row in rows(tmp_path / f"{name}.csv")}
        assert len(used - keys["users"]) < len(used) / 10


def test_a_changelog_has_updates_deletes_merges_and_a_rising_sequence(
    tmp_path: Path, topics: TopicFile
) -> None:
    count = generate(topics, tmp_path, 0.2).rows["people"]
    people = rows(tmp_path / "people.csv")
    assert [int(row["version"]) for row in people] == [*range(1, count + 1)]
    times = [row["changed_at"] for row in people]
    assert times == sorted({*times}), "no two messages have the same time"
    days = (dt.datetime.fromisoformat(times[-1]) - dt.datetime.fromisoformat(times[0])).days
    assert 80 <= days <= 90
    keys = {row["id"] for row in people}
    last = {row["id"]: row for row in people}
    first = {row["id"]: row for row in reversed(people)}
    ops = Counter(row["op"] for row in people)
    assert ops["c"] == len(keys) == 1_000
    assert 0.03 < ops["d"] / len(keys) < 0.07
    assert sum(row["op"] == "d" for row in last.values()) == ops["d"], "a delete comes last"
    merged = {row["id"]: row["parent_id"] for row in people if row["parent_id"]}
    assert 0.03 < len(merged) / len(keys) < 0.07
    assert {*merged.values()} <= keys
    assert not [key for key, parent in merged.items() if last[parent]["op"] == "d"]
    for key in merged:
        chain = [key]
        while chain[-1] in merged:
            chain.append(merged[chain[-1]])
            assert len(chain) == len({*chain})
    assert all(row["created_at"] == first[row["id"]]["created_at"] for row in people)
    changed = [row for row in last.values() if row["email"] != first[row["id"]]["email"]]
    assert 0.1 < len(changed) / len(keys) < 0.6, "an update changes some fields only"


def test_values_that_may_be_absent_are_absent_in_a_tenth_of_the_rows(
    tmp_path: Path, topics: TopicFile
) -> None:
    generate(topics, tmp_path, 0.2)
    people = [json.loads(each.value) for each in encoded(topics.topics["people"], tmp_path)]
    absent = {
        "note": sum(row["note"] == "none" for row in people),
        "limit": sum("limit" not in row for row in people),
        "visits": sum(row["visits"] == -1 for row in people),
    }
    assert all(0.07 < count / len(people) < 0.13 for count in absent.values()), absent


def test_nested_fields_have_plausible_json_that_silver_accepts(tmp_path: Path) -> None:
    kinds = {
        "tags": ("array", "string"),
        "scores": ("map", ("array", "float")),
        "lines": ("array", ("struct", {"sku": "string", "soldAt": "timestamp_ms", "on": "date"})),
        "raw": ("struct", {"data": "binary", "isNew": "boolean"}),
    }
    lines = [f"{name} = {json.dumps(ddl(kind))}" for name, kind in kinds.items()]
    lines.append('latitude = { type = "double", path = "device.geo.lat" }')
    text = '[topics.t]\nkind = "events"\nkey = ["id"]\n[topics.t.fields]\nid = "long"\n'
    topics = declared(tmp_path, text + "\n".join(lines))
    generate(topics, tmp_path, 0.001, 1)
    fields = {name: Declared(kind, (name,), is_required=True) for name, kind in kinds.items()}
    fields["latitude"] = Declared("double", ("device", "geo", "lat"), is_required=True)
    found = [row_of(fields, each.value.decode()) for each in encoded(topics.topics["t"], tmp_path)]
    assert len(found) == 50
    assert any(row["tags"] for row in found)
    assert len({row["lines"][0]["sku"] for row in found if row["lines"]}) > 3
    assert all(row["raw"]["data"] is not None for row in found)


@pytest.mark.parametrize("share", [0, 0.1, 1])
def test_late_events_lie_an_hour_or_more_before_earlier_ones(
    tmp_path: Path, topics: TopicFile, share: float
) -> None:
    made = generate(topics, tmp_path, 0.01, late=share)
    times = [m.event_time_ms or 0 for m in encoded(topics.topics["readings"], tmp_path)]
    found = lags(times)
    assert len(found) == min(round(made.rows["readings"] * share), made.rows["readings"] - 1)
    assert all(lag >= 3_600_000 for lag in found)
    assert made.remarks == []


def test_topics_without_event_time_or_breakable_types_are_named(tmp_path: Path) -> None:
    text = '[topics.notes]\nkind = "events"\nkey = ["a"]\nfields = { a = "string", b = "date" }'
    made = generate(declared(tmp_path, text), tmp_path, 0.001, late=0.1, broken=0.1)
    assert made.remarks == [
        "notes has no late events, because it declares no event_time.",
        "notes has no broken rows, because publish checks all of its values.",
    ]


@pytest.mark.parametrize(
    ("declaration", "says"),
    [
        ('schema = "registry"', "schema = 'registry', but `lakehouse publish` sends JSON without"),
        ('schema = "string"', "schema = 'string', but"),
        ('envelope = "debezium"', "envelope = 'debezium', but `lakehouse publish` sends rows"),
        ('event_time = "done"', "has an event_time of type boolean, which holds no time"),
    ],
)
def test_topics_that_publish_cannot_fill_are_left_out_or_refused_if_there_are_no_others(
    tmp_path: Path, declaration: str, says: str
) -> None:
    kind = "string" if "string" in declaration else "boolean"
    odd = f'[topics.odd]\nkind = "changelog"\nkey = ["id"]\n{declaration}\n'
    odd += f'fields = {{ id = "long", done = "{kind}" }}\n'
    with pytest.raises(SettingsError, match="No topic can be generated. odd has no file") as error:
        generate(declared(tmp_path, odd), tmp_path / "out", 0.001)
    assert says in str(error.value)
    assert not (tmp_path / "out").exists()
    made = generate(declared(tmp_path, odd + BANK.read_text()), tmp_path / "out", 0.001)
    assert len(made.remarks) == 1
    assert says in made.remarks[0]
    assert {file.stem for file in (tmp_path / "out").iterdir()} == {*load_topics(BANK).topics}


def test_values_are_plausible_by_the_names_of_their_fields(tmp_path: Path) -> None:
    generate(load_topics(BANK), tmp_path, 0.02)
    for row in rows(tmp_path / "customers.csv"):
        assert re.fullmatch(r"customer-\d+", row["customer_id"])
        assert re.fullmatch(r"[a-z.]+\d*@example\.(com|net|org)", row["email"])
        assert 18 <= int(row["age"]) <= 90
        assert row["city"][0].isupper()


def test_silver_refuses_the_broken_rows_and_no_others(spark: SparkSession, tmp_path: Path) -> None:
    topics = load_topics(BANK)
    made = generate(topics, tmp_path, 0.004, late=0.2, broken=0.1)
    lake = SilverLake(spark, load_settings(home=tmp_path / "home"), topics)
    lake.put([*messages(topics, tmp_path)])
    lake.refine()
    counted = Counter(topic for topic, _ in lake.quarantined())
    assert counted == {name: round(count * 0.1) for name, count in made.rows.items()}
    assert all("is not of type" in row["reason"] for row in lake.refused())
    events = len(lake.rows("enriched_transactions"))
    assert events == made.rows["transactions"] - counted["transactions"]


def messages(topics: TopicFile, folder: Path) -> Iterator[Message]:
    for name, topic in topics.topics.items():
        for entry, each in enumerate(encoded(topic, folder)):
            yield Message(name, Position(1, entry, 0, 0), each.key, each.value)


SEVERAL = """
[topics.sales]
kind = "events"
key = ["shop", "id"]
topic = ["persistent://acme/prod/sales-eu", "sales-us"]
[topics.sales.fields]
shop = { type = "string", from_message = "topic" }
id = "long"

[topics.visits]
kind = "events"
key = ["id"]
topic = ["a", "b"]
fields = { id = "long" }

[topics.readings]
kind = "events"
key = ["device", "id"]
pattern = "device-.*"
[topics.readings.fields]
device = { type = "string", from_message = "topic" }
id = "long"
"""


EXPLODED = """
[topics.sales]
kind = "events"
key = ["id", "line"]
explode = { path = "basket.lines", index = "line" }
[topics.sales.fields]
id = "long"
line = "int"
sku = { type = "string", path = "basket.lines.sku" }
pieces = { type = "int", path = "basket.lines.pieces" }
"""


def test_a_topic_that_is_exploded_gets_arrays_that_publish_sends(tmp_path: Path) -> None:
    topics = declared(tmp_path, EXPLODED)
    assert generate(topics, tmp_path, 0.001).rows == {"sales": 50}
    found = rows(tmp_path / "sales.csv")
    assert [*found[0]] == ["id", "basket.lines"]
    encoder = RowEncoder(topics.topics["sales"], [*found[0]], "sales.csv")
    sent = [json.loads(encoder.encode(row, 2).value) for row in found]
    lines = [line for each in sent for line in each.get("basket", {"lines": []})["lines"]]
    assert all({*line} == {"sku", "pieces"} for line in lines)
    assert len(lines) > 20


def test_rows_for_several_topics_name_the_one_that_they_are_sent_to(tmp_path: Path) -> None:
    topics = declared(tmp_path, SEVERAL)
    found = generate(topics, tmp_path, 0.001)
    assert found.rows == {"sales": 50, "readings": 50}
    assert [each.partition(" has no file, because the topic ")[::2] for each in found.remarks] == [
        (
            "visits",
            "is read from several topics, but has no field with from_message = 'topic', whose "
            "values would say where to send each row.",
        ),
    ]
    assert {row["device"] for row in rows(tmp_path / "readings.csv")} == {
        f"device-{number}" for number in (1, 2, 3)
    }
    odd = declared(tmp_path, SEVERAL.replace('"device-.*"', "'[a-c]{7}'"))
    remarks = generate(odd, tmp_path / "odd", 0.001).remarks
    assert any("no example could be made" in each for each in remarks)
    sent = rows(tmp_path / "sales.csv")
    address = topics.addresses("our/own")["sales"]
    encoder = RowEncoder(topics.topics["sales"], [*sent[0]], "sales.csv", address)
    messages = [encoder.encode(row, line) for line, row in enumerate(sent, start=2)]
    assert {each.topic for each in messages} == {*address.names}
    assert all(each.value == f'{{"id":{each.key}}}'.encode() for each in messages)
    assert len({(each.topic, each.key) for each in messages}) == 50
    with pytest.raises(RowError, match="sales.csv:9: column 'shop' is empty"):
        encoder.encode({**sent[0], "shop": ""}, 9)
