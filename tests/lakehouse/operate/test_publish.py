"""Tests which CSV files are published, and how a file that does not fit is refused."""

from pathlib import Path

import pulsar
import pytest
from topic import declared

from lake.settings.settings import LakeSettings
from lake.tables.lake import Lake
from lakehouse.operate.encode import EncodeError
from lakehouse.operate.publish import REPORT_EVERY, create_topics, files_to_publish, publish
from lakehouse.runtime.broker import Broker
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.errors import LakehouseError, SettingsError

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
    avro = declared(tmp_path, TOPICS.replace('"changelog"', '"changelog"\nschema = "registry"'))
    (tmp_path / "people.csv").touch()
    with pytest.raises(SettingsError, match="schema = 'registry'.*your own producer"):
        files_to_publish(avro, tmp_path)


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


@pytest.mark.parametrize(
    ("content", "kind", "says"),
    [
        (b"id,name\n1,a,b\n", LakehouseError, "people.csv:2: the row and the header differ"),
        (b"id,name\n1\n", LakehouseError, "people.csv:2: the row and the header differ"),
        (b"id,name\n1,\xff\n", SettingsError, "is not UTF-8 .*Convert it"),
        (b"id,name\none,a\n", EncodeError, "people.csv:2: column 'id' has 'one'"),
        (b"name\na\n", EncodeError, "has no column 'id'"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_its_line(
    broker: Broker, lake: Lake, tmp_path: Path, content: bytes, kind: type[Exception], says: str
) -> None:
    create_topics(lake)
    (tmp_path / "people.csv").write_bytes(content)
    with pytest.raises(kind, match=says):
        publish(lake, tmp_path)
