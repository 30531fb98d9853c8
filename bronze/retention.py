"""Finds policies by which the broker may drop messages of a topic before bronze has landed them.

The durable subscription of a query keeps unread messages, regardless of the retention policy. Two
other policies drop them nevertheless: a message TTL, and a backlog quota that evicts.
"""

import datetime as dt
from collections.abc import Iterator
from typing import Any, NamedTuple

from bronze.ingest import query_name, subscription
from lake.streams.checkpoint import reader_id
from lake.tables.lake import Lake
from pulsar_spark.broker.admin import EVICTS, PulsarAdmin

NEAR = 0.5  # a loss is near when more than this fraction of a limit is used


class Risk(NamedTuple):
    """A way in which messages may be lost, its remedy, and whether the loss is near."""

    what: str
    remedy: str
    is_near: bool


def risks(admin: PulsarAdmin, lake: Lake, topic: str, now: dt.datetime) -> Iterator[Risk]:
    """Find the ways in which messages of a topic may be lost before they land.

    Raises:
        BrokerError: the broker does not answer, or does not have the topic.
    """
    reader = reader_id(lake.settings, query_name(topic))
    for name in lake.address(topic).topics(admin):
        yield from _risks_of(admin, name, reader, now)


def _risks_of(
    admin: PulsarAdmin, name: str, reader: str | None, now: dt.datetime
) -> Iterator[Risk]:
    unread = []
    for partition in admin.partitions(name):
        stats = reader and admin.subscription_stats(partition, subscription(reader))
        unread.append(stats or {})
    age = max((_age(each, now) for each in unread), default=0.0)
    yield from _by_ttl(admin.policy(name, "messageTTL") or 0, age)
    size = max((each.get("backlogSize", 0) for each in unread), default=0)
    for quota in (admin.policy(name, "backlogQuotaMap") or {}).values():
        yield from _by_quota(quota, size, age)
    if reader is None:
        yield from _by_retention(admin.policy(name, "retention") or {})


def _age(stats: dict[str, Any], now: dt.datetime) -> float:
    """Seconds since the oldest unread message was published; 0 if there is none."""
    oldest = stats.get("earliestMsgPublishTimeInBacklog", 0)
    waits = stats.get("msgBacklog", 0) > 0 and oldest > 0
    return max(now.timestamp() - oldest / 1000, 0) if waits else 0.0


def _by_ttl(seconds: int, age: float) -> Iterator[Risk]:
    if seconds > 0:
        yield Risk(
            f"messages expire unread after {_span(seconds)} (message TTL); the oldest unread one "
            f"is {_span(age)} old",
            "Switch the TTL off: `pulsar-admin namespaces set-message-ttl -ttl 0`.",
            age > NEAR * seconds,
        )


def _by_quota(quota: dict[str, Any], size: int, age: float) -> Iterator[Risk]:
    if quota.get("policy") != EVICTS:
        return
    used = {"limitSize": size, "limitTime": age}
    limits = {name: quota.get(name) or 0 for name in used}
    if any(limit > 0 for limit in limits.values()):
        yield Risk(
            f"a backlog quota drops unread messages ({EVICTS})",
            "Let the quota hold producers back instead: `pulsar-admin namespaces "
            "set-backlog-quota -p producer_request_hold`.",
            any(limit > 0 and used[name] > NEAR * limit for name, limit in limits.items()),
        )


def _by_retention(retention: dict[str, Any]) -> Iterator[Risk]:
    minutes = retention.get("retentionTimeInMinutes", 0)
    megabytes = retention.get("retentionSizeInMB", 0)
    if minutes >= 0 or megabytes >= 0:
        kept = (
            _span(60 * minutes) if minutes > 0 else f"{megabytes} MB" if megabytes > 0 else "none"
        )
        yield Risk(
            "bronze has not started to read the topic, and the topic's retention of messages "
            f"without a subscription is {kept}",
            "Start bronze, or keep all messages until then: `pulsar-admin namespaces "
            "set-retention -t -1 -s -1`.",
            False,
        )


def _span(seconds: float) -> str:
    return str(dt.timedelta(seconds=round(seconds)))
