"""Tests topics whose address on the broker is not their declared name, through all commands."""

import json
from pathlib import Path
from typing import Any

import pytest
from _pulsar import SchemaType
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from registry import Raw, avro, record
from topic import declared

from bronze.ingest import ingest, landed_topics, subscription
from bronze.lag import topic_lag
from bronze.replay import replay_topic
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import checkpoint_id
from lake.streams.job import await_streams
from lake.tables.lake import Lake
from lakehouse.messages.encode import RowError
from lakehouse.messages.publish import create_topics, publish
from lakehouse.operate import doctor, savepoints
from lakehouse.operate.reset import reset
from lakehouse.operate.status import lake_status
from lakehouse.runtime.broker import Broker
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.errors import CheckpointError, SettingsError
from silver.refine import refine

ODD = "transactions.debits:eu=1~%2F!$&'()*;<>@[]^_`{|}#?"  # what Pulsar allows, and URLs do not
FILE = """
[topics.debits]
kind = "events"
key = ["id"]
topic = {address}
partitions = {partitions}
fields = {{ id = "long" }}
"""


def lake_at(settings: LakeSettings, folder: Path, address: str, partitions: int = 2) -> Lake:
    text = FILE.format(address=json.dumps(address), partitions=partitions)
    return Lake(settings, declared(folder, text))


def land(spark: SparkSession, lake: Lake) -> None:
    await_streams(ingest(spark, lake, available_now=True))


def send(lake: Lake, folder: Path, ids: range) -> None:
    (folder / "debits.csv").write_text("\n".join(["id", *map(str, ids)]))
    publish(lake, folder)


def topics_in_bronze(lake: Lake) -> list[str]:
    table = DeltaTable(lake.settings.table_path("bronze", "debits")).to_pyarrow_table(
        columns=["topic"]
    )
    return table["topic"].to_pylist()  # type: ignore[no-any-return]


def test_every_command_finds_a_topic_at_its_address(
    spark: SparkSession, broker: Broker, settings: LakeSettings, tmp_path: Path
) -> None:
    """In a tenant and namespace that do not exist before, under a name that URLs must quote."""
    namespace = f"bank-{settings.pulsar_namespace[-8:]}/prod.eu"
    address = f"persistent://{namespace}/{ODD}"
    lake = lake_at(settings, tmp_path, address)
    create_topics(lake)
    send(lake, tmp_path, range(20))
    land(spark, lake)
    assert topics_in_bronze(lake) == [address] * 20
    await_streams(refine(spark, lake, available_now=True))
    send(lake, tmp_path, range(7))
    with PulsarAdmin(settings.connection) as admin:
        assert topic_lag(admin, lake, "debits").entries > 0
        mine = subscription(str(checkpoint_id(settings, "bronze.debits")))
        partitions = admin.partitions(address)
        assert len(partitions) == 2
        assert all(admin.subscription(each, mine) for each in partitions)
        [line] = [line for line in lake_status(lake) if line.table == "bronze.debits"]
        assert line.lag_messages

        savepoints.create(lake, "sp")
        assert all(admin.subscription(each, f"{mine}-sp") for each in partitions)
        [found] = doctor.declared_topics(lake)
        assert (found.state, found.found) == (
            "ok",
            "2 partitions; keeps messages that have not landed",
        )
        assert replay_topic(spark, lake, lake.topics.topics["debits"], 0) == 0

        elsewhere = lake_at(settings, tmp_path, "other")
        with pytest.raises(SettingsError, match=f"'debits' was {namespace and 'persistent'}.*time"):
            savepoints.restore(spark, elsewhere, "sp")
        savepoints.drop(elsewhere, "sp")
        assert not any(admin.subscription(each, f"{mine}-sp") for each in partitions)
        reset(elsewhere)
        assert not any(admin.subscription(each, mine) for each in partitions)


