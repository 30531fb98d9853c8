"""Tests which policies of a broker may drop messages before they land, and how near a loss is."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from landed_lake import landed_lake
from topic import events

from bronze.retention import risks
from lake.settings.settings import LakeSettings, load_settings
from lake.tables.lake import Lake

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
EVICTING = {"policy": "consumer_backlog_eviction", "limitSize": -1, "limitTime": -1}


@pytest.fixture
def landed(tmp_path: Path) -> LakeSettings:
    return landed_lake(tmp_path)


class ToldAdmin:
    """Answers requests about one topic as a broker would."""

    def __init__(self, **policies: Any) -> None:
        self._policies = policies

    def partitions(self, topic: str) -> list[str]:
        return [topic]

    def policy(self, _: str, name: str) -> Any:
        return self._policies.get(name)

    def subscription_stats(self, _: str, __: str) -> dict[str, Any]:
        oldest = int(NOW.timestamp() * 1000) - 60_000
        backlog = {"msgBacklog": 5, "backlogSize": 600}
        return {"earliestMsgPublishTimeInBacklog": oldest, **backlog}


@pytest.mark.parametrize(
    ("policies", "near"),
    [
        ({}, []),
        ({"messageTTL": 0, "retention": {"retentionTimeInMinutes": 0}}, []),
        ({"messageTTL": 100}, [True]),
        ({"messageTTL": 1000}, [False]),
        ({"backlogQuotaMap": {"destination_storage": {**EVICTING, "limitSize": 1000}}}, [True]),
        ({"backlogQuotaMap": {"destination_storage": {**EVICTING, "limitSize": 2000}}}, [False]),
        ({"backlogQuotaMap": {"message_age": {**EVICTING, "limitTime": 100}}}, [True]),
        ({"backlogQuotaMap": {"message_age": EVICTING}}, []),
    ],
)
def test_a_loss_is_near_from_half_of_the_limit_on(
    landed: LakeSettings, policies: dict[str, Any], near: list[bool]
) -> None:
    admin: Any = ToldAdmin(**policies)
    assert [risk.is_near for risk in risks(admin, Lake(landed, events("o")), "o", NOW)] == near


def test_each_risk_says_how_near_it_is_and_what_to_do(landed: LakeSettings) -> None:
    quota = {"destination_storage": {**EVICTING, "limitSize": 1000}}
    admin: Any = ToldAdmin(messageTTL=100_000, backlogQuotaMap=quota)
    expiry, eviction = risks(admin, Lake(landed, events("o")), "o", NOW)
    assert expiry.what == (
        "messages expire unread after 1 day, 3:46:40 (message TTL); the oldest unread one is "
        "0:01:00 old"
    )
    assert "set-message-ttl -ttl 0" in expiry.remedy
    assert "producer_request_hold" in eviction.remedy


@pytest.mark.parametrize(
    ("minutes", "megabytes", "kept"),
    [(0, 0, "none"), (90, 5, "1:30:00"), (0, 5, "5 MB"), (-1, -1, None)],
)
def test_before_the_first_start_only_the_retention_keeps_messages(
    tmp_path: Path, minutes: int, megabytes: int, kept: str | None
) -> None:
    retention = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}
    admin: Any = ToldAdmin(retention=retention)
    new = Lake(load_settings(home=tmp_path / "new"), events("o"))
    found = [risk.what for risk in risks(admin, new, "o", NOW)]
    assert found == [
        "bronze has not started to read the topic, and the topic's retention of messages without a "
        f"subscription is {text}"
        for text in [kept]
        if text
    ]
