"""`lakehouse produce` and `consume`: single messages, without Spark."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lakehouse.runtime.context import current
from pulsar_spark.errors import BrokerError, SettingsError

if TYPE_CHECKING:
    from lake.topics.topic import Topic
    from lakehouse.messages.encode import Encoded

Form = Literal["table", "json"]
TopicName = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Declared name of the topic, or its full name.")
]


def produce(
    topic: TopicName,
    message: Annotated[
        str | None,
        typer.Argument(
            metavar="JSON", help="The message; - reads one from each line of standard input."
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Message key.", show_default="from the declared fields")
    ] = None,
    event_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Event time, ISO 8601 or epoch milliseconds.",
            show_default="from the declared field",
        ),
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property", metavar="NAME=VALUE", help="Property of the message. Can be repeated."
        ),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Send the bytes as they are, without any check.")
    ] = False,
    tombstone: Annotated[
        bool, typer.Option("--tombstone", help="Delete the key --key of a changelog.")
    ] = False,
) -> None:
    """Send messages to a declared topic, after checking them as silver will."""
    from lakehouse.messages.produce import send
    from lakehouse.messages.record import tombstone as deleting

    declared, address = _declared(topic)
    at, given = _event_time(event_time), _properties(properties or [])
    _require_unicode("--key", key or "")

    def encode(payload: bytes) -> Encoded:
        return _encoded(declared, payload, key, given, raw=raw)

    if tombstone:
        if message is not None or key is None or raw:
            what = "--tombstone needs --key, and takes neither a message nor --raw."
            raise SettingsError(what, f"Write `lakehouse produce {topic} --tombstone --key KEY`.")
        outgoing: Iterable[Encoded] = [deleting(declared, key)._replace(properties=given)]
    elif message is None:
        what = "There is no message to send."
        raise SettingsError(what, "Add it as JSON, or - for standard input, or use --tombstone.")
    elif message == "-":
        outgoing = _each_line(encode)
    else:
        outgoing = [encode(os.fsencode(message))]
    if at is not None:
        outgoing = (each._replace(event_time_ms=at) for each in outgoing)
    _require_topic(declared, address)
    sent = send(current.settings, address, outgoing)
    typer.echo(f"{topic}: {sent} {'message' if sent == 1 else 'messages'} sent")


def _declared(name: str) -> tuple[Topic, str]:
    found, address = _on_broker(name)
    if found is None:
        known = ", ".join(current.topics.topics)
        what = f"The topic file declares no topic '{name}'."
        raise SettingsError(what, f"Use one of {known}, or name another topic file with --topics.")
    return found, address


def _on_broker(name: str) -> tuple[Topic | None, str]:
    """The declaration of a topic, None if it has none, and its full name on the broker.

    Args:
        name: the name of the declaration, or one on the broker, full or short.

    Raises:
        SettingsError: the declaration with this name has several topics.
    """
    addresses = current.topics.addresses(current.settings.pulsar_namespace)
    full = name if "://" in name else current.settings.full_topic(name)
    if name not in addresses:
        holding = next((each for each, there in addresses.items() if there.holds(full)), None)
        return current.topics.topics[holding] if holding else None, full
    declared, address = current.topics.topics[name], addresses[name]
    if declared.has_several:
        what = f"The topic file declares '{name}' as several topics: {address}."
        raise SettingsError(what, "Name one of them, as persistent://tenant/namespace/name.")
    return declared, address.names[0]


def _event_time(text: str | None) -> int | None:
    from lakehouse.messages.encode import event_time_ms

    if text is None:
        return None
    try:
        if (found := event_time_ms(text)) is not None:
            return found
    except ValueError:
        pass
    what = f"--event-time: '{text}' is neither ISO 8601 nor epoch milliseconds, from 1970 on."
    raise SettingsError(what, "Write it as 2026-01-31T12:00:00Z, for example.")


def _properties(given: list[str]) -> dict[str, str]:
    found = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals:
            what = f"--property: '{each}' has no name and value."
            raise SettingsError(what, "Write it as NAME=VALUE, such as --property tenant=acme.")
        _require_unicode("--property", each)
        found[name] = value
    return found


def _require_unicode(option: str, value: str) -> None:
    from lakehouse.messages.encode import is_unicode

    if not is_unicode(value):
        what = f"{option}: {value!a} is not UTF-8."
        raise SettingsError(what, "Pulsar's keys and properties are Unicode texts.")


def _encoded(
    topic: Topic, payload: bytes, key: str | None, properties: dict[str, str], *, raw: bool
) -> Encoded:
    from lakehouse.messages.encode import Encoded
    from lakehouse.messages.record import RAW, RecordError, checked

    if raw:
        return Encoded(key, None, payload, properties)
    try:
        text = payload.decode()
    except UnicodeDecodeError as error:
        what = f"{topic.name}: the message is not UTF-8 ({error.reason} at byte {error.start})."
        raise RecordError(what, RAW) from error
    return checked(topic, text, key, properties)


def _each_line(encode: Callable[[bytes], Encoded]) -> Iterator[Encoded]:
    """The messages on standard input, one per line. Blank lines are left out."""
    from lakehouse.messages.record import RecordError

    sent = 0
    for number, line in enumerate(sys.stdin.buffer, start=1):
        text = line.rstrip(b"\r\n")
        if not text.strip():
            continue
        try:
            yield encode(text)
        except RecordError as error:
            what = f"Line {number} of standard input: {error.what} Messages sent before it: {sent}."
            raise RecordError(what, error.remedy) from error
        sent += 1


def _require_topic(topic: Topic, address: str) -> None:
    """Create a declared topic if the broker lacks it."""
    from lakehouse.messages.publish import create_topic
    from pulsar_spark.broker.admin import PulsarAdmin, TopicNotFoundError, namespace_of

    _require_broker()
    with PulsarAdmin(current.settings.connection) as admin:
        try:
            admin.partitions(address)
        except TopicNotFoundError:
            admin.ensure_namespace(namespace_of(address))
            create_topic(admin, address, topic)


def _require_broker() -> None:
    """Check that a broker answers. A request for our namespace is the fastest check."""
    from pulsar_spark.broker.admin import PulsarAdmin

    with PulsarAdmin(current.settings.connection, timeout_seconds=5) as admin:
        if admin.has_namespace(current.settings.pulsar_namespace):
            return
    from lakehouse.runtime.broker import require_broker

    require_broker(current.settings)


def consume(
    topic: TopicName,
    last: Annotated[int, typer.Option(min=0, help="How many of the newest messages to show.")] = 10,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with new messages until Ctrl-C.")
    ] = False,
    form: Annotated[
        Form, typer.Option("--format", help="A table, or one JSON object per line.")
    ] = "table",
) -> None:
    """Show the newest messages of all partitions of a topic, the newest last.

    No subscription stays on the broker.
    """
    from lakehouse.messages.consume import Tail
    from lakehouse.messages.shown import COLUMNS, Decoder
    from pulsar_spark.broker.admin import TopicNotFoundError

    _require_broker()
    declared, address = _on_broker(topic)
    decoder = Decoder(current.settings, address, declared)
    try:
        tail = Tail(current.settings, address)
    except TopicNotFoundError as error:
        known = ", ".join(current.topics.topics)
        what = f"The broker has no topic {address}."
        remedy = f"Declared topics are {known}; `lakehouse create-topics` creates them."
        raise BrokerError(what, remedy) from error
    with tail:
        messages = tail.newest(last)
        if form == "json":
            for each in messages:
                typer.echo(decoder.line(each))
        elif messages or not follow:
            from lakehouse.runtime.terminal import print_rows

            print_rows(COLUMNS, [decoder.cells(each) for each in messages])
        if follow:
            from lakehouse.runtime.terminal import printable

            with contextlib.suppress(KeyboardInterrupt):
                for each in tail.following():
                    is_json = form == "json"
                    row = decoder.line(each) if is_json else "  ".join(decoder.cells(each))
                    typer.echo(row if is_json else printable(row))
