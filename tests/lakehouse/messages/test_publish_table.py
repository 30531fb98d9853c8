"""Tests a table's changes as a changelog, sent to a real topic and read back into a table."""

import datetime as dt
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import Row, SparkSession
from shop_lake import ShopLake
from topic import declared

from lake.settings.settings import LakeSettings
from lake.streams.job import await_streams
from lake.tables.lake import Lake
from lakehouse.messages.publish import create_topics
from lakehouse.messages.publish_table import Form, as_messages, publish_table
from lakehouse.runtime.broker import Broker
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.errors import SettingsError
from pulsar_spark.source import PulsarDataSource
from silver.state.tombstones import collect_tombstones

TOPICS = """
[topics.accounts]
kind = "changelog"
key = ["bank", "id"]
delete = { field = "op", equals = "d" }
[topics.accounts.fields]
op = "string"
bank = "string"
id = "long"
owner = { type = "string", required = false }
balance = "decimal(12,2)"
"""
CAPTURED = """
[topics.people]
kind = "changelog"
key = ["id"]
envelope = "debezium"
updates = "{updates}"
tombstones_days = 1
[topics.people.fields]
id = "long"
name = {{ type = "string", required = false }}
"""
KEY = ["bank", "id"]
STATE = "silver.people_state"
JOINED = """
[topics.people]
kind = "changelog"
key = ["id"]
delete = { field = "op", equals = "d" }
[topics.people.fields]
id = "long"
op = "string"
account_id = { type = "string", required = false }

[views.people_per_account]
description = "People of each account"
key = ["account_id"]
columns = { account_id = "string", people = "bigint" }
sql = "SELECT account_id, count(*) AS people FROM people GROUP BY account_id"
"""
Send = Callable[[], None]


@pytest.fixture
def lake(spark: SparkSession, broker: Broker, settings: LakeSettings, tmp_path: Path) -> ShopLake:
    lake = ShopLake(spark, settings, declared(tmp_path, TOPICS))
    with PulsarAdmin(settings.connection) as admin:
        admin.ensure_namespace(settings.pulsar_namespace)
        admin.deduplicate(settings.pulsar_namespace)
    return lake


