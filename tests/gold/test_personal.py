"""Tests which personal fields gold sees, by declaration, in rows and in change feeds."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from gold_changes import Changes
from gold_checks import assert_gold_is_right
from messages import user
from personal import SECRET, as_gold_sees, hashed
from pyspark.errors import PySparkException
from shop_lake import ShopLake

from gold.build import build_gold
from gold.sql_client import query_endpoint
from lake.settings.settings import SHOP_TOPICS, LakeSettings
from lake.tables.lake import Lake
from lake.topics.topic_file import load_topics
from lakehouse.erasure.run import forget
from pulsar_spark.errors import LakehouseError, SettingsError

PROTECTED = ("user_id", "first_name", "last_name", "email_address")


def test_rows_and_changes_are_masked_and_hashed_and_nothing_contains_the_secret(
    changes: Changes, shop_lake: ShopLake
) -> None:
    settings, users = shop_lake.settings, shop_lake.current("users")
    path = settings.table_path("gold_build", "stg_users")
    staged = DeltaTable(path).to_pyarrow_table(columns=list(PROTECTED)).to_pylist()
    right = [{**as_gold_sees(user), "user_id": key} for key, user in users.items()]
    assert sorted(map(str, staged)) == sorted(
        str({name: user[name] for name in PROTECTED}) for user in right
    )
    mails = {row["email_address"] for row in shop_lake.mart("thank_you_mails")}
    assert mails
    assert mails <= {hashed(user["email_address"]) for user in users.values()}

    addresses = [user["email_address"].encode() for user in users.values()]
    for layer in ("gold", "gold_build"):
        for texts in all_texts(settings, layer):
            assert not any(address in texts for address in addresses[:50])
    _, rows = query_endpoint(settings, "select * from cut_gold_build.users_state")
    assert not {user["email_address"] for user in users.values()} & {x for r in rows for x in r}
    with pytest.raises(PySparkException, match="email_address"):
        shop_lake.spark.sql("select user.email_address from cut_gold_build.enriched_orders")
    kept = [file for file in files(settings) if file != settings.pseudonym_secret_file]
    assert not [file for file in kept if SECRET.encode() in file.read_bytes()]


def test_gold_and_silver_refuse_to_show_more_or_hash_differently(
    changes: Changes, shop_lake: ShopLake, tmp_path: Path
) -> None:
    settings = shop_lake.settings
    with pytest.raises(SettingsError, match="gold could see personal data. Start silver"):
        build_gold(Lake(settings.model_copy(update={"topics": SHOP_TOPICS})))
    other = tmp_path / "other"
    other.write_text("another secret, as long as it must be")
    for declared, secret, what in (
        (settings.topics, None, "declares users.emailAddress as personal = 'hash', but no"),
        (settings.topics, other, "silver.users_state were made with another pseudonym secret"),
        (SHOP_TOPICS, other, "email_address_hash.*lakehouse replay --table silver"),
    ):
        own = {"topics": declared, "pseudonym_secret_file": secret}
        lake = ShopLake(shop_lake.spark, settings.model_copy(update=own), load_topics(declared))
        with pytest.raises(LakehouseError, match=what):
            lake.refine()
    shop_lake.refine()


@pytest.mark.nightly
def test_a_forgotten_buyer_is_gone_from_gold_but_the_purchases_stay(
    changes: Changes, shop_lake: ShopLake
) -> None:
    settings, users = shop_lake.settings, shop_lake.current("users")
    merged = {each["parent_user_id"] for each in users.values()}
    thanked = {row["account_id"] for row in shop_lake.mart("thank_you_mails")}
    buyer = max(thanked - merged - {*changes.fates.values()})
    traces = [users[buyer]["email_address"], hashed(users[buyer]["email_address"])]
    assert files_with(settings, traces).keys() >= {"bronze", "silver", "gold", "gold_build"}
    sales, orders = sales_of(shop_lake), len(shop_lake.enriched())

    proof = forget(
        *(shop_lake.spark, shop_lake.lake, str(buyer)),
        lambda who, found: list(who.pseudonyms) == [str(buyer)],
        reason="asked for",
    )
    assert proof is not None
    assert files_with(settings, traces) == {}
    parts = [part for part in proof.search() if part.where != "spark"]  # ends with its session
    assert {"gold.customers", "gold_build.stg_users", "dbt"} <= {part.where for part in parts}
    assert [part.found for part in parts if part.found] == []
    assert (sales_of(shop_lake), len(shop_lake.enriched())) == (sales, orders)
    assert_gold_is_right(shop_lake)

    other = min(thanked - {buyer, *changes.fates.values()})
    changed = user(other, emailAddress="new@example.org")
    shop_lake.send("users", [(buyer, user(buyer)), (other, changed)])
    shop_lake.catch_up()
    build_gold(Lake(settings))
    assert_gold_is_right(shop_lake)
    assert buyer not in shop_lake.current("users")
    staged = DeltaTable(settings.table_path("gold_build", "stg_users"))
    assert staged.history(1)[0]["operation"] == "MERGE", "change feeds continue after the deletion"


def sales_of(lake: ShopLake) -> dict[tuple[object, object], tuple[object, ...]]:
    """Return lines, invoices and revenue by day and category."""
    told = ("count_lines", "count_invoices", "revenue")
    return {
        (row["day"], row["category"]): tuple(row[name] for name in told)
        for row in lake.mart("sales_by_day")
    }


def files_with(settings: LakeSettings, traces: list[str]) -> dict[str, list[Path]]:
    """Return by layer the files that contain one of the texts, raw or decoded."""
    found: dict[str, list[Path]] = {}
    for file in settings.lake_dir.rglob("*"):
        if file.is_file():
            texts = [file.read_bytes()]
            if file.suffix == ".parquet":
                texts.append(decoded(file))
            if any(trace.encode() in text for trace in traces for text in texts):
                layer = file.relative_to(settings.lake_dir).parts[0]
                found.setdefault(layer, []).append(file)
    return found


def all_texts(settings: LakeSettings, layer: str) -> list[bytes]:
    """Return the values of each file of a layer, even if no current version refers to the file."""
    return [decoded(file) for file in (settings.lake_dir / layer).rglob("*.parquet")]


def decoded(file: Path) -> bytes:
    """Return the values of a Parquet file with texts uncompressed."""
    table, sink = pq.ParquetFile(file).read(), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def files(settings: LakeSettings) -> list[Path]:
    return [file for file in settings.home_dir.rglob("*") if file.is_file()]
