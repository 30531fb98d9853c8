"""Tests which CSV files are published, and how a file that does not fit is refused."""

import time
from pathlib import Path

import pulsar
import pytest
from topic import declared

from lake.settings.settings import LakeSettings
from lake.tables.lake import Lake
from lakehouse.messages.consume import Tail
from lakehouse.messages.encode import EncodeError, RowError
from lakehouse.messages.publish import (
    REPORT_EVERY,
    create_topics,
    files_to_publish,
    messages,
    publish,
)
from lakehouse.runtime.broker import Broker
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.errors import SettingsError

TOPICS = """
[topics.sales]
kind = "events"
key = ["id"]
event_time = "at"
[topics.sales.fields]
id = "long"
at = "timestamp_ms"

[topics.people]
kind = "changelog"
key = ["id"]
partitions = 2
[topics.people.fields]
id = "long"
name = { type = "string", required = false }
"""


@pytest.fixture
def lake(settings: LakeSettings, tmp_path: Path) -> Lake:
    return Lake(settings, declared(tmp_path, TOPICS))


def test_changelogs_are_published_first_and_absent_files_are_skipped(
    lake: Lake, tmp_path: Path
) -> None:
    for name in ("sales", "other"):
        (tmp_path / f"{name}.csv").touch()
    assert [topic.name for topic, _ in files_to_publish(lake.topics, tmp_path)] == ["sales"]
    (tmp_path / "people.csv").touch()
    found = files_to_publish(lake.topics, tmp_path)
    assert [file.name for _, file in found] == ["people.csv", "sales.csv"]


def test_a_folder_without_files_or_a_topic_that_is_not_json_is_refused(
    lake: Lake, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match="has no file to publish.*sales.csv, people.csv"):
        files_to_publish(lake.topics, tmp_path)
    with pytest.raises(SettingsError, match="none is not a folder"):
        files_to_publish(lake.topics, tmp_path / "none")
    (tmp_path / "people.csv").touch()
    for name, value in (("schema", "registry"), ("envelope", "debezium")):
        odd = TOPICS.replace('"changelog"', f'"changelog"\n{name} = "{value}"').replace(
            "= 2", "= 1"
        )
        with pytest.raises(SettingsError, match=f"{name} = '{value}'.*your own producer"):
            files_to_publish(declared(tmp_path, odd), tmp_path)


def test_rows_become_messages_and_changelogs_are_kept_for_ever(
    broker: Broker, lake: Lake, tmp_path: Path
) -> None:
    create_topics(lake)
    create_topics(lake)
    people = (f"{n},name {n}\n" for n in range(REPORT_EVERY + 1))
    (tmp_path / "people.csv").write_text("id,name\n" + "".join(people))
    (tmp_path / "sales.csv").write_text("id,at\n7,2026-01-02 03:04:05\n")
    told: list[tuple[str, int]] = []
    counts = publish(lake, tmp_path, lambda topic, sent: told.append((topic, sent)))
    assert counts == {"people": REPORT_EVERY + 1, "sales": 1}
    assert told == [("people", REPORT_EVERY), ("people", REPORT_EVERY + 1), ("sales", 1)]
    with PulsarAdmin(lake.settings.connection) as admin:
        full = {name: lake.settings.full_topic(name) for name in ("people", "sales")}
        kept = {name: admin.policy(each, "retention") for name, each in full.items()}
        assert len(admin.partitions(full["people"])) == 2
    for_ever = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    assert kept["people"] == for_ever
    client = lake.settings.connection.client()
    try:
        message = client.create_reader(full["sales"], pulsar.MessageId.earliest).read_next(10_000)
        assert (message.data(), message.partition_key()) == (b'{"id":7,"at":1767323045000}', "7")
        assert message.event_timestamp() == 1_767_323_045_000
    finally:
        client.close()


