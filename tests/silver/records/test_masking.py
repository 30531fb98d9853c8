"""Tests the hashes of personal fields, and that gold sees only what the topic file allows."""

from pathlib import Path

import pytest
from personal import SECRET, hashed, protection
from pyspark.sql import SparkSession

from lake.settings.pseudonyms import PseudonymSecret
from lake.settings.settings import LakeSettings, load_settings
from lake.tables.lake import Lake
from lake.topics.topic_file import load_topics
from pulsar_spark.errors import SettingsError
from silver.contract.tables import PERSONAL
from silver.records.masking import (
    FINGERPRINT,
    hashes,
    protect,
    protected_tables,
    require_secret,
)
from silver.records.masking import (
    protection as read_protection,
)


@pytest.fixture
def settings(tmp_path: Path) -> LakeSettings:
    return load_settings(home=tmp_path).model_copy(update=protection(tmp_path / "outside"))


def lake_of(settings: LakeSettings) -> Lake:
    return Lake(settings, load_topics(settings.topics))


def test_hashes_are_those_of_other_tools_and_null_stays_null(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text(SECRET)
    secret = PseudonymSecret(file=str(tmp_path / "secret"))
    rows = spark.createDataFrame([("a@x",), (None,), ("zoë",), ("",)], "name string")
    found = [row[0] for row in rows.select(hashes(rows["name"], secret)).collect()]
    assert found == [hashed("a@x"), None, hashed("zoë"), hashed("")]


def test_hashed_fields_need_a_secret(settings: LakeSettings, tmp_path: Path) -> None:
    require_secret(lake_of(settings))
    without = settings.model_copy(update={"pseudonym_secret_file": None})
    with pytest.raises(SettingsError, match="declares users.emailAddress as personal = 'hash'"):
        require_secret(lake_of(without))
    require_secret(Lake(load_settings(home=tmp_path)))  # the shop's own topics hash nothing


def test_tables_record_what_gold_may_see_and_with_which_secret(
    spark: SparkSession, settings: LakeSettings, tmp_path: Path
) -> None:
    lake = lake_of(settings)
    for spec in protected_tables(lake.topics):
        lake.table(spec).create()
    protect(spark, lake)
    users = lake.named("silver", "users_state").log().metadata().configuration
    assert '"hash"' in users[PERSONAL]
    assert settings.pseudonyms is not None
    assert users[FINGERPRINT] == settings.pseudonyms.fingerprint()
    tables = [lake.table(spec) for spec in protected_tables(lake.topics)]
    versions = [table.newest_version() for table in tables]
    protect(spark, lake)
    assert [table.newest_version() for table in tables] == versions
    found = read_protection(lake)
    assert found["silver.users_state"] == (users[PERSONAL], users[FINGERPRINT])
    assert "silver.items_state" not in found

    with pytest.raises(SettingsError, match="silver.users_state have changed.*Start silver"):
        read_protection(Lake(load_settings(home=tmp_path)))
    (tmp_path / "other").write_text("another secret of the tests")
    other = settings.model_copy(update={"pseudonym_secret_file": tmp_path / "other"})
    with pytest.raises(SettingsError, match="made with another pseudonym secret"):
        protect(spark, lake_of(other))
