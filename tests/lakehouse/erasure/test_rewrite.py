"""Tests how forgotten people are recorded. How they leave silver is tested with the erasure."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lake.settings.settings import SHOP_TOPICS, load_settings
from lake.tables.lake import Lake
from lake.topics.topic_file import load_topics
from lakehouse.erasure.person import Found, Person
from lakehouse.erasure.redact import Redacted
from lakehouse.erasure.rewrite import is_remembered, remember, secret_of_forgotten
from pulsar_spark.errors import SettingsError
from silver.records.pseudonymize import FORGOTTEN, person_hash

SECRET = "of the tests, and of no use elsewhere"  # noqa: S105  # pragma: allowlist secret
TOPICS = load_topics(SHOP_TOPICS)
PERSON = Person(TOPICS.topics["users"], {"7": "-1", "8": "-2"})
FOUND = [Found(TOPICS.topics["users"], [Redacted((1, 2, 0, -1), "-1", None)], [])]


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    (tmp_path / "secret").write_text(SECRET)
    return Lake(load_settings(home=tmp_path, pseudonym_secret_file=tmp_path / "secret"), TOPICS)


def test_each_account_is_recorded_once_for_each_run_and_only_by_its_hash(lake: Lake) -> None:
    assert not is_remembered(lake, PERSON)
    for run in ("one", "one", "two"):
        remember(lake, PERSON, FOUND, "asked", run)
    assert is_remembered(lake, PERSON)
    assert not is_remembered(lake, Person(PERSON.topic, {"9": "-3"}))
    rows = lake.table(FORGOTTEN).arrow.rows(["topic", "person", "reason", "messages"])
    hashes = [person_hash(SECRET.encode(), "users", key) for key in ("7", "8")]
    assert sorted(row["person"] for row in rows) == sorted(2 * hashes)
    assert {(r["topic"], r["reason"], r["messages"]) for r in rows} == {("users", "asked", 1)}


def test_another_secret_is_refused(lake: Lake, tmp_path: Path) -> None:
    remember(lake, PERSON, FOUND, "asked", "one")
    secret_of_forgotten(lake)
    (tmp_path / "secret").write_text("another secret, and of no use either")
    with pytest.raises(SettingsError, match="written with another pseudonym secret"):
        remember(lake, PERSON, FOUND, "asked", "two")
    without = lake.settings.model_copy(update={"pseudonym_secret_file": None})
    with pytest.raises(SettingsError, match="the secret for the hashes is not set"):
        secret_of_forgotten(Lake(without, TOPICS))
