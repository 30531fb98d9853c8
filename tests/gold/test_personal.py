"""What gold sees of personal fields by declaration, through rows and through change feeds."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from gold_changes import Changes
from personal import SECRET, as_gold_sees, hashed
from pyspark.errors import PySparkException
from shop_lake import ShopLake

from bronze.errors import LakehouseError, SettingsError
from bronze.settings import SHOP_TOPICS, LakeSettings
from bronze.topics import load_topics
from gold.build import build_gold
from gold.endpoint import query_endpoint

PROTECTED = ("user_id", "first_name", "last_name", "email_address")


def test_rows_and_changes_are_masked_and_hashed_and_nothing_has_the_secret(
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
        for row in all_texts(settings, layer):
            assert not any(address in row for address in addresses[:50])
    _, rows = query_endpoint(settings, "select * from cut.users_state")
    assert not {user["email_address"] for user in users.values()} & {x for r in rows for x in r}
    with pytest.raises(PySparkException, match="email_address"):
        shop_lake.spark.sql("select user.email_address from cut.enriched_orders")
    kept = [file for file in files(settings) if file != settings.pseudonym_secret_file]
    assert not [file for file in kept if SECRET.encode() in file.read_bytes()]


def test_gold_and_silver_refuse_what_would_show_more_or_hash_otherwise(
    changes: Changes, shop_lake: ShopLake, tmp_path: Path
) -> None:
    settings = shop_lake.settings
    with pytest.raises(SettingsError, match="gold would see what it must not. Start silver"):
        build_gold(settings.model_copy(update={"topics": SHOP_TOPICS}))
    other = tmp_path / "other"
    other.write_text("another secret, as long as it must be")
    for declared, secret, what in (
        (settings.topics, None, "declares users.emailAddress as personal = 'hash', and there is"),
        (settings.topics, other, "silver.users_state were made with another secret"),
        (SHOP_TOPICS, other, "email_address_hash.*lakehouse replay --table silver"),
    ):
        own = {"topics": declared, "pseudonym_secret_file": secret}
        lake = ShopLake(shop_lake.spark, settings.model_copy(update=own), load_topics(declared))
        with pytest.raises(LakehouseError, match=what):
            lake.refine()
    shop_lake.refine()


def all_texts(settings: LakeSettings, layer: str) -> list[bytes]:
    """All rows of all files of a layer, whether a version of today has them or not."""
    folder = settings.lake_dir / layer
    tables = [pq.ParquetFile(file).read() for file in folder.rglob("*.parquet")]
    return [str(table.to_pylist()).encode() for table in tables]


def files(settings: LakeSettings) -> list[Path]:
    return [file for file in settings.home_dir.rglob("*") if file.is_file()]
