"""Options of `format("pulsar")`, parsed once; plain dataclass, as it travels to the workers."""

import datetime as dt
import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from bronze.connection import OPTION_OF, Connection, boolean
from bronze.eras import Partitionings, partitionings
from bronze.errors import SettingsError
from bronze.offsets import Offset, from_json

# Where to begin or end: an end of the topic, a position for each partition, or an instant (epoch
# milliseconds; messages published at it or later are behind it).
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

    topic, topics, topicsPattern: one of them is required. A full name,
        `persistent://tenant/namespace/topic`; several, with commas between; or a regular
        expression behind `persistent://tenant/namespace/`, matched anew for every batch.
    subscription: durable subscription that keeps unread messages on the broker. Required to
        stream; not used in a batch read.
    startingPosition: `earliest` (default), `latest`, or JSON as in a checkpoint: the positions
        behind which to begin; partitions that it does not name are read from their start. A
        stream asks for it once, for a new checkpoint.
    startingTimestamp: in place of it, ISO 8601 or epoch milliseconds: from the first message that
        was published at that instant or later.
    endingPosition, endingTimestamp: the same for the end of a batch read, default `latest`. The
        position named is read, the instant named is not.
    maxMessagesPerTrigger: about how many messages a batch of a stream may hold. The broker counts
        entries: messages are reckoned by the batch size of each partition's newest entry. Exact
        where producers do not batch; with batches of another size it is off by that factor.
    maxBytesPerTrigger: how many stored (compressed) bytes. Ledgers are exact, a part of one counts
        by its mean entry size. Of both limits the tighter one holds. A partition with a backlog
        gets at least one entry.
    maxBytesPerTask: a partition with more than that is read by several tasks. Default 64 MiB.
    readCompacted: whether to read the compacted copy of a topic, as far as it goes: of each key the
        last message. What retention has dropped of a changelog is in there alone. Default false.
    readTimeoutMs: how long one message may take to come before the task fails. Default 60000.
    failOnDataLoss: whether a stream stops when unread messages are gone: dropped by message TTL,
        or with a topic that was deleted or made anew. Default true. With false it goes on, once
        it has recorded what was lost in the Delta table at the path `dataLossTable`.
    incompleteTable: path of a Delta table that notes messages in chunks of which a batch has read
        only some; see `bronze/incomplete.py`. Not noted if it is not given.
    dataLossStorageOptions: where that or the data loss table is `s3://…`: a JSON object of what
        delta-rs must know to reach it (`AWS_REGION`, `AWS_ENDPOINT_URL`, `AWS_ALLOW_HTTP`).
        Credentials come from the environment or the role of the driver and the executors.
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
        """Check the options of a reader.

        Raises:
            SettingsError: an option is unknown, missing, in conflict or unfit.
        """
        given = by_name(options, KNOWN)
        named = [name for name in ("topic", "topics", "topicsPattern") if given.get(name)]
        if len(named) != 1:
            message = (
                'format("pulsar") needs one of the options topic, topics and topicsPattern; '
                f"it has {' and '.join(named) or 'none'}."
            )
            raise SettingsError(message)
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
    """Options by the names they are known by, as Spark hands them over in lower case.

    Raises:
        SettingsError: one is unknown, or holds a secret.
    """
    names = {name.lower(): name for name in known}
    return {_known(name, names): value for name, value in options.items()}


def _known(name: str, names: Mapping[str, str]) -> str:
    if name.lower() in names:
        return names[name.lower()]
    if name.lower() in SECRETS:
        message = (
            f"Option '{name}' would show a secret in every plan of the query. Put it into an "
            "environment variable or a file, and name that with tokenEnv or tokenFile."
        )
        raise SettingsError(message)
    near = difflib.get_close_matches(name.lower(), names, n=1)
    known = ", ".join(names.values())
    hint = f"did you mean '{names[near[0]]}'?" if near else f"known are {known}"
    message = f"Unknown option '{name}' of format(\"pulsar\"); {hint}"
    raise SettingsError(message)


def _data_loss_table(given: Mapping[str, str]) -> str | None:
    accepts = not boolean("failOnDataLoss", given.get("failOnDataLoss", "true"))
    if accepts != bool(given.get("dataLossTable")):
        message = (
            "failOnDataLoss=false and dataLossTable go together: a loss that is accepted is "
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
        what = f"'{refused[0]}' is none of them" if refused else "it is something else"
        message = (
            f"The option {name} is a JSON object of {', '.join(PLACES)}, and {what}. Credentials "
            "are found where clients of AWS look: environment, profile, role."
        )
        raise SettingsError(message)
    return dict(found)


def _topics(given: Mapping[str, str]) -> tuple[str, ...]:
    names = tuple(t.strip() for t in given.get("topics", given.get("topic", "")).split(","))
    for name in (*filter(None, names), *filter(None, [given.get("topicsPattern")])):
        parts = name.removeprefix("persistent://").split("/", 2)
        if not name.startswith("persistent://") or len(parts) < 3 or not all(parts):
            message = (
                f"'{name}' is no full topic name; write persistent://tenant/namespace/topic "
                "(only persistent topics can be read again after a restart)."
            )
            raise SettingsError(message)
    return tuple(filter(None, names))


def _number(given: Mapping[str, str], name: str) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if not value.isdigit() or int(value) == 0:
        message = f"Option {name}: '{value}' is no positive whole number."
        raise SettingsError(message)
    return int(value)


def _bound(given: Mapping[str, str], which: str, default: Literal["earliest", "latest"]) -> Bound:
    position, instant = given.get(f"{which}Position"), given.get(f"{which}Timestamp")
    if position and instant:
        message = f"Options {which}Position and {which}Timestamp say the same; set one of them."
        raise SettingsError(message)
    if instant:
        return epoch_ms(f"{which}Timestamp", instant)
    if position in ENDS:
        return position  # type: ignore[return-value]  # a Literal by the test above
    return _stored(f"{which}Position", position)[0] if position else default


def _partitionings(given: Mapping[str, str]) -> Partitionings:
    ending = given.get("endingPosition", "latest")
    return {} if ending in ENDS else _stored("endingPosition", ending)[1]


def epoch_ms(name: str, value: str) -> int:
    """The instant that an option names, ISO 8601 with a time zone or epoch milliseconds.

    Raises:
        SettingsError: it names none.
    """
    if value.isdigit():
        return int(value)
    try:
        instant = dt.datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError as error:
        message = f"Option {name}: '{value}' is neither ISO 8601 nor epoch milliseconds."
        raise SettingsError(message) from error
    if instant.tzinfo is None:
        message = f"Option {name}: '{value}' names no time zone; add one, such as 'Z' for UTC."
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
