"""Options of `format("pulsar")`, parsed once into a plain dataclass that is sent to the workers."""

import datetime as dt
import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pulsar_spark.broker.connection import OPTION_OF, Connection, boolean
from pulsar_spark.eras import Partitionings, partitionings
from pulsar_spark.errors import SettingsError, require_library
from pulsar_spark.offsets import Offset, from_json

# Where to begin or end: one end of the topic, a position for each partition, or an instant in epoch
# milliseconds. Messages published at that instant or later come after it.
Bound: TypeAlias = Literal["earliest", "latest"] | Offset | int
ENDS = ("earliest", "latest")

KNOWN = (
    *OPTION_OF.values(),
    *("topic", "topics", "topicsPattern", "subscription"),
    *("startingPosition", "startingTimestamp", "endingPosition", "endingTimestamp"),
    *("readCompacted", "maxMessagesPerTrigger", "maxBytesPerTrigger", "maxBytesPerTask"),
    *("readTimeoutMs", "failOnDataLoss", "dataLossTable", "dataLossStorageOptions"),
    *("incompleteTable",),
)
PLACES = ("AWS_REGION", "AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP")
SECRETS = ("token", "authtoken", "authparams", "password")
BYTES_PER_TASK = 64 << 20


@dataclass(frozen=True)
class PulsarOptions:
    """What to read; see `Connection` for the options about the broker.

    topic, topics, topicsPattern: exactly one of them is required. `topic` is a full name,
        `persistent://tenant/namespace/topic`. `topics` is a comma-separated list of full names.
        `topicsPattern` is `persistent://tenant/namespace/` followed by a regular expression, which
        is matched again for every batch.
    subscription: durable subscription that keeps unread messages on the broker. Required to
        stream; not used in a batch read.
    startingPosition: `earliest` (default), `latest`, or positions in JSON as in a checkpoint.
        Reading begins after these positions. Partitions without a position are read from their
        start. A stream uses this option only for a new checkpoint.
    startingTimestamp: alternative to startingPosition, in ISO 8601 or epoch milliseconds. Reading
        begins with the first message published at that instant or later.
    endingPosition, endingTimestamp: the same for the end of a batch read; default `latest`. The
        message at the position is read. Messages published at the instant are not.
    maxMessagesPerTrigger: approximate number of messages in a batch of a stream. The broker counts
        entries, so messages are estimated from the batch size of each partition's newest entry.
        The limit is exact if producers do not batch. If batch sizes vary, it is off by the ratio.
    maxBytesPerTrigger: stored (compressed) bytes in a batch of a stream. Whole ledgers count
        exactly, a part of one by its mean entry size. If both limits are set, the tighter one
        applies. A partition with a backlog gets at least one entry.
    maxBytesPerTask: a partition with more bytes is read by several tasks. Default 64 MiB.
    readCompacted: whether to read the compacted copy of a topic, as far as it reaches. It holds the
        last message of each key, and is the only copy of a changelog's messages that retention has
        deleted. Default false.
    readTimeoutMs: how long to wait for one message before the task fails. Default 60000.
    failOnDataLoss: whether a stream stops if unread messages are gone because of message TTL, or
        because the topic was deleted or recreated. Default true. If false, the stream records the
        loss in the Delta table at the path `dataLossTable` and continues.
    incompleteTable: path of a Delta table that records chunked messages of which a batch has read
        only a part; see `pulsar_spark/read/incomplete.py`. Without it, nothing is recorded.
    dataLossStorageOptions: a JSON object of the options that delta-rs needs to reach either table
        at `s3://…` (`AWS_REGION`, `AWS_ENDPOINT_URL`, `AWS_ALLOW_HTTP`). Credentials come from the
        environment or the role of the driver and the executors.
    """

    connection: Connection
    topics: tuple[str, ...]
    topics_pattern: str | None
    subscription: str | None
    starting: Bound
    ending: Bound
    partitionings: Partitionings
    max_messages_per_trigger: int | None
    max_bytes_per_trigger: int | None
    max_bytes_per_task: int
    read_compacted: bool
    read_timeout_ms: int
    data_loss_table: str | None
    data_loss_storage: dict[str, str]
    incomplete_table: str | None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "PulsarOptions":
        """Parse and check the options of a reader, as Spark passes them.

        Raises:
            SettingsError: an option is unknown, missing, invalid, or conflicts with another.
        """
        given = by_name(options, KNOWN)
        named = [name for name in ("topic", "topics", "topicsPattern") if given.get(name)]
        if len(named) != 1:
            message = (
                'format("pulsar") needs one of the options topic, topics and topicsPattern; '
                f"it has {' and '.join(named) or 'none of them'}."
            )
            raise SettingsError(message)
        for name in ("dataLossTable", "incompleteTable"):
            if given.get(name):
                require_library("deltalake", "losses", name)
        return cls(
            connection=Connection.parse(given),
            topics=_topics(given),
            topics_pattern=given.get("topicsPattern"),
            subscription=given.get("subscription"),
            starting=_bound(given, "starting", "earliest"),
            ending=_bound(given, "ending", "latest"),
            partitionings=_partitionings(given),
            max_messages_per_trigger=_number(given, "maxMessagesPerTrigger"),
            max_bytes_per_trigger=_number(given, "maxBytesPerTrigger"),
            max_bytes_per_task=_number(given, "maxBytesPerTask") or BYTES_PER_TASK,
            read_compacted=boolean("readCompacted", given.get("readCompacted", "false")),
            read_timeout_ms=_number(given, "readTimeoutMs") or 60_000,
            data_loss_table=_data_loss_table(given),
            data_loss_storage=_data_loss_storage(given),
            incomplete_table=given.get("incompleteTable"),
        )


