"""Tests that `lakehouse consume` shows the newest messages, and leaves nothing on the broker."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pulsar
import pytest
from command_line import CommandLine, environment
from java_client import JavaClient
from live_shop import until
from topic import LiveTopic, Outgoing, some

from lake.settings.settings import LakeSettings
from lakehouse.messages import consume
from lakehouse.messages.consume import Received, Tail
from lakehouse.runtime.broker import Broker
from pulsar_spark.broker.admin import PulsarAdmin

HEAVY = {
    *("delta", "deltalake", "dbt", "numpy", "pandas", "py4j", "pyarrow", "pyspark", "sqlalchemy"),
}
TOPICS = """
[topics.things]
kind = "events"
key = ["id"]
fields = { id = "long" }
"""


@pytest.fixture
def topics(tmp_path: Path) -> Path:
    (tmp_path / "topics.toml").write_text(TOPICS)
    return tmp_path / "topics.toml"


@pytest.fixture
def run(
    broker: Broker,
    settings: LakeSettings,
    topics: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> CommandLine:
    return CommandLine(monkeypatch, capsys, settings, topics)


@pytest.fixture
def topic(broker: Broker, settings: LakeSettings) -> LiveTopic:
    return LiveTopic(settings, "things", 3)


def newest(settings: LakeSettings, count: int) -> list[Received]:
    with Tail(settings, settings.full_topic("things")) as tail:
        return tail.newest(count)


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("count", [0, 1, 5, 40, 1000])
def test_the_newest_messages_of_all_partitions_are_the_last_that_were_published(
    topic: LiveTopic, settings: LakeSettings, batched: bool, count: int
) -> None:
    messages = some(100)
    topic.send(messages, batched=batched)
    found = newest(settings, count)
    assert len(found) == min(count, 100)
    everything = newest(settings, 100)
    assert found == everything[100 - len(found) :]
    times = [each.publish_ms for each in everything]
    assert times == sorted(times)
    received = sorted((x.key or "", x.event_ms or 0, x.payload or b"") for x in everything)
    assert received == sorted((x.key or "", x.event_time_ms or 0, x.payload) for x in messages)
    assert {each.partition for each in everything} == {0, 1, 2}


def test_messages_in_earlier_ledgers_are_found(topic: LiveTopic, settings: LakeSettings) -> None:
    with PulsarAdmin(settings.connection) as admin:
        for number in range(3):
            topic.send([Outgoing(str(number).encode(), "k")])
            admin.unload(topic.name)  # its next use begins a ledger
    started = time.monotonic()
    assert [each.payload for each in newest(settings, 2)] == [b"1", b"2"]
    assert time.monotonic() - started < consume.QUIET_SECONDS, "it waited for nothing"


def test_entries_that_readers_do_not_see_are_read_past(
    topic: LiveTopic, settings: LakeSettings, java: JavaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume, "QUIET_SECONDS", 1.0)
    topic.send([Outgoing(str(number).encode(), "k") for number in range(4)])
    [partition] = {each.partition for each in newest(settings, 4)}
    producer = java.producer(f"{topic.name}-partition-{partition}")
    transaction = java.transaction()
    for _ in range(3):
        producer.newMessage(transaction).value(b"aborted").send()
    transaction.abort().get()
    assert [each.payload for each in newest(settings, 2)] == [b"2", b"3"]


def test_an_empty_topic_has_no_messages_and_is_not_waited_for(
    run: CommandLine, topic: LiveTopic, settings: LakeSettings
) -> None:
    started = time.monotonic()
    assert newest(settings, 10) == []
    assert time.monotonic() - started < consume.QUIET_SECONDS
    assert "payload" in run("consume", "things").out
    assert run("consume", "things", "--format", "json").out == ""


def test_no_subscription_stays(run: CommandLine, topic: LiveTopic, settings: LakeSettings) -> None:
    topic.send(some(10))
    assert run("consume", "things").exit_code == 0
    with PulsarAdmin(settings.connection) as admin:
        partitions = admin.partitions(topic.name)
        assert [admin.state(partition).cursors for partition in partitions] == [{}, {}, {}]
        until(
            lambda: all(not admin.internal_stats(each)["cursors"] for each in partitions),
            "the readers' cursors to go",
            seconds=20,
        )


def test_messages_are_shown_as_a_table_or_as_lines_of_json(
    run: CommandLine, topic: LiveTopic
) -> None:
    topic.send(
        [
            Outgoing(b'{"id": 7,\n "price": 13.750000000000002000}', "7", 1_767_323_045_678),
            Outgoing(b"no JSON", None),
            Outgoing(b"\xff", "8"),
            Outgoing(b"", "9"),
        ]
    )
    out = run("consume", "things", "--format", "json").out
    assert '"payload": {"id": 7,  "price": 13.750000000000002000}}' in out, "all digits are kept"
    rows = [json.loads(line) for line in out.splitlines()]
    rows = sorted(rows, key=lambda row: row["key"] or "")
    assert [row["payload"] for row in rows] == [
        *("no JSON", {"id": 7, "price": 13.750000000000002}, "/w==", None)
    ]
    assert [row.get("encoding") for row in rows] == ["text", None, "base64", None]
    assert [row["key"] for row in rows] == [None, "7", "8", "9"]
    assert rows[1]["event_time"] == "2026-01-02T03:04:05.678+00:00"
    assert rows[0]["event_time"] is None
    table = run("consume", "things").out
    assert "(tombstone)" in table
    assert "base64 /w==" in table
    [event] = re.findall(r"2026-01-02\s", table)
    assert event
    assert len(run("consume", "things", "--last", "2", "--format", "json").out.splitlines()) == 2


def test_payloads_are_decoded_by_their_schema(run: CommandLine, settings: LakeSettings) -> None:
    class Person(pulsar.schema.Record):  # type: ignore[misc]
        id = pulsar.schema.Integer()
        name = pulsar.schema.String()

    with PulsarAdmin(settings.connection) as admin:
        admin.ensure_namespace(settings.pulsar_namespace)
    client = settings.connection.client()
    schema = pulsar.schema.AvroSchema(Person)
    producer = client.create_producer(settings.full_topic("people"), schema=schema)
    producer.send(Person(id=7, name="Ada"))
    text = client.create_producer(settings.full_topic("words"), schema=pulsar.schema.StringSchema())
    text.send("hello")
    client.close()
    [line] = run("consume", "people", "--format", "json").out.splitlines()
    assert json.loads(line)["payload"] == {"id": 7, "name": "Ada"}
    [line] = run("consume", "words", "--format", "json").out.splitlines()
    assert json.loads(line)["payload"] == {"value": "hello"}


def test_an_unknown_topic_is_refused_with_the_declared_ones(
    run: CommandLine, topic: LiveTopic
) -> None:
    outcome = run("consume", "thing")
    assert outcome.exit_code == 2
    assert f"The broker has no topic {topic.name[:-1]}. Declared topics are things;" in outcome.err


def test_new_messages_are_followed_until_ctrl_c(
    topic: LiveTopic, settings: LakeSettings, topics: Path
) -> None:
    topic.send([Outgoing(b"1", "a"), Outgoing(b"2", "b")])
    # The children of a shell in the background ignore Ctrl-C.
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    start += "; from lakehouse.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", start, *("consume", "things", "--follow", "--format", "json")],
        env={**environment(settings, topics), "PYTHONPATH": ":".join(sys.path), "PATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stderr
    try:
        shown = [json.loads(process.stdout.readline())["payload"] for _ in range(2)]
        for number in (3, 4):
            topic.send([Outgoing(str(number).encode(), str(number))])
            shown.append(json.loads(process.stdout.readline())["payload"])
        assert sorted(shown) == [1, 2, 3, 4]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def test_neither_spark_nor_what_reads_tables_is_loaded(
    topic: LiveTopic, settings: LakeSettings, topics: Path
) -> None:
    for arguments in (("produce", "things", '{"id": 1}'), ("consume", "things")):
        script = (
            f"import sys; sys.argv = ['lakehouse', *{arguments}]\n"
            "from lakehouse.cli import main\n"
            "try: main()\n"
            "finally: print(*{name.partition('.')[0] for name in sys.modules})"
        )
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**environment(settings, topics), "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        loaded = {*done.stdout.splitlines()[-1].split()}
        assert "pulsar" in loaded
        assert not loaded & HEAVY, loaded & HEAVY
