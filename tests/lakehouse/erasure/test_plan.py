"""Tests that the plan of an erasure is stored for its owner only, and continued as it began."""

from pathlib import Path

import pytest
from topic import declared

from lake.settings.settings import SHOP_TOPICS, LakeSettings, load_settings
from lake.tables.lake import Lake
from lake.topics.topic_file import load_topics
from lakehouse.erasure.person import Found, Person
from lakehouse.erasure.plan import NAME, Plan
from lakehouse.erasure.redact import Redacted
from pulsar_spark.errors import LakehouseError, SettingsError

TOPICS = load_topics(SHOP_TOPICS)
USERS, ORDERS = TOPICS.topics["users"], TOPICS.topics["orders"]


@pytest.fixture
def settings(tmp_path: Path) -> LakeSettings:
    (tmp_path / "secret").write_text("of the tests, and of no use elsewhere")
    found = load_settings(home=tmp_path, pseudonym_secret_file=tmp_path / "secret")
    found.lake_dir.mkdir(parents=True)
    return found


def plan(settings: LakeSettings) -> Plan:
    assert settings.pseudonyms is not None
    person = Person(USERS, {"7": "-1"}, {"emailAddress": {"b@x", "a@x"}})
    found = [
        Found(USERS, [Redacted((1, 2, 0, -1), "-1", None)], []),
        Found(
            ORDERS, [Redacted((3, 4, 5, 6), None, b"\xff{}")], [Redacted((9, 9, 9, 9), "k", None)]
        ),
    ]
    return Plan(person, found, "asked", settings.pseudonyms.fingerprint())


def test_a_stored_plan_is_the_same_and_only_its_owner_can_read_it(settings: LakeSettings) -> None:
    lake = Lake(settings, TOPICS)
    assert Plan.read(lake) is None
    made = plan(settings)
    made.write(settings)
    assert Plan.read(lake) == made
    assert (settings.lake_dir / NAME).stat().st_mode & 0o777 == 0o600
    assert (made.is_of(USERS, "7"), made.is_of(USERS, "8"), made.is_of(ORDERS, "7")) == (
        True,
        False,
        False,
    )
    numbered = made.numbered(settings, -4)
    done = numbered.done(settings)
    assert (done.number, done.is_done, done.id) == (-4, True, made.id)
    assert Plan.read(lake) == done
    done.delete(settings)
    assert Plan.read(lake) is None


def test_a_plan_is_not_continued_with_another_secret(
    settings: LakeSettings, tmp_path: Path
) -> None:
    plan(settings).write(settings)
    (tmp_path / "secret").write_text("another secret, and of no use either")
    with pytest.raises(SettingsError, match="started with another pseudonym secret"):
        Plan.read(Lake(settings, TOPICS))


def test_a_plan_is_not_continued_without_its_topics(settings: LakeSettings, tmp_path: Path) -> None:
    plan(settings).write(settings)
    text = SHOP_TOPICS.read_text()
    fewer = declared(tmp_path, text.replace("[topics.orders", "[topics.sales"))
    with pytest.raises(SettingsError, match="the topic 'orders' is no longer in the topic file"):
        Plan.read(Lake(settings, fewer))


def test_a_torn_plan_is_refused(settings: LakeSettings) -> None:
    (settings.lake_dir / NAME).write_text('{"id"')
    with pytest.raises(LakehouseError, match="empty or torn.*lakehouse reset"):
        Plan.read(Lake(settings, TOPICS))
