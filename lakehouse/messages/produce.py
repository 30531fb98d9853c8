"""`lakehouse produce`: sends single messages to a topic."""

from collections.abc import Iterable
from typing import Any

import pulsar

from lake.settings.settings import LakeSettings
from lakehouse.messages.encode import Encoded
from pulsar_spark.errors import BrokerError


def send(settings: LakeSettings, address: str, messages: Iterable[Encoded]) -> int:
    """Send messages to a topic, which must exist, and wait until all are confirmed.

    If the iterator raises an error, the messages before it are sent, and the error is passed on.

    Args:
        settings: the address of the broker.
        address: the full name of the topic on the broker.
        messages: the messages.

    Returns:
        The number of messages.

    Raises:
        BrokerError: the broker refused a message.
    """
    failures: list[Any] = []

    def confirmed(result: Any, _: Any) -> None:
        if result != pulsar.Result.Ok:
            failures.append(result)

    sent = 0
    client = settings.connection.client()
    try:
        producer = client.create_producer(address, block_if_queue_full=True)
        try:
            for each in messages:
                options = {"partition_key": each.key, "event_timestamp": each.event_time_ms}
                producer.send_async(each.value, confirmed, dict(each.properties) or None, **options)
                sent += 1
        finally:
            producer.flush()
    except pulsar.PulsarException as error:
        what = (
            f"{address}: the broker at {settings.pulsar_url} did not accept a message: {error!r}."
        )
        raise BrokerError(what) from error
    finally:
        client.close()
    if failures:
        what = f"{address}: the broker refused {len(failures)} of {sent} messages: {failures[0]}."
        raise BrokerError(what)
    return sent
