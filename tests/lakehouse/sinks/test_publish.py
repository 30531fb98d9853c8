"""Tests the sinks to topics that a topic file declares, on a real broker."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import Row, SparkSession
from shop_lake import ShopLake
from topic import declared

from lake.settings.settings import LakeSettings
from lake.streams.job import await_streams
from lake.tables.lake import Lake
from lake.tables.spec import CHANGE_FEED
from lakehouse.messages.publish import create_topics
from lakehouse.operate.plan import refused_sinks
from lakehouse.operate.status import lake_status
from lakehouse.runtime.broker import Broker
from lakehouse.sinks.publish import publish_sinks
from lakehouse.sinks.running import chosen
from lakehouse.sinks.state import sink_states
from pulsar_spark.errors import CheckpointError, LakehouseError, SettingsError
from pulsar_spark.source import PulsarDataSource

TOPICS = """
[topics.accounts]
kind = "changelog"
key = ["id"]
delete = { field = "op", equals = "d" }
[topics.accounts.fields]
op = "string"
id = "string"
district = { type = "string", required = false }

[topics.transactions]
kind = "events"
key = ["id"]
event_time = "at"
[topics.transactions.fields]
id = "long"
account = "string"
amount = "decimal(12,2)"
at = "timestamp"
[topics.transactions.lookups]
holder = { topic = "accounts", on = "account" }

[views.balances]
description = "Balance of each account. Grain: one account"
key = ["account"]
columns = { account = "string", balance = "decimal(22,2)" }
sql = "SELECT account, sum(amount) AS balance FROM enriched_transactions GROUP BY account"
"""
SINKS = """
[publish.debits]
from = "silver.enriched_transactions"
where = "amount < 0"
topic = "persistent://bank/{namespace}/transactions.debits"
partitions = 2
key = ["id"]
columns = ["id", "account", "amount"]
event_time = "at"
properties = {{ tenant = "account" }}

[publish.overdrawn]
from = "silver.balances"
where = "balance < 0"
key = ["account"]
deletes = {{ field = "op" }}

[publish.unknown_accounts]
from = "silver.missing_holder"
key = ["id"]
columns = ["id", "account"]

