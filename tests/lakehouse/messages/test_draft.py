"""Tests the topic file that is drafted from topics of a real broker."""

import json
import sys
from pathlib import Path

import pulsar
import pytest
from pulsar.schema import Array, AvroSchema, Float, Integer, Map, Record, String
from topic import LiveTopic, Outgoing

from lake.settings.settings import LakeSettings, load_settings
from lake.topics.topic_file import TopicFile, load_topics
from lakehouse.init import init
from lakehouse.messages.consume import Received
from lakehouse.messages.draft import _declaration, _found, draft
from lakehouse.runtime.broker import Broker
from pulsar_spark.errors import SettingsError
from pulsar_spark.offsets import Position

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class Named(LiveTopic):
    """A topic with a name that a declaration cannot have."""

    def __init__(self, settings: LakeSettings, name: str, partitions: int = 1) -> None:
        self.settings = settings
        self.name = settings.full_topic(name)
        self.create(partitions)


def of(value: object, key: str | None = None) -> Outgoing:
    return Outgoing(json.dumps(value).encode(), key)


def drafted(settings: LakeSettings, folder: Path) -> tuple[str, TopicFile]:
    text = draft(settings)
    (folder / "topics.toml").write_text(text)
    return text, load_topics(folder / "topics.toml")


def test_types_keys_and_kinds_come_from_a_sample(
    settings: LakeSettings, broker: Broker, tmp_path: Path
) -> None:
    Named(settings, "device-readings", 2).send(
        of(
            {
                "sensor": f"s{n % 3}",
                "readingId": f"r{n}",
                "value": n / 2 if n % 2 else n,
                "isNew": n > 2,
                "measuredAt": 1_767_225_600_000 + n,
                "day": "2026-01-31",
                "sent": "2026-01-31T12:00:00Z",
                "place": {"x": 1, "geo.lat": 1.5, **({"floor": None} if n else {"floor": 2})},
                "tags": ["a"] * n,
                "lines": [{"sku": "s", "n": n, "parts": [1.5]}],
                "mixed": [1, "x"],
                "user-agent": "curl",
                "publishTime": 5,
                **({"note": "?"} if n > 1 else {}),
            },
            f"r{n}",
        )
        for n in range(6)
    )
    states = [of({"id": n % 2, "name": None if n else "x"}, str(n % 2)) for n in range(4)]
    LiveTopic(settings, "sensors", 1).send(states)
    LiveTopic(settings, "words", 1).send([Outgoing(b"not JSON", "k")])
    Named(settings, "__internal")
    LiveTopic(settings, "empty", 1)
    text, found = drafted(settings, tmp_path)
    assert {*found.topics} == {"device_readings", "sensors", "words"}
    readings = found.topics["device_readings"]
    assert (readings.topic, readings.kind, readings.key) == (
        *(("device-readings",), "events"),
        ["readingId"],
    )
    assert (readings.partitions, readings.event_time) == (2, "measuredAt")
    places = {name: spec.path for name, spec in readings.fields.items() if spec.path}
    assert places == {
        "place_x": ("place", "x"),
        "place_geo_lat": ("place", "geo.lat"),
        "place_floor": ("place", "floor"),
        "user_agent": ("user-agent",),
    }
    assert {name: (spec.type, spec.required) for name, spec in readings.fields.items()} == {
        "place_x": ("long", True),
        "place_geo_lat": ("double", True),
        "place_floor": ("long", False),
        "tags": ("array<string>", True),
        "lines": ("array<struct<sku: string, n: long, parts: array<double>>>", True),
        "user_agent": ("string", True),
        "sensor": ("string", True),
        "readingId": ("string", True),
        "value": ("double", True),
        "isNew": ("boolean", True),
        "measuredAt": ("timestamp_ms", True),
        "day": ("date", True),
        "sent": ("timestamp", True),
        "note": ("string", False),
    }
    assert "# mixed: its values are list, for which there is no type." in text
    assert "# publishTime: the column publish_time is taken." in text
    sensors = found.topics["sensors"]
    assert (sensors.kind, sensors.key) == ("changelog", ["id"])
    assert not sensors.fields["name"].required
    assert (found.topics["words"].format, found.topics["words"].key) == ("string", ["key"])
    assert "# [topics.empty]" in text