def by_name(options: Mapping[str, str], known: Sequence[str]) -> dict[str, str]:
    """Restore the spelling of option names, which Spark passes in lower case.

    Raises:
        SettingsError: an option is unknown, or would hold a secret.
    """
    names = {name.lower(): name for name in known}
    return {_known(name, names): value for name, value in options.items()}


def _known(name: str, names: Mapping[str, str]) -> str:
    if name.lower() in names:
        return names[name.lower()]
    if name.lower() in SECRETS:
        message = (
            f"Option '{name}' would show a secret in every plan of the query. Put the secret into "
            "an environment variable or a file, and name it with tokenEnv or tokenFile."
        )
        raise SettingsError(message)
    near = difflib.get_close_matches(name.lower(), names, n=1)
    known = ", ".join(names.values())
    hint = f"did you mean '{names[near[0]]}'?" if near else f"known options: {known}"
    message = f"Unknown option '{name}' of format(\"pulsar\"); {hint}"
    raise SettingsError(message)


def _data_loss_table(given: Mapping[str, str]) -> str | None:
    accepts = not boolean("failOnDataLoss", given.get("failOnDataLoss", "true"))
    if accepts != bool(given.get("dataLossTable")):
        message = (
            "failOnDataLoss=false and dataLossTable must be set together: an accepted loss is "
            "recorded in the Delta table at that path."
        )
        raise SettingsError(message)
    return given.get("dataLossTable")


def _data_loss_storage(given: Mapping[str, str]) -> dict[str, str]:
    name = "dataLossStorageOptions"
    try:
        found = json.loads(given.get(name, "{}"))
    except ValueError:
        found = None
    fits = isinstance(found, dict) and all(isinstance(value, str) for value in found.values())
    refused = [] if not fits else [key for key in found if key.upper() not in PLACES]
    if not fits or refused:
        what = f"'{refused[0]}' is not allowed" if refused else "its values must be strings"
        message = (
            f"The option {name} must be a JSON object of {', '.join(PLACES)}; {what}. Pass "
            "credentials as for any AWS client: in the environment, a profile or a role."
        )
        raise SettingsError(message)
    return dict(found)


def _topics(given: Mapping[str, str]) -> tuple[str, ...]:
    names = tuple(t.strip() for t in given.get("topics", given.get("topic", "")).split(","))
    for name in (*filter(None, names), *filter(None, [given.get("topicsPattern")])):
        parts = name.removeprefix("persistent://").split("/", 2)
        if not name.startswith("persistent://") or len(parts) < 3 or not all(parts):
            message = (
                f"'{name}' is not a full topic name; write persistent://tenant/namespace/topic "
                "(only persistent topics can be read again after a restart)."
            )
            raise SettingsError(message)
    return tuple(filter(None, names))


def _number(given: Mapping[str, str], name: str) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if not value.isdigit() or int(value) == 0:
        message = f"Option {name}: '{value}' is not a positive whole number."
        raise SettingsError(message)
    return int(value)


def _bound(given: Mapping[str, str], which: str, default: Literal["earliest", "latest"]) -> Bound:
    position, instant = given.get(f"{which}Position"), given.get(f"{which}Timestamp")
    if position and instant:
        message = f"Options {which}Position and {which}Timestamp conflict; set only one of them."
        raise SettingsError(message)
    if instant:
        return epoch_ms(f"{which}Timestamp", instant)
    if position in ENDS:
        return position  # type: ignore[return-value]  # the test above makes it a Literal
    return _stored(f"{which}Position", position)[0] if position else default


def _partitionings(given: Mapping[str, str]) -> Partitionings:
    ending = given.get("endingPosition", "latest")
    return {} if ending in ENDS else _stored("endingPosition", ending)[1]


def epoch_ms(name: str, value: str) -> int:
    """Parse an instant in ISO 8601 with a time zone, or in epoch milliseconds.

    Args:
        name: the option, for the error.
        value: its value.

    Returns:
        Epoch milliseconds.

    Raises:
        SettingsError: the value is not an instant.
    """
    if value.isdigit():
        return int(value)
    try:
        instant = dt.datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError as error:
        message = f"Option {name}: '{value}' is neither ISO 8601 nor epoch milliseconds."
        raise SettingsError(message) from error
    if instant.tzinfo is None:
        message = f"Option {name}: '{value}' has no time zone; add one, such as 'Z' for UTC."
        raise SettingsError(message)
    return round(instant.timestamp() * 1000)


def _stored(name: str, value: str) -> tuple[Offset, Partitionings]:
    try:
        stored: Any = json.loads(value)
        return from_json(stored), partitionings(stored)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        message = (
            f"Option {name}: '{value}' is neither earliest, latest nor positions as in "
            '{"persistent://public/default/orders-partition-0": {"ledger": 12, "entry": 340}}.'
        )
        raise SettingsError(message) from error