[publish.districts]
from = "silver.accounts"
where = "district IS NOT NULL"
key = ["id"]
"""


class Bank:
    """A lake of a bank with sinks. `turn` sends messages and brings everything up to date."""

    def __init__(self, spark: SparkSession, settings: LakeSettings, folder: Path) -> None:
        self.spark, self.settings = spark, settings
        self.namespace = settings.pulsar_namespace.rpartition("/")[2]
        text = TOPICS + SINKS.format(namespace=self.namespace)
        self.shop = ShopLake(spark, settings, declared(folder, text))
        self.lake = Lake(settings, self.shop.topics)
        create_topics(self.lake)

    def turn(self, **messages: list[dict[str, Any]]) -> None:
        for topic, sent in messages.items():
            self.shop.send(topic, [(each["id"], json.dumps(each).encode()) for each in sent])
        self.shop.catch_up()
        self.publish()

    def publish(self) -> None:
        sinks = chosen(self.lake.topics)[0]
        await_streams(publish_sinks(self.spark, self.lake, sinks, available_now=True))

    def sent(self, topic: str) -> list[Row]:
        """Return all messages of a topic in the order of each partition."""
        self.spark.dataSource.register(PulsarDataSource)
        full = topic if "://" in topic else self.settings.full_topic(topic)
        rows = (
            self.spark.read.format("pulsar")
            .options(**self.settings.connection.options())
            .option("topic", full)
            .load()
            .collect()
        )
        return sorted(rows, key=lambda row: (row.partition, row.ledger, row.entry))

    def consumed(self, topic: str) -> dict[str, Any]:
        """Return the rows of a consumer that applies all messages: no payload is a delete."""
        found: dict[str, Any] = {}
        for message in self.sent(topic):
            if message.payload:
                found[message.key] = json.loads(message.payload)
            else:
                found.pop(message.key, None)
        return found


@pytest.fixture
def bank(spark: SparkSession, broker: Broker, settings: LakeSettings, tmp_path: Path) -> Bank:
    return Bank(spark, settings, tmp_path)


def paid(number: int, account: str, amount: str) -> dict[str, Any]:
    return {"id": number, "account": account, "amount": amount, "at": f"2026-01-0{number}"}


@pytest.mark.nightly
def test_declared_sinks_follow_their_tables_row_by_row(bank: Bank) -> None:
    debits = f"persistent://bank/{bank.namespace}/transactions.debits"
    bank.turn(
        accounts=[{"op": "u", "id": "a", "district": "x"}, {"op": "u", "id": "b"}],
        transactions=[
            paid(1, "a", "-5"),
            paid(2, "a", "7.5"),
            paid(3, "b", "-1"),
            paid(4, "c", "-2"),
        ],
    )
    assert bank.consumed(debits) == {
        "1": {"id": 1, "account": "a", "amount": -5.0},
        "3": {"id": 3, "account": "b", "amount": -1.0},
        "4": {"id": 4, "account": "c", "amount": -2.0},
    }
    [first] = [message for message in bank.sent(debits) if message.key == "1"]
    assert dict(first.properties) == {"tenant": "a"}
    assert first.event_time.isoformat() == "2026-01-01T00:00:00"
    assert bank.consumed("unknown_accounts") == {"4": {"id": 4, "account": "c"}}
    assert bank.consumed("districts") == {"a": {"op": "u", "id": "a", "district": "x"}}
    assert {s.name: (s.unsent, s.problem) for s in sink_states(bank.lake)} == {
        f"publish.{name}": (0, "") for name in bank.lake.topics.publish
    }
    # Rows leave and enter the conditions, by resends of events, updates, deletes and completions.
    bank.turn(
        accounts=[{"op": "u", "id": "a"}, {"op": "u", "id": "c", "district": "y"}],
        transactions=[paid(1, "a", "5"), paid(2, "a", "-7.5"), paid(3, "b", "-1")],
    )
    assert bank.consumed(debits) == {
        "2": {"id": 2, "account": "a", "amount": -7.5},
        "3": {"id": 3, "account": "b", "amount": -1.0},
        "4": {"id": 4, "account": "c", "amount": -2.0},
    }
    assert [bool(m.payload) for m in bank.sent(debits) if m.key == "1"] == [True, False]
    # A resend without a change sends nothing, and neither does a completed lookup.
    assert [len([m for m in bank.sent(debits) if m.key == key]) for key in ("3", "4")] == [1, 1]
    assert bank.consumed("unknown_accounts") == {}
    assert bank.consumed("districts").keys() == {"c"}
    told = [(m.key, json.loads(m.payload)) for m in bank.sent("overdrawn")]
    assert [(key, row["op"], row.get("balance")) for key, row in told if key == "a"] == [
        ("a", "c", -2.5)
    ]
    bank.turn(accounts=[{"op": "d", "id": "c"}], transactions=[paid(5, "a", "100")])
    assert bank.consumed("districts") == {}
    told = [json.loads(m.payload) for m in bank.sent("overdrawn") if m.key == "a"]
    assert told[1:] == [{"op": "d", "account": "a"}]
    notes = {line.table: line.note for line in lake_status(bank.lake) if "publish" in line.table}
    assert notes == {f"publish.{name}": "up to date" for name in bank.lake.topics.publish}
    again = {topic: len(bank.sent(topic)) for topic in (debits, "overdrawn", "districts")}
    bank.publish()
    assert {topic: len(bank.sent(topic)) for topic in again} == again


def test_what_cannot_be_published_is_refused_when_the_sink_starts(
    bank: Bank, tmp_path: Path
) -> None:
    bank.turn(transactions=[paid(1, "a", "-5")])
    known = bank.settings.table_path("gold", "mart")
    bank.spark.sql(f"CREATE TABLE delta.`{known}` (id bigint, n int) USING delta")

    def refused(sink: str, says: str, error: type[LakehouseError] = SettingsError) -> None:
        lake = Lake(bank.settings, declared(tmp_path, TOPICS + sink))
        with pytest.raises(error, match=says):
            await_streams(
                publish_sinks(bank.spark, lake, chosen(lake.topics)[0], available_now=True)
            )

    debits = SINKS.format(namespace=bank.namespace).split("[publish.overdrawn]")[0]
    for was, becomes, name in (
        ("amount < 0", "amount < 1", "where"),
        ("transactions.debits", "transactions.other", "topic"),
        ('"account", "amount"]', '"account"]', "columns"),
        ('key = ["id"]', 'key = ["id", "account"]', "key"),
    ):
        refused(
            debits.replace(was, becomes),
            rf"sink publish\.debits has '{name}' = .*another name with another topic",
            CheckpointError,
        )
        changed = declared(tmp_path, TOPICS + debits.replace(was, becomes))
        [step] = refused_sinks(Lake(bank.settings, changed))
        assert (step.table, step.what, step.is_refused) == ("publish.debits", "refused", True)
        assert f"'{name}' = " in step.why
    assert [*refused_sinks(bank.lake)] == []
    mart = '[publish.m]\nfrom = "gold.mart"\nkey = ["id"]\n'
    refused(mart, "gold.mart has no change data feed")
    bank.spark.sql(
        f"ALTER TABLE delta.`{known}` SET TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    refused(
        mart.replace('"id"', '"nr"'), r"publish\.m\.key: The table gold.mart has no column 'nr'"
    )
    refused(mart + 'event_time = "when"', r"no column 'when' for 'event_time'")
    refused(mart + 'where = "m > 1"', "sink 'm' has a 'where' that uses 'm'")
    refused(mart + 'where = "n + 1"', r"publish\.m\.where: Spark refuses it")
    refused(mart + 'deletes = { field = "n" }', "already has a column 'n'")
    bank.spark.sql(f"INSERT INTO delta.`{known}` VALUES (7, 1), (7, 2)")
    twice = r"publish\.m\.key: several rows .* same values in the key \(id\), such as 7"
    refused(mart, twice, LakehouseError)


def test_a_sink_waits_for_a_mart_and_sends_what_each_publication_changes(
    bank: Bank, tmp_path: Path
) -> None:
    text = TOPICS + '[publish.m]\nfrom = "gold.later"\nkey = ["id"]\ndeletes = { field = "op" }\n'
    lake = Lake(bank.settings, declared(tmp_path, text))

    def run() -> list[tuple[str, str, Any]]:
        """Publish what has changed, and return all messages."""
        sinks = publish_sinks(bank.spark, lake, chosen(lake.topics)[0], available_now=True)
        await_streams(sinks)
        if not lake.named("gold", "later").exists():
            return []
        told = [(row.key, json.loads(row.payload)) for row in bank.sent("m")]
        return [(key, content["op"], content.get("n")) for key, content in told]

    def build(*rows: tuple[int, int], mode: Any = "overwrite") -> None:
        """Build a table, and publish it as gold does: its files are linked into the mart."""
        built, mart = lake.named("gold_build", "later"), lake.named("gold", "later")
        ids, numbers = zip(*rows, strict=True)
        table = pa.table({"id": pa.array(ids, pa.int64()), "n": pa.array(numbers, pa.int64())})
        write_deltalake(built.path, table, mode=mode)
        schema = built.log().schema()
        DeltaTable.create(mart.path, schema=schema, mode="ignore", configuration=CHANGE_FEED)
        swap = mart.swap_from(built)
        swap.link()
        swap.commit()

    assert run() == []
    [state] = sink_states(lake)
    assert state.note == "waits for the table gold.later"
    build((1, 10), (2, 20), (3, 30))
    first = [("1", "c", 10), ("2", "c", 20), ("3", "c", 30)]
    assert sorted(run()) == first
    build((1, 10), (2, 21), (4, 40))
    build((5, 50), mode="append")
    then = [("2", "u", 21), ("3", "d", None), ("4", "c", 40), ("5", "c", 50)]
    assert sorted(run()[3:]) == then
    build((1, 10), (2, 21), (4, 40), (5, 50))  # the same rows in other files
    assert len(run()) == 7