@pytest.mark.parametrize("partitions", [2, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_landed_topic_cannot_get_another_address(
    spark: SparkSession,
    broker: Broker,
    settings: LakeSettings,
    tmp_path: Path,
    partitions: int,
) -> None:
    before = lake_at(settings, tmp_path, "one", partitions)
    after = lake_at(settings, tmp_path, "other", partitions)
    for lake in (before, after):
        create_topics(lake)
    send(before, tmp_path, range(5))
    land(spark, before)
    send(after, tmp_path, range(5))
    refused = f"declared as {after.address('debits')}, but bronze.debits holds messages of .*/one,"
    with pytest.raises(CheckpointError, match=refused):
        land(spark, after)
    with pytest.raises(CheckpointError, match=refused):
        replay_topic(spark, after, after.topics.topics["debits"], 0)
    [finding] = doctor.declared_topics(after)
    assert finding.state == "fail"
    assert "holds messages of" in finding.found
    [name] = before.address("debits").names
    assert landed_topics(settings, "debits") == {name}
    assert topics_in_bronze(before) == [name] * 5
    land(spark, before)


SEVERAL = """
[topics.debits]
kind = "events"
key = ["id"]
topic = {names}
partitions = 2
[topics.debits.fields]
id = "long"
source = {{ type = "string", from_message = "topic" }}

[topics.readings]
kind = "events"
key = ["source", "id"]
schema = "registry"
pattern = "device-.*"
[topics.readings.fields]
id = "long"
source = {{ type = "string", from_message = "topic" }}
level = "double"
"""
SCHEMAS = (record(id="long", level="double"), record(level="double", note="string", id="long"))


def several(settings: LakeSettings, folder: Path, names: list[str]) -> Lake:
    return Lake(settings, declared(folder, SEVERAL.format(names=json.dumps(names))))


def measure(settings: LakeSettings, device: str, schema: int, ids: range) -> None:
    """Send readings to a topic whose schema is the first in the registry, and differs by topic."""
    client = settings.connection.client()
    try:
        raw = Raw(SchemaType.AVRO, SCHEMAS[schema])
        producer = client.create_producer(settings.full_topic(device), schema=raw)
        for number in ids:
            producer.send(
                avro(SCHEMAS[schema], {"id": number, "level": number / 2, "note": device})
            )
    finally:
        client.close()


def rows_of(lake: Lake, table: str, *columns: str) -> list[tuple[Any, ...]]:
    found = DeltaTable(lake.settings.table_path("silver", table)).to_pyarrow_table()
    return sorted(tuple(row[c] for c in columns) for row in found.to_pylist())


def test_several_topics_land_in_one_table(
    spark: SparkSession,
    broker: Broker,
    settings: LakeSettings,
    tmp_path: Path,
    is_nightly: bool,
) -> None:
    """A list in two namespaces, and a pattern with topics that appear later.

    At night, also with a savepoint before the last of these is restored.
    """
    elsewhere = f"persistent://bank-{settings.pulsar_namespace[-8:]}/prod/credits"
    lake = several(settings, tmp_path, ["one", elsewhere])
    one, a, b = (settings.full_topic(name) for name in ("one", "device-a", "device-b"))
    create_topics(lake)
    [none] = [x for x in doctor.declared_topics(lake) if x.check == "topic readings"]
    assert (none.state, none.found) == (
        "warn",
        f"the broker has no topics matching {settings.full_topic('device-.*')}",
    )
    land(spark, lake)  # no topic matches yet

    def send_both(begin: int) -> None:
        lines = [f"{n},{'one' if n % 3 else elsewhere}" for n in range(begin, begin + 30)]
        (tmp_path / "debits.csv").write_text("\n".join(["id,source", *lines]))
        publish(lake, tmp_path)

    def debits(end: int) -> list[tuple[int, str]]:
        return [(n, one if n % 3 else elsewhere) for n in range(end)]

    def run() -> None:
        land(spark, lake)
        await_streams(refine(spark, lake, available_now=True))
        assert not rows_of(lake, "quarantine", "reason")

    send_both(0)
    measure(settings, "device-a", 0, range(3))
    measure(settings, "device-other", 1, range(0))
    run()
    assert rows_of(lake, "enriched_debits", "id", "source") == debits(30)
    readings = [(a, n, n / 2) for n in range(3)]
    assert rows_of(lake, "enriched_readings", "source", "id", "level") == readings
    if is_nightly:
        savepoints.create(lake, "sp")

    send_both(30)
    measure(settings, "device-b", 1, range(4))
    run()
    more = [*readings, *((b, n, n / 2) for n in range(4))]
    assert rows_of(lake, "enriched_readings", "source", "id", "level") == more
    if is_nightly:
        savepoints.restore(spark, lake, "sp")
        assert rows_of(lake, "enriched_readings", "source", "id", "level") == readings
        run()
    assert rows_of(lake, "enriched_debits", "id", "source") == debits(60)
    assert rows_of(lake, "enriched_readings", "source", "id", "level") == more
    with PulsarAdmin(settings.connection) as admin:
        assert topic_lag(admin, lake, "readings").entries == 0
    assert replay_topic(spark, lake, lake.topics.topics["readings"], 0) == 0
    assert {x.found.partition(";")[0] for x in doctor.declared_topics(lake)} == {
        "2 topics, 4 partitions",
        "3 topics, 3 partitions",
    }

    (tmp_path / "debits.csv").write_text("id,source\n1,three")
    with pytest.raises(RowError, match="column 'source' has 'three', which is not a valid name in"):
        publish(lake, tmp_path)
    lake = several(settings, tmp_path, ["three", "one", elsewhere])
    create_topics(lake)
    publish(lake, tmp_path)
    (tmp_path / "debits.csv").write_text("id,source\n100,three")
    publish(lake, tmp_path)
    run()
    three = settings.full_topic("three")
    latest = [(1, three) if n == 1 else (n, name) for n, name in debits(60)]
    assert rows_of(lake, "enriched_debits", "id", "source") == [*latest, (100, three)]
    with pytest.raises(CheckpointError, match="bronze.debits holds messages of .*/one, and posi"):
        land(spark, several(settings, tmp_path, ["three", elsewhere]))