def test_rows_that_do_not_fit_can_be_left_out_and_are_reported_one_by_one(
    broker: Broker, lake: Lake, tmp_path: Path
) -> None:
    create_topics(lake)
    (tmp_path / "people.csv").write_text('id,name\n1,a\ntwo,b\n3\n4,"a\nb"\n5,,\n6,f\n')
    bad: list[tuple[str, str]] = []
    counts = publish(
        lake, tmp_path, on_bad=lambda topic, error: bad.append((topic.name, str(error)))
    )
    assert counts == {"people": 3}
    lines = [error.partition(f"{tmp_path}/people.csv:")[2][:24] for _, error in bad]
    assert lines == [
        "3: column 'id' has 'two'",
        "4: the row has 1 cell, b",
        "7: the row has 3 cells, ",
    ]
    assert {name for name, _ in bad} == {"people"}
    (tmp_path / "people.csv").write_text("name\na\n")
    with pytest.raises(EncodeError, match="has no column 'id'"):
        publish(lake, tmp_path, on_bad=lambda *_: None)


def test_messages_are_sent_at_the_given_rate_over_all_files(
    broker: Broker, lake: Lake, tmp_path: Path
) -> None:
    create_topics(lake)
    (tmp_path / "people.csv").write_text("id\n" + "".join(f"{n}\n" for n in range(600)))
    (tmp_path / "sales.csv").write_text("id,at\n" + "".join(f"{n},{n + 1}\n" for n in range(600)))
    begun = time.monotonic()
    assert publish(lake, tmp_path, rate=600) == {"people": 600, "sales": 600}
    assert 1.9 < time.monotonic() - begun < 4, "1200 messages at 600 per second"


def test_a_cell_that_no_csv_reader_accepts_is_refused_by_its_line(
    lake: Lake, tmp_path: Path
) -> None:
    (tmp_path / "people.csv").write_text(f"id,name\n1,{'a' * 200_000}\n")
    topic = lake.topics.topics["people"]
    with pytest.raises(EncodeError, match="people.csv:2: the file is not CSV from here .*limit"):
        list(messages(topic, tmp_path / "people.csv", on_bad=lambda *_: None))


def test_a_file_may_begin_with_the_mark_of_a_spreadsheet(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_bytes(b"\xef\xbb\xbfid,name\r\n 07,Zo\xc3\xab\r\n")
    [message] = messages(lake.topics.topics["people"], tmp_path / "people.csv")
    assert message.value.decode() == '{"id":7,"name":"Zo\\u00eb"}'
    assert message.key == "7", "as in the payload"


def test_the_rows_before_one_that_ends_the_command_are_sent(
    broker: Broker, lake: Lake, tmp_path: Path
) -> None:
    create_topics(lake)
    rows = "".join(f"{n},a\n" for n in range(500))
    (tmp_path / "people.csv").write_text(f"id,name\n{rows}no number,a\n")
    with pytest.raises(RowError, match="people.csv:502"):
        publish(lake, tmp_path)
    with Tail(lake.settings, lake.address("people").names[0]) as tail:
        assert len(tail.newest(1000)) == 500


@pytest.mark.parametrize(
    ("content", "kind", "says"),
    [
        (b"id,name\n1,a,b\n", RowError, "people.csv:2: the row has 3 cells, but the header has 2"),
        (b"id,name\n1\n", RowError, r"2: the row has 1 cell, but the header .* \(id, name\)"),
        (b"id,name\n1,a,b\n", RowError, "contains a comma.*double quotes. Correct the row, or lea"),
        (b"id,name\n1,\xff\n", SettingsError, "is not UTF-8 .*Convert it"),
        (b"id,name\none,a\n", RowError, "people.csv:2: column 'id' has 'one'"),
        (b"name\na\n", EncodeError, "has no column 'id'"),
        (b"id,name,id\n1,a,2\n", EncodeError, "has the column 'id' twice"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_its_line(
    broker: Broker, lake: Lake, tmp_path: Path, content: bytes, kind: type[Exception], says: str
) -> None:
    create_topics(lake)
    (tmp_path / "people.csv").write_bytes(content)
    with pytest.raises(kind, match=says):
        publish(lake, tmp_path)
