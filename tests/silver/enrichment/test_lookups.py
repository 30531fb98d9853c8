"""Tests which lookups an event has in a batch, and when they need no Spark."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from silver_lake import PUBLISHED
from topic import declared

from lake.settings.settings import load_settings
from lake.tables.lake import Lake
from silver.contract.tables import silver_tables
from silver.enrichment import lookups
from silver.enrichment.lookups import Lookups, LookupState

TOPICS = """
[topics.rates]
kind = "changelog"
key = ["currency"]
history = true
fields = { currency = "string", rate = "double" }

[topics.users]
kind = "changelog"
key = ["id"]
fields = { id = "int", name = "string" }

[topics.sales]
kind = "events"
key = ["id"]
event_time = "at"
[topics.sales.fields]
id = "long"
at = "timestamp_ms"
buyer = "long"
seller = "decimal(9,0)"
money = "string"
[topics.sales.lookups]
buyer_row = { topic = "users", on = "buyer" }
seller_row = { topic = "users", on = "seller" }
rate = { topic = "rates", on = "money", mode = "as_of" }
"""


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    found = Lake(load_settings(home=tmp_path), declared(tmp_path, TOPICS))
    for spec in silver_tables(found.topics):
        found.table(spec).create()
    return found


def states(lake: Lake, spark: SparkSession) -> dict[str, LookupState]:
    found = Lookups(lake).states(spark, lake.topics.topics["sales"], {}, 0)
    return {each.name: each for each in found}


def test_keys_of_comparable_types_are_looked_up_without_spark(
    lake: Lake, spark: SparkSession
) -> None:
    found = states(lake, spark)
    assert {name: each.is_direct for name, each in found.items()} == {
        "buyer_row": True,  # an integer, though of another size
        "seller_row": False,
        "rate": False,
    }
    assert (found["buyer_row"].on, found["buyer_row"].key) == (["buyer"], ["id"])
    assert found["buyer_row"].version == "buyer_row_position"
    assert (found["rate"].at, found["buyer_row"].at) == ("at", None)
    assert all(each.changed is None for each in found.values())


def test_the_state_is_read_after_the_batch_and_its_size_is_known(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.named("silver", "users_state")
    schema = pa.schema(table.log().schema().to_arrow())
    place = {"ledger": 1, "entry": 1, "batch_index": 0, "partition": 0}
    whole = {"is_deleted": False, "position": place, "publish_time": PUBLISHED, "silver_batch": 0}
    rows = [{"id": n, "name": "x", **whole} for n in (1, 2)]
    table.arrow.append(pa.Table.from_pylist(rows, schema))
    buyer = states(lake, spark)["buyer_row"]
    assert buyer.is_small
    assert sorted(row.id for row in buyer.state().collect()) == [1, 2]
    assert buyer.find is not None
    found = buyer.find(pa.array([2, 3]))
    assert found["id"].to_pylist() == [2]
    monkeypatch.setattr(lookups, "FEW_ROWS", 1)
    again = states(lake, spark)
    assert not again["buyer_row"].is_small
    assert not again["rate"].is_small, "a history is never broadcast whole"