class Address(Record):  # type: ignore[misc]
    city = String(required=True)
    height = Float()


class Person(Record):  # type: ignore[misc]
    id = Integer(required=True)
    name = String()
    home = Address(required=True)
    work = Address()
    names = Array(String(), required=True)
    places = Map(Address())


def test_fields_of_a_schema_are_those_of_the_registry(
    settings: LakeSettings, broker: Broker, tmp_path: Path
) -> None:
    topic = LiveTopic(settings, "people", 1)
    client = settings.connection.client()
    producer = client.create_producer(topic.name, schema=AvroSchema(Person))
    home = Address(city="Lyon", height=1.5)
    person = Person(id=1, name="Ada", home=home, work=home, names=["A"], places={"a": home})
    producer.send(person, partition_key="1")
    client.create_producer(
        LiveTopic(settings, "numbers", 1).name, schema=pulsar.schema.StringSchema()
    ).send("x", partition_key="a")
    client.close()
    _, found = drafted(settings, tmp_path)
    people = found.topics["people"]
    assert (people.format, people.key) == ("registry", ["id"])
    assert {name: (spec.type, spec.required) for name, spec in people.fields.items()} == {
        "id": ("int", True),
        "name": ("string", False),
        "home_city": ("string", True),
        "home_height": ("float", False),
        "work_city": ("string", False),
        "work_height": ("float", False),
        "names": ("array<string>", True),
        "places": ("map<string, struct<city: string, height: float>>", False),
    }
    assert people.fields["work_city"].path == ("work", "city")
    assert found.topics["numbers"].format == "registry"


def test_a_project_declares_the_topics_of_its_broker(
    settings: LakeSettings, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    LiveTopic(settings, "sensors", 1).send([of({"id": 1}, "1"), of({"id": 1}, "1")])
    files = {str(file) for file in init(tmp_path / "plant", broker=settings)}
    assert "dbt/models/staging/stg_sensors.sql" in files
    assert not any(file.startswith("sample") for file in files)
    monkeypatch.chdir(tmp_path / "plant")
    own = load_settings()
    assert own.pulsar_namespace == settings.pulsar_namespace
    assert own.pulsar_url == settings.pulsar_url
    assert [*load_topics(own.topics).topics] == ["sensors"]
    model = Path("dbt/models/staging/stg_sensors.sql").read_text()
    assert "where not is_deleted" in model
    assert "unique_key=['id']" in model


def test_a_namespace_without_topics_is_refused(settings: LakeSettings, broker: Broker) -> None:
    Named(settings, "__only")
    with pytest.raises(SettingsError, match="has no topics"):
        draft(settings)
    LiveTopic(settings, "empty", 1)
    with pytest.raises(SettingsError, match="has a message or a schema to draft from"):
        draft(settings)


def message(payload: str) -> Received:
    return Received(-1, Position(1, 0, 0), "k", 1, None, payload.encode(), None)


def test_odd_names_give_a_file_that_can_be_read() -> None:
    odd = {"a\nb = 1": [1, "x"], "c\x7fd": 1, 'e"f': 1, "g.h": 1, "\ud800": 1, "i j": {"k": 2}}
    found = _found([], [message(json.dumps({"id": 1, **odd}))])
    text = _declaration("t", 'persistent://p/d/o"d\\d', found, [], 1)
    read = tomllib.loads(text)["topics"]["t"]
    assert read["topic"] == 'o"d\\d'
    assert [*read["fields"]] == ["id", "g_h", "i_j_k"]
    assert "# a?b = 1: its values are list" in text
    text.encode()


@pytest.mark.parametrize("data", ['{"type": "string"}', '{"type": "object"}', '["null"]', "?"])
def test_a_schema_that_is_no_record_is_drafted_from_the_sample(data: str) -> None:
    payloads = ['{"id": 1}', "[" * 100_000]
    found = _found([{"version": 0, "type": "JSON", "data": data}], [*map(message, payloads)])
    assert {name: field.kind for name, field in found.fields.items()} == {"id": "long"}
