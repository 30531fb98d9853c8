"""Tests that an erasure reaches topics and databases before the feeds of the tables are deleted."""

import json
import os
from pathlib import Path
from typing import Any

import psycopg
import pytest
from personal import SECRET
from postgres_server import PostgresServer
from pyspark.sql import SparkSession
from shop_lake import ShopLake
from topic import declared

from lake.settings.settings import LakeSettings
from lake.streams.job import await_streams
from lake.tables.lake import Lake
from lakehouse.erasure.run import forget
from lakehouse.messages.publish import create_topics
from lakehouse.runtime.broker import Broker
from lakehouse.sinks.running import chosen, run_sinks
from pulsar_spark.source import PulsarDataSource

TOPICS = """
[topics.people]
kind = "changelog"
key = ["id"]
[topics.people.fields]
id = "string"
name = { type = "string", personal = "keep" }

[topics.visits]
kind = "events"
key = ["id"]
[topics.visits.fields]
id = "long"
person = "string"
[topics.visits.lookups]
who = { topic = "people", on = "person" }

[publish.people_out]
from = "silver.people"
key = ["id"]

[publish.visits_out]
from = "silver.enriched_visits"
key = ["id"]
columns = ["id", "person"]

[export.people]
from = "silver.people"
table = "public.people"
key = ["id"]
url_env = "FOLLOWING_DB"

[export.visits]
from = "silver.enriched_visits"
table = "public.visits"
key = ["id"]
url_env = "FOLLOWING_DB"
"""
CANARY, NAME = "canary-4711", "Canaryname"


@pytest.mark.nightly
def test_the_deletion_of_a_person_is_sent_and_the_sinks_go_on(
    spark: SparkSession,
    broker: Broker,
    settings: LakeSettings,
    tmp_path: Path,
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database = postgres.create_database()
    monkeypatch.setitem(os.environ, "FOLLOWING_DB", database)
    (tmp_path / "secret").touch(mode=0o600)
    (tmp_path / "secret").write_text(SECRET)
    settings = settings.model_copy(update={"pseudonym_secret_file": tmp_path / "secret"})
    shop = ShopLake(spark, settings, declared(tmp_path, TOPICS))
    lake = Lake(settings, shop.topics)
    create_topics(lake)

    def turn(people: dict[str, str], visits: dict[int, str]) -> None:
        named = [(key, json.dumps({"id": key, "name": name})) for key, name in people.items()]
        made = [(key, json.dumps({"id": key, "person": who})) for key, who in visits.items()]
        for topic, sent in (("people", named), ("visits", made)):
            shop.send(topic, [(key, text.encode()) for key, text in sent])
        shop.catch_up()
        sinks = chosen(lake.topics)
        await_streams(run_sinks(spark, lake, sinks, available_now=True))

    def consumed(topic: str) -> dict[str, Any]:
        spark.dataSource.register(PulsarDataSource)
        options = {**settings.connection.options(), "topic": settings.full_topic(topic)}
        rows = spark.read.format("pulsar").options(**options).load().collect()
        found: dict[str, Any] = {}
        for row in sorted(rows, key=lambda row: (row.ledger, row.entry)):
            if row.payload:
                found[row.key] = json.loads(row.payload)
            else:
                found.pop(row.key, None)
        return found

    def exported(table: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(database, autocommit=True) as connection:
            return sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=str)

    turn({CANARY: NAME, "b": "Bob", "c": "bad\0"}, {1: CANARY, 2: "b"})
    assert consumed("people_out")[CANARY] == {"id": CANARY, "name": NAME}
    assert exported("people") == [("b", "Bob"), (CANARY, NAME)]
    assert len(exported("lakehouse_refused")) == 1
    proof = forget(spark, lake, CANARY, lambda *_: True, reason="asked", topic="people")
    assert proof is not None
    assert [part for part in proof.search() if part.found] == []
    assert consumed("people_out").keys() == {"b", "c"}
    visits = consumed("visits_out")
    assert visits["2"] == {"id": 2, "person": "b"}
    assert visits["1"]["person"] not in (CANARY, "b")
    assert exported("people") == [("b", "Bob")]
    assert {row[0]: row[1] for row in exported("visits")} == {
        1: visits["1"]["person"],
        2: "b",
    }
    for table in ("people", "visits", "lakehouse_refused"):
        assert CANARY not in str(exported(table))
        assert NAME not in str(exported(table))
    # The feeds are gone, and the sinks continue with later changes, each sent once.
    turn({"b": "Bobby", "d": "Dora"}, {3: "d", 2: "d"})
    assert consumed("people_out").keys() == {"b", "c", "d"}
    assert consumed("people_out")["b"]["name"] == "Bobby"
    assert consumed("visits_out") == {
        **visits,
        "2": {"id": 2, "person": "d"},
        "3": {"id": 3, "person": "d"},
    }
    assert exported("people") == [("b", "Bobby"), ("d", "Dora")]
    assert {row[0] for row in exported("visits")} == {1, 2, 3}
