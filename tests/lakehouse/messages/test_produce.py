"""Tests what `lakehouse produce` sends to a broker, and what it refuses beforehand."""

import json
from pathlib import Path

import pulsar
import pytest
from command_line import CommandLine

from lake.settings.settings import LakeSettings
from lakehouse.messages.encode import Encoded
from lakehouse.messages.produce import send
from lakehouse.runtime.broker import Broker
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.errors import BrokerError

TOPICS = """
[topics.people]
kind = "changelog"
key = ["id"]
partitions = 2
[topics.people.fields]
id = "long"
name = "string"

[topics.visits]
kind = "events"
key = ["id"]
event_time = "at"
[topics.visits.fields]
id = "long"
at = "timestamp"
"""
SEVERAL = """
[topics.readings]
kind = "events"
key = ["id"]
pattern = "device-.*"
fields = { id = "long" }
"""
ADA = '{"id": 7, "name": "Ada"}'


@pytest.fixture
def run(
    broker: Broker,
    settings: LakeSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> CommandLine:
    (tmp_path / "topics.toml").write_text(TOPICS + SEVERAL)
    return CommandLine(monkeypatch, capsys, settings, tmp_path / "topics.toml")


def sent(settings: LakeSettings, name: str) -> list[tuple[str, int, bytes]]:
    """Return key, event time and payload of all messages of a topic, by publish time."""
    client = settings.connection.client()
    try:
        with PulsarAdmin(settings.connection) as admin:
            partitions = admin.partitions(settings.full_topic(name))
        found = []
        for partition in partitions:
            reader = client.create_reader(partition, pulsar.MessageId.earliest)
            while reader.has_message_available():
                each = reader.read_next(10_000)
                what = (each.partition_key(), each.event_timestamp(), each.data())
                found.append((each.publish_timestamp(), what))
        return [what for _, what in sorted(found)]
    finally:
        client.close()


def test_a_message_is_sent_to_the_declared_topic_which_is_created_if_missing(
    run: CommandLine, settings: LakeSettings
) -> None:
    assert run("produce", "people", ADA).out == "people: 1 message sent\n"
    assert sent(settings, "people") == [("7", 0, ADA.encode())]
    with PulsarAdmin(settings.connection) as admin:
        name = settings.full_topic("people")
        assert len(admin.partitions(name)) == 2
        assert admin.policy(name, "retention")["retentionTimeInMinutes"] == -1
    visit = '{"id": 1, "at": "2026-01-02T03:04:05Z"}'
    run("produce", "visits", visit)
    run("produce", "visits", visit, "--key", "k", "--event-time", "2026-01-01")
    assert sent(settings, "visits") == [
        ("1", 1_767_323_045_000, visit.encode()),
        ("k", 1_767_225_600_000, visit.encode()),
    ]


def test_a_message_with_the_key_of_another_goes_to_the_same_partition_as_from_publish(
    run: CommandLine, settings: LakeSettings, tmp_path: Path
) -> None:
    (tmp_path / "people.csv").write_text("id,name\n" + "".join(f"{n},a\n" for n in range(20)))
    assert run("publish", "--data", str(tmp_path)).exit_code == 0
    lines = [json.dumps({"id": number, "name": "b"}).encode() for number in range(20)]
    run("produce", "people", "-", stdin=b"\n".join(lines))
    client = settings.connection.client()
    for partition in range(2):
        name = f"{settings.full_topic('people')}-partition-{partition}"
        reader = client.create_reader(name, pulsar.MessageId.earliest)
        keys: dict[str, int] = {}
        while reader.has_message_available():
            key = reader.read_next(10_000).partition_key()
            keys[key] = keys.get(key, 0) + 1
        assert {*keys.values()} == {2}
    client.close()


def test_lines_are_sent_up_to_the_first_that_does_not_fit(
    run: CommandLine, settings: LakeSettings
) -> None:
    lines = [ADA.encode(), b"", b'{"id": 8, "name": "B"}\r', b'{"id": "nine"}', ADA.encode()]
    outcome = run("produce", "people", "-", stdin=b"\n".join(lines))
    assert outcome.exit_code == 2
    assert outcome.err.startswith(
        "Error: Line 4 of standard input: people: field 'id' is \"nine\", which is not of type "
        "long. Messages sent before it: 2. Correct it, or send it unchecked with --raw."
    )
    assert sorted(sent(settings, "people")) == [
        ("7", 0, ADA.encode()),
        ("8", 0, b'{"id": 8, "name": "B"}'),
    ]
    assert run("produce", "people", "-").out == "people: 0 messages sent\n"


def test_raw_bytes_are_not_checked(run: CommandLine, settings: LakeSettings) -> None:
    assert run("produce", "people", "--raw", b"\xff{", "--key", "x").exit_code == 0
    assert run("produce", "people", "--raw", "-", stdin=b"1\nno\xffJSON").exit_code == 0
    assert sorted(sent(settings, "people")) == [
        ("", 0, b"1"),
        ("", 0, b"no\xffJSON"),
        ("x", 0, b"\xff{"),
    ]


def test_a_tombstone_has_a_key_and_no_payload(run: CommandLine, settings: LakeSettings) -> None:
    assert run("produce", "people", "--tombstone", "--key", "7").exit_code == 0
    assert sent(settings, "people") == [("7", 0, b"")]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("orders", ADA),
            "declares no topic 'orders'. Use one of people, visits, readings",
        ),
        (("people",), "There is no message to send. Add it as JSON, or - for standard input"),
        (("people", "--tombstone"), "--tombstone needs --key, and takes neither a message nor"),
        (("people", ADA, "--tombstone", "--key", "7"), "Write `lakehouse produce people --tombst"),
        (("visits", "--tombstone", "--key", "7"), "visits: the topic takes no tombstones, becau"),
        (("people", ADA, "--event-time", "noon"), "--event-time: 'noon' is neither ISO 8601 nor"),
        (("people", ADA, "--event-time", "1969-01-01"), "neither ISO 8601 nor epoch millisec"),
        (("people", '{"id": 1}'), "people: field 'name' is missing or null, but required."),
        (("people", b"\xff"), "people: the message is not UTF-8 (invalid start byte at byte 0)."),
        (("people", "{}", "--colour"), "No such option: --colour"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_the_topic_is_created(
    run: CommandLine, settings: LakeSettings, arguments: tuple[str | bytes, ...], says: str
) -> None:
    outcome = run("produce", *arguments)
    assert outcome.exit_code == 2
    assert outcome.out == ""
    assert says in outcome.err
    with PulsarAdmin(settings.connection) as admin:
        assert not admin.has_namespace(settings.pulsar_namespace)


def test_an_error_of_the_broker_is_reported(broker: Broker, settings: LakeSettings) -> None:
    absent = settings.model_copy(update={"pulsar_namespace": "public/none"})
    with pytest.raises(BrokerError, match="people: the broker at pulsar://.* did not accept a"):
        send(absent, absent.full_topic("people"), [Encoded("7", None, b"{}")])


def test_one_of_several_topics_is_named_in_full(run: CommandLine, settings: LakeSettings) -> None:
    refused = run("produce", "readings", '{"id": 1}')
    assert refused.exit_code != 0
    assert "declares 'readings' as several topics: topics matching" in refused.err
    name = settings.full_topic("device-7")
    assert run("produce", name, '{"id": 1}').exit_code == 0
    assert [each[2] for each in sent(settings, "device-7")] == [b'{"id": 1}']
    assert "several topics" in run("consume", "readings").err
    assert '"payload": {"id": 1}' in run("consume", name, "--format", "json").out
    assert "declares no topic" in run("produce", settings.full_topic("else"), "{}").err