@pytest.fixture
def table(lake: ShopLake) -> DeltaTable:
    """`gold.accounts`, with a change data feed and two rows."""
    path = lake.settings.table_path("gold", "accounts")
    lake.spark.sql(
        f"CREATE TABLE delta.`{path}` (bank string, id bigint, owner string, "
        "balance decimal(12,2)) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    lake.spark.sql(f"INSERT INTO delta.`{path}` VALUES ('x', 1, 'Ada', 1.50), ('y', 1, null, 0)")
    return DeltaTable.forPath(lake.spark, path)


@pytest.fixture
def send(lake: ShopLake) -> Send:
    def send_it() -> None:
        options: dict[str, Any] = {"partitions": 2, "available_now": True}
        running = publish_table(
            lake.spark, Lake(lake.settings), "gold.accounts", "accounts", Form(KEY), **options
        )
        await_streams([running])

    return send_it


def sent(lake: ShopLake, topic: str = "accounts") -> list[Row]:
    lake.spark.dataSource.register(PulsarDataSource)
    rows = (
        lake.spark.read.format("pulsar")
        .options(**lake.settings.connection.options())
        .option("topic", lake.settings.full_topic(topic))
        .load()
        .collect()
    )
    return sorted(rows, key=lambda row: (row.ledger, row.entry, row.partition))


def test_creates_updates_and_deletes_arrive_in_the_order_of_each_key(
    lake: ShopLake, table: DeltaTable, send: Send
) -> None:
    send()
    table.update("bank = 'x'", {"balance": "balance + 1"})
    table.update("bank = 'x'", {"owner": "'O''Hara'"})
    table.delete("bank = 'y'")
    lake.spark.sql(
        f"INSERT INTO delta.`{table.detail().head()['location']}` VALUES ('y', 1, 'B', 9)"
    )
    send()
    x, y = ([row for row in sent(lake) if row.key == key] for key in ("x|1", "y|1"))
    assert [json.loads(row.payload) for row in x] == [
        {"op": "c", "bank": "x", "id": 1, "owner": "Ada", "balance": 1.5},
        {"op": "u", "bank": "x", "id": 1, "owner": "Ada", "balance": 2.5},
        {"op": "u", "bank": "x", "id": 1, "owner": "O'Hara", "balance": 2.5},
    ]
    assert [json.loads(row.payload) for row in y] == [
        {"op": "c", "bank": "y", "id": 1, "owner": None, "balance": 0.0},
        {"op": "d", "bank": "y", "id": 1},
        {"op": "c", "bank": "y", "id": 1, "owner": "B", "balance": 9.0},
    ]
    assert all(row.event_time is not None for row in (*x, *y))


def test_a_replayed_batch_sends_nothing_twice(
    lake: ShopLake, table: DeltaTable, send: Send
) -> None:
    send()
    table.update("bank = 'x'", {"balance": "balance + 1"})
    send()
    first = sent(lake)
    [checkpoint] = (lake.settings.lake_dir / "_checkpoints").iterdir()
    shutil.rmtree(checkpoint / "commits")
    send()
    assert len(first) == 3
    assert sent(lake) == first


def test_a_table_that_is_published_and_landed_again_is_unchanged(
    lake: ShopLake, table: DeltaTable, send: Send
) -> None:
    """The full round trip: table, changes, topic, bronze, silver's current state."""
    send()
    table.update("bank = 'x'", {"balance": "balance + 1"})
    table.delete("bank = 'y'")
    send()
    lake.catch_up()
    columns = ["bank", "id", "owner", "balance"]
    states = lake.table("accounts_state")
    assert states.where("NOT is_deleted").select(columns).collect() == table.toDF().collect()
    assert [(r["bank"], r["op"]) for r in states.where("is_deleted").collect()] == [("y", "d")]
    assert lake.quarantined() == set()


def test_a_deleted_key_of_silvers_state_is_sent_as_a_delete(lake: ShopLake, send: Send) -> None:
    path = lake.settings.table_path("gold", "accounts")
    lake.spark.sql(
        f"CREATE TABLE delta.`{path}` (bank string, id bigint, is_deleted boolean) "
        "USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    lake.spark.sql(f"INSERT INTO delta.`{path}` VALUES ('x', 1, true), ('y', 1, false)")
    send()
    lake.spark.sql(f"UPDATE delta.`{path}` SET is_deleted = NOT is_deleted")
    send()
    found = {
        key: [json.loads(r.payload) for r in sent(lake) if r.key == key] for key in ("x|1", "y|1")
    }
    assert {key: [row["op"] for row in rows] for key, rows in found.items()} == {
        "x|1": ["c"],  # nobody knew it as long as it was deleted
        "y|1": ["c", "d"],
    }
    assert all(row.keys() == {"op", "bank", "id"} for rows in found.values() for row in rows)


@pytest.mark.nightly
@pytest.mark.parametrize("updates", ["whole", "partial"])
def test_a_consumer_has_silvers_rows_after_truncations_and_collected_tombstones(
    spark: SparkSession, broker: Broker, settings: LakeSettings, tmp_path: Path, updates: str
) -> None:
    lake = ShopLake(spark, settings, declared(tmp_path, CAPTURED.format(updates=updates)))
    create_topics(Lake(settings, lake.topics))
    people = lake.topics.topics["people"]
    right: dict[int, str] = {}

    def capture(*changes: tuple[str, int, str]) -> None:
        """Send changes as Debezium captures them, and apply them to the expected rows."""
        for op, key, name in changes:
            if op == "t":
                right.clear()
            elif op == "d":
                right.pop(key, None)
            else:
                right[key] = name
        row = [(op, {"id": key, "name": name}) for op, key, name in changes]
        payloads = [
            {"op": op, "before": each if op == "d" else None, "after": each if op in "cu" else None}
            for op, each in row
        ]
        lake.send("people", [("k", json.dumps(each).encode()) for each in payloads])
        lake.catch_up()

    def consumed(topic: str) -> dict[int, str]:
        """Return the rows of a consumer that applies the topic from its beginning."""
        form = Form(["id"])
        await_streams(
            [publish_table(spark, Lake(settings), STATE, topic, form, available_now=True)]
        )
        rows: dict[int, str] = {}
        for message in sent(lake, topic):
            content = json.loads(message.payload)
            assert "mark" not in content
            assert message.key == str(content["id"])
            if content["op"] == "d":
                rows.pop(content["id"], None)
            else:
                rows[content["id"]] = content["name"]
        return rows

    capture(("c", 1, "a"), ("c", 2, "b"), ("c", 3, "c"), ("d", 2, "b"))
    assert consumed("followed") == right == {1: "a", 3: "c"}
    capture(("u", 3, "d"), ("t", 0, ""), ("c", 4, "e"), ("c", 1, "f"))
    assert consumed("followed") == right == {4: "e", 1: "f"}
    capture(("d", 4, "e"), ("c", 5, "g"))
    then = dt.datetime.now(dt.timezone.utc) + dt.timedelta(days=2)
    assert collect_tombstones(spark, Lake(settings), people, then) == 1
    capture(("c", 4, "h"), ("c", 2, "i"))
    assert consumed("followed") == consumed("from-the-rows") == right
    state = lake.table("people_state")
    assert {row["mark"] for row in state.collect()} == {None, "truncated", "collected"}
    assert {r["id"]: r["name"] for r in state.where("NOT is_deleted").collect()} == right


@pytest.mark.nightly
def test_an_aggregate_of_a_changelog_is_a_changelog(
    spark: SparkSession, broker: Broker, settings: LakeSettings, tmp_path: Path
) -> None:
    """Messages go to bronze, to a view with a key, and its changes to a topic again."""
    people = ShopLake(spark, settings, declared(tmp_path, JOINED))
    create_topics(Lake(settings, people.topics))

    def change(*changes: tuple[int, str | None]) -> None:
        """Let people join an account or leave (None), then bring everything up to date."""
        client = settings.connection.client()
        producer = client.create_producer(settings.full_topic("people"))
        for who, account in changes:
            content = {"op": "d"} if account is None else {"op": "u", "account_id": account}
            payload = json.dumps({"id": who, **content}).encode()
            producer.send(payload, partition_key=str(who))
        client.close()
        people.catch_up()
        name, form = "silver.people_per_account", Form(["account_id"])
        await_streams(
            [publish_table(spark, Lake(settings), name, "accounts", form, available_now=True)]
        )

    change((1, "a"), (2, "a"), (3, "b"), (5, "a"), (6, "d"))
    change((1, None), (2, "b"), (3, None), (4, "c"), (6, None))
    found: dict[str, list[tuple[str, int | None]]] = {}
    for row in sent(people):
        content = json.loads(row.payload)
        found.setdefault(row.key, []).append((content["op"], content.get("people")))
    assert found == {
        "a": [("c", 3), ("u", 1)],
        "b": [("c", 1)],  # one joined and one left
        "c": [("c", 1)],
        "d": [("c", 1), ("d", None)],
    }


def test_a_table_that_cannot_be_published_is_refused(lake: ShopLake, table: DeltaTable) -> None:
    def refused(says: str, name: str = "gold.accounts", **options: Any) -> None:
        form = Form(**{"key": KEY, **options})
        with pytest.raises(SettingsError, match=says):
            publish_table(lake.spark, Lake(lake.settings), name, "accounts", form)

    refused("'accounts' is not a table name", "accounts")
    refused("The table gold.nothing does not exist", "gold.nothing")
    refused("no column 'iban' for 'key'. Its columns are bank, id", key=["iban"])
    refused("already has a column 'owner'", op="owner")
    path = lake.settings.table_path("gold", "accounts")
    lake.spark.sql(
        f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES (delta.enableChangeDataFeed = false)"
    )
    refused("has no change data feed. Turn it on: .*enableChangeDataFeed = true")


def test_names_may_have_dots_and_backticks(spark: SparkSession) -> None:
    kinds = "_change_type string, _commit_version bigint, _commit_timestamp timestamp"
    row = ("x", "v", "insert", 1, dt.datetime(2026, 1, 1))  # noqa: DTZ001 - any time
    feed = spark.createDataFrame([row], f"`k.1` string, `a``b.c` string, {kinds}")
    [sent] = as_messages(feed, Form(["k.1"], properties={"p": "a`b.c"})).collect()
    assert (sent.key, sent.properties) == ("x", {"p": "v"})
    assert json.loads(sent.payload) == {"op": "c", "k.1": "x", "a`b.c": "v"}
