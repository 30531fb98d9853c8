"""Tests that a different domain, a bank, needs only a different topic file."""

import csv
import datetime as dt
import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from shop_lake import ShopLake

from lake.settings.settings import LakeSettings
from lake.tables.lake import Lake
from lake.topics.topic import Topic
from lake.topics.topic_file import load_topics
from lakehouse.messages.publish import create_topics
from lakehouse.runtime.broker import Broker

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data" / "bank"
FILES = {
    "accounts": "accounts.csv",
    "customers": "customers.csv",
    "transactions": "transactions-small.csv",
}

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not DATA.is_dir(), reason="needs ../shared/data/bank"),
]


def rows(name: str) -> list[dict[str, str]]:
    with (DATA / FILES[name]).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.fixture
def lake(spark: SparkSession, broker: Broker, settings: LakeSettings) -> ShopLake:
    lake = ShopLake(spark, settings, load_topics(ROOT / "examples" / "bank" / "topics.toml"))
    create_topics(Lake(settings, lake.topics))
    client = settings.connection.client()
    for topic in (lake.topics.topics[name] for name in FILES):  # nothing is known of districts
        name = settings.full_topic(topic.name)
        producer = client.create_producer(name, block_if_queue_full=True)
        for row in rows(topic.name):
            producer.send_async(message(topic, row), None, partition_key=row[topic.key[0]])
        producer.flush()
    client.close()
    lake.catch_up()
    return lake


def message(topic: Topic, row: Mapping[str, str]) -> bytes:
    """Encode a row as the bank's own system might send it, odd values included."""
    numbers = {"int": int, "decimal(12,2)": float}
    fields = {name: numbers.get(spec.type, str)(row[name]) for name, spec in topic.fields.items()}
    return json.dumps(fields).encode()


def is_instant(text: str) -> bool:
    try:
        dt.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def bare(row: Row, names: list[str]) -> dict[str, Any]:
    return {name: row[name] for name in names}


def test_each_transaction_has_the_account_and_customer_that_plain_python_finds(
    lake: ShopLake,
) -> None:
    accounts = {row["account_id"]: row for row in rows("accounts")}
    customers = {row["customer_id"]: row for row in rows("customers")}
    sent = {row["trans_id"]: row for row in rows("transactions")}
    expected = {key: row for key, row in sent.items() if is_instant(row["fulldatewithtime"])}
    odd = sent.keys() - expected.keys()
    found = {row["trans_id"]: row for row in lake.rows("enriched_transactions")}
    assert found.keys() == expected.keys()
    for key, right in expected.items():
        row, account = found[key], accounts[right["account_id"]]
        assert (row["amount"], row["balance"]) == (
            Decimal(right["amount"]).quantize(Decimal("0.01")),
            Decimal(right["balance"]).quantize(Decimal("0.01")),
        )
        moment = dt.datetime.fromisoformat(right["fulldatewithtime"] + "+00:00")
        assert row["fulldatewithtime"].astimezone(dt.timezone.utc) == moment
        assert bare(row["account"], ["account_id", "district_id", "frequency", "date"]) == {
            "account_id": account["account_id"],
            "district_id": int(account["district_id"]),
            "frequency": account["frequency"],
            "date": dt.date.fromisoformat(account["date"]),
        }
        names = ["customer_id", "first", "last", "email", "city"]
        customer = customers[right["customer_id"]]
        assert bare(row["customer"], names) == {name: customer[name] for name in names}
    refused = lake.rows("quarantine")
    assert {json.loads(row["payload"])["trans_id"] for row in refused} == odd
    assert all("fulldatewithtime" in row["reason"] for row in refused)
    assert odd, "the bank's real data has instants such as 15:60:16"
    assert len(lake.rows("accounts_state")) == len(accounts)
    assert len(lake.rows("customers_state")) == len(customers)
