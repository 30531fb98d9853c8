"""Publishes CSV files to the declared topics: `<topic>.csv` goes to the topic with that name."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pulsar

from lake.topics.address import Address
from lake.topics.topic import Topic
from lake.topics.topic_file import TopicFile
from lakehouse.messages.encode import (
    NOWHERE,
    REMEDY,
    Encoded,
    EncodeError,
    RowEncoder,
    RowError,
    why_not_sent,
)
from lakehouse.messages.token_bucket import TokenBucket
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.errors import BrokerError, SettingsError

if TYPE_CHECKING:  # `lakehouse produce` reads no tables
    from lake.tables.lake import Lake

Progress = Callable[[str, int], None]
OnBad = Callable[[Topic, RowError], None]
REPORT_EVERY = 5_000


def create_topics(lake: Lake) -> None:
    """Create the declared topics and their namespaces, with unlimited retention for changelogs.

    For a pattern, only the namespace is created.
    """
    with PulsarAdmin(lake.settings.connection) as admin:
        addresses = [lake.address(name) for name in lake.topics.topics]
        for namespace in dict.fromkeys(each for found in addresses for each in found.namespaces):
            admin.ensure_namespace(namespace)
        for topic in lake.topics.topics.values():
            for name in lake.address(topic.name).names:
                create_topic(admin, name, topic)


def create_topic(admin: PulsarAdmin, address: str, topic: Topic) -> None:
    """Create a declared topic at its address if it is missing. Its namespace must exist."""
    admin.ensure_topic(address, topic.partitions)
    if topic.kind == "changelog":
        admin.retain_for_ever(address)


def files_to_publish(topics: TopicFile, directory: Path) -> list[tuple[Topic, Path]]:
    """The topics that have a file in a directory, each with its file, changelogs first.

    Raises:
        SettingsError: there is no such file, or one belongs to a topic that is not flat JSON.
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
        if why := why_not_sent(topic):
            message = (
                f"{file}: the topic {topic.name} {why}. Publish the file with your own producer."
            )
            raise SettingsError(message)
    return files


def publish(
    lake: Lake,
    directory: Path,
    progress: Progress | None = None,
    *,
    rate: float | None = None,
    on_bad: OnBad | None = None,
) -> dict[str, int]:
    """Publish the files of a directory, changelogs first, and wait until all are confirmed.

    Args:
        lake: the broker's address, and the topics, which must exist on the broker.
        directory: folder with `<topic>.csv` files.
        progress: called with (topic, messages so far) every `REPORT_EVERY` messages and at the end
            of each file.
        rate: messages per second, over all files. None: as fast as the broker takes them.
        on_bad: called with each row that does not fit its topic; the row is then left out. None:
            the first such row ends the command.

    Returns:
        Number of messages by topic.

    Raises:
        SettingsError: there is nothing to publish, a file is not UTF-8, or a topic is not JSON.
        EncodeError: a file does not fit its topic. Names file, line and column. The messages
            before that line have been sent.
        BrokerError: the broker refused a message.
    """
    files = files_to_publish(lake.topics, directory)
    bucket = None if rate is None else TokenBucket(rate)
    client = lake.settings.connection.client()
    try:
        return {
            topic.name: _publish_file(
                client,
                lake.address(topic.name),
                _paced(messages(topic, file, on_bad, lake.address(topic.name)), bucket),
                partial(progress or _no_progress, topic.name),
            )
            for topic, file in files
        }
    except pulsar.PulsarException as error:
        message = (
            f"The broker at {lake.settings.pulsar_url} did not accept the messages: {error!r}."
        )
        raise BrokerError(message) from error
    finally:
        client.close()


def _no_progress(_: str, __: int) -> None:
    """Show nothing."""


def _publish_file(
    client: Any, address: Address, outgoing: Iterator[Encoded], progress: Callable[[int], None]
) -> int:
    failures: list[Any] = []
    producers: dict[str, Any] = {}

    def confirmed(result: Any, _: Any) -> None:
        if result != pulsar.Result.Ok:
            failures.append(result)

    sent = 0
    try:
        for key, event_time, value, properties, topic in outgoing:
            name = topic or address.names[0]
            if name not in producers:
                producers[name] = client.create_producer(
                    name,
                    block_if_queue_full=True,
                    max_pending_messages=20_000,
                    batching_enabled=True,
                    batching_max_messages=2_000,
                    batching_max_publish_delay_ms=5,
                    compression_type=pulsar.CompressionType.LZ4,
                )
            producers[name].send_async(
                *(value, confirmed, dict(properties) or None),
                partition_key=key,
                event_timestamp=event_time,
            )
            sent += 1
            if sent % REPORT_EVERY == 0:
                progress(sent)
    finally:  # also if a row ends the command: those before it have been sent
        for producer in producers.values():
            producer.flush()
    for producer in producers.values():
        producer.close()
    if failures:
        message = (
            f"{address}: the broker refused {len(failures)} of {sent} messages, the first with "
            f"{failures[0]}."
        )
        raise BrokerError(message)
    progress(sent)
    return sent


def _paced(outgoing: Iterator[Encoded], bucket: TokenBucket | None) -> Iterator[Encoded]:
    for each in outgoing:
        if bucket:
            bucket.take()
        yield each


def messages(
    topic: Topic, file: Path, on_bad: OnBad | None = None, address: Address = NOWHERE
) -> Iterator[Encoded]:
    """The messages for the rows of a CSV file.

    Args:
        topic: the topic to send them to.
        file: the file.
        on_bad: called with each row that does not fit; the row is then left out. None: the row
            raises its error.
        address: where the topic is on the broker, if it has several.

    Raises:
        EncodeError: a column is missing, or the file is not CSV. Names file and line.
        SettingsError: the file is not UTF-8.
    """
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:  # spreadsheets write a mark
            rows = csv.DictReader(lines)
            try:
                encoder = RowEncoder(topic, rows.fieldnames or [], str(file), address)
                for row in rows:
                    try:
                        _check_cells(row, rows.fieldnames or [], f"{file}:{rows.line_num}")
                        yield encoder.encode(row, rows.line_num)
                    except RowError as error:
                        if on_bad is None:
                            raise
                        on_bad(topic, error)
            except csv.Error as error:
                line = rows.reader.line_num
                message = f"{file}:{line}: the file is not CSV from here on: {error}."
                raise EncodeError(message, "Correct it.") from error
    except UnicodeDecodeError as error:
        message = f"{file} is not UTF-8 ({error.reason} at byte {error.start}). Convert it."
        raise SettingsError(message) from error


def _check_cells(row: Mapping[Any, Any], columns: Sequence[str], where: str) -> None:
    """Check that a row has as many cells as the header. DictReader collects others below None."""
    extra = len(row.get(None) or ())
    cells = len(columns) + extra - sum(value is None for value in row.values())
    if cells == len(columns):
        return
    message = (
        f"{where}: the row has {cells} {'cell' if cells == 1 else 'cells'}, but the header has "
        f"{len(columns)} columns ({', '.join(columns)})."
    )
    hint = "A cell that contains a comma, a quote or a line break must be in double quotes."
    raise RowError(message, f"{hint} {REMEDY}")
