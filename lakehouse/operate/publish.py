"""Publishes CSV files to the declared topics: `<topic>.csv` goes to the topic with that name."""

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pulsar

from lake.tables.lake import Lake
from lake.topics.topic import Topic
from lake.topics.topic_file import TopicFile
from lakehouse.operate.encode import Encoded, RowEncoder
from pulsar_spark.broker.admin import PulsarAdmin, namespace_of
from pulsar_spark.errors import BrokerError, LakehouseError, SettingsError

Progress = Callable[[str, int], None]
REPORT_EVERY = 5_000


def create_topics(lake: Lake) -> None:
    """Create the declared topics and their namespaces, with unlimited retention for changelogs."""
    with PulsarAdmin(lake.settings.connection) as admin:
        addresses = {name: lake.address(name) for name in lake.topics.topics}
        for namespace in dict.fromkeys(map(namespace_of, addresses.values())):
            admin.ensure_namespace(namespace)
        for topic in lake.topics.topics.values():
            name = addresses[topic.name]
            admin.ensure_topic(name, topic.partitions)
            if topic.kind == "changelog":
                admin.retain_for_ever(name)


def files_to_publish(topics: TopicFile, directory: Path) -> list[tuple[Topic, Path]]:
    """The topics that have a file in a directory, each with its file, changelogs first.

    Raises:
        SettingsError: there is no such file, or one belongs to a topic that is not sent as JSON.
    """
    files = [
        (topic, directory / f"{topic.name}.csv")
        for topic in [*topics.changelogs(), *topics.events()]
        if (directory / f"{topic.name}.csv").is_file()
    ]
    if not files:
        wanted = ", ".join(f"{name}.csv" for name in topics.topics)
        there = "has no file to publish" if directory.is_dir() else "is not a folder"
        message = f"{directory} {there}. Set --data to a folder with at least one of {wanted}."
        raise SettingsError(message)
    for topic, file in files:
        if topic.format != "json":
            message = (
                f"{file}: the topic {topic.name} is declared with schema = '{topic.format}', but "
                "this command sends JSON without a schema. Publish the file with your own "
                "producer."
            )
            raise SettingsError(message)
    return files


def publish(lake: Lake, directory: Path, progress: Progress | None = None) -> dict[str, int]:
    """Publish the files of a directory, changelogs first, and wait until all are confirmed.

    Args:
        lake: the broker's address, and the topics, which must exist on the broker.
        directory: folder with `<topic>.csv` files.
        progress: called with (topic, messages so far) every `REPORT_EVERY` messages and at the end
            of each file.

    Returns:
        Number of messages by topic.

    Raises:
        SettingsError: there is nothing to publish, a file is not UTF-8, or a topic is not JSON.
        EncodeError: a file does not fit its topic. Names file, line and column.
        LakehouseError: a row does not have as many cells as the header.
        BrokerError: the broker refused a message.
    """
    files = files_to_publish(lake.topics, directory)
    client = lake.settings.connection.client()
    try:
        return {
            topic.name: _publish_file(client, lake.address(topic.name), topic, file, progress)
            for topic, file in files
        }
    except pulsar.PulsarException as error:
        message = (
            f"The broker at {lake.settings.pulsar_url} did not accept the messages: {error!r}."
        )
        raise BrokerError(message) from error
    finally:
        client.close()


def _publish_file(
    client: Any, name: str, topic: Topic, file: Path, progress: Progress | None
) -> int:
    failures: list[Any] = []

    def confirmed(result: Any, _: Any) -> None:
        if result != pulsar.Result.Ok:
            failures.append(result)

    producer = client.create_producer(
        name,
        block_if_queue_full=True,
        max_pending_messages=20_000,
        batching_enabled=True,
        batching_max_messages=2_000,
        batching_max_publish_delay_ms=5,
        compression_type=pulsar.CompressionType.LZ4,
    )
    sent = 0
    for key, event_time, value, properties in _messages(topic, file):
        producer.send_async(
            *(value, confirmed, properties or None),
            partition_key=key,
            event_timestamp=event_time,
        )
        sent += 1
        if progress and sent % REPORT_EVERY == 0:
            progress(topic.name, sent)
    producer.flush()
    producer.close()
    if failures:
        message = (
            f"{name}: the broker refused {len(failures)} of {sent} messages, the first with "
            f"{failures[0]}."
        )
        raise BrokerError(message)
    if progress:
        progress(topic.name, sent)
    return sent


def _messages(topic: Topic, file: Path) -> Iterator[Encoded]:
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            rows = csv.DictReader(lines)
            encoder = RowEncoder(topic, rows.fieldnames or [], str(file))
            for row in rows:
                if None in row or None in row.values():
                    message = (
                        f"{file}:{rows.line_num}: the row and the header differ in the number of "
                        "cells."
                    )
                    raise LakehouseError(message)
                yield encoder.encode(row, rows.line_num)
    except UnicodeDecodeError as error:
        message = f"{file} is not UTF-8 ({error.reason} at byte {error.start}). Convert it."
        raise SettingsError(message) from error
