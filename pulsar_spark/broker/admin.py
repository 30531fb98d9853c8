"""A client of the part of Pulsar's admin API that concerns topics, positions, subscriptions."""

import contextlib
import re
import time
from collections.abc import Callable, Mapping
from enum import Enum, auto
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

import httpx

from pulsar_spark.broker.connection import Connection
from pulsar_spark.errors import BrokerError
from pulsar_spark.offsets import START, WHOLE, Position
from pulsar_spark.plan.ledgers import Ledger, PartitionLog

GLANCE_SECONDS = 2.0
DEADLINE_SECONDS = 60.0  # long enough for a broker to restart
WAIT_SECONDS = (0.1, 2.0)  # between attempts: the first wait, which doubles, and the longest
REDIRECTS = 6  # in a row; a topic that moves between brokers needs two or three
OWNERLESS = "find owner"  # from the error of a broker that has just started
EVICTS = "consumer_backlog_eviction"  # a backlog quota with this policy drops unread messages
EARLIEST = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1, "batchIndex": -1}


class _NotYetError(Exception):
    """The broker may answer a moment later, because it is starting or is moving the topic."""


class TopicNotFoundError(BrokerError):
    """The topic or subscription does not exist."""


class RefusedError(BrokerError):
    """The broker refuses a request: our role may not make it, or the broker has it turned off."""


class AlreadyThereError(BrokerError):
    """What was to be created exists already."""


class Outcome(Enum):
    """What a response means."""

    OK = auto()
    NOT_YET = auto()  # a later response may be different
    GONE = auto()  # what was asked for does not exist
    THERE = auto()  # what was to be created exists already
    REFUSED = auto()


Classify: TypeAlias = Callable[[httpx.Response], Outcome]
FAILURES: Mapping[Outcome, tuple[type[Exception], str]] = {
    Outcome.NOT_YET: (_NotYetError, "{reason}"),
    Outcome.GONE: (TopicNotFoundError, "{url}: {path} does not exist on this broker: {reason}"),
    Outcome.THERE: (AlreadyThereError, "{url}: {path} already exists: {reason}"),
    Outcome.REFUSED: (RefusedError, "The broker at {url} refused {method} {path}: {reason}"),
}


def _classify(response: httpx.Response) -> Outcome:
    """What a response of most endpoints means."""
    status = response.status_code
    ownerless = status == httpx.codes.PRECONDITION_FAILED and OWNERLESS in response.text
    if ownerless or status in (307, 500, 502, 503, 504):
        return Outcome.NOT_YET
    if status == httpx.codes.NOT_FOUND:
        return Outcome.GONE
    if status == httpx.codes.CONFLICT:
        return Outcome.THERE
    return Outcome.REFUSED if response.is_error else Outcome.OK


class Entry(NamedTuple):
    """What an entry holds: a batch of `messages`, or chunk number `chunk` (from 0) of `chunks`.

    is_hidden: readers never see the entry, because it is a transaction marker or belongs to an
        aborted transaction.
    is_pending: an open transaction holds the entry back, because the entry belongs to it or comes
        after it.
    """

    messages: int
    chunk: int | None
    chunks: int | None
    is_hidden: bool
    is_pending: bool

    @property
    def ends_a_message(self) -> bool:
        """Whether no later entry holds a chunk of the same message."""
        return self.chunk is None or self.chunks is None or self.chunk + 1 == self.chunks


class PartitionState(NamedTuple):
    """What the broker reports about a topic partition at one moment.

    last: the last entry, which may be hidden, or deleted by now. Its entry id is -1 if there was
        none.
    log: the ledgers.
    cursors: the position up to which each durable subscription lets the broker drop messages, by
        name.
    """

    last: Position
    log: PartitionLog
    cursors: Mapping[str, Position]


class PulsarAdmin:
    """Client of the admin API. Use it as a context manager.

    Topics are named in full, `persistent://tenant/namespace/topic`. Each method raises BrokerError
    if the broker cannot be reached or refuses a request. The message names the URL and the reason.
    """

    def __init__(self, connection: Connection, timeout_seconds: float = 10.0) -> None:
        self._url = connection.admin_url
        self._hosts = {httpx.URL(self._url).host, *_named(connection.admin_hosts)}
        self._client = connection.http(timeout_seconds)

    def __enter__(self) -> "PulsarAdmin":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def is_healthy(self) -> bool:
        """Whether a broker answers and can publish and read. Asks only once."""
        return self._is_ok("brokers/health")

    def has_namespace(self, namespace: str) -> bool:
        """Whether a namespace exists; False if no broker answers. Asks only once."""
        return self._is_ok(f"namespaces/{namespace}")

    def version(self) -> str:
        """The broker's version, such as 4.2.4."""
        return self._ask("GET", "brokers/version").text.strip()

    def ensure_namespace(self, namespace: str) -> None:
        """Create a namespace and its tenant if they are absent. The tenant may use all clusters."""
        try:
            self._ask("GET", f"namespaces/{namespace}")
        except TopicNotFoundError:
            tenant = namespace.partition("/")[0]
            clusters = self._ask("GET", "clusters").json()
            self._create(f"tenants/{tenant}", {"adminRoles": [], "allowedClusters": clusters})
            self._create(f"namespaces/{namespace}", {})

    def ensure_topic(self, topic: str, partitions: int) -> bool:
        """Create a topic with partitions, or add partitions to one that has fewer.

        Returns:
            Whether the topic was created.
        """
        try:
            there = self._partition_count(topic)
        except TopicNotFoundError:
            self._ask("PUT", f"{_path(topic)}/partitions", json=partitions)
            return True
        if 0 < there < partitions:
            self._ask("POST", f"{_path(topic)}/partitions", json=partitions)
        return False

    def retain_for_ever(self, topic: str) -> None:
        """Make the broker keep all messages of a topic forever, whether read or not."""
        for_ever = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        self._ask("POST", f"{_path(topic)}/retention", json=for_ever)

    def policy(self, topic: str, name: str) -> Any:
        """The policy that applies to a topic: its own, its namespace's or the broker's.

        None if no policy is set.
        """
        answer = self._ask("GET", f"{_path(topic)}/{name}", params={"applied": "true"})
        return answer.json() if answer.content else None

    def drops_unread(self, topic: str) -> bool:
        """Whether a policy drops unread messages: a TTL, or a backlog quota that evicts.

        False if the broker refuses to show its policies, for example because our role may not read
        them.

        Raises:
            BrokerError: the broker does not answer.
        """
        try:
            quotas = (self.policy(topic, "backlogQuotaMap") or {}).values()
            evicts = any(quota.get("policy") == EVICTS for quota in quotas)
            return evicts or bool(self.policy(topic, "messageTTL"))
        except RefusedError:
            return False

    def deduplicate(self, namespace: str) -> None:
        """Turn on deduplication in a namespace: the broker drops sequence ids that it has seen."""
        self._ask("POST", f"namespaces/{namespace}/deduplication", json=True)

    def deduplicate_topic(self, topic: str) -> None:
        """Turn on deduplication for one topic, whatever its namespace says."""
        self._ask("POST", f"{_path(topic)}/deduplicationEnabled", json=True)

    def deduplicates(self, topic: str) -> bool:
        """Whether deduplication is on for a topic, by its own, its namespace's or the broker's."""
        return self.policy(topic, "deduplicationEnabled") is True

    def partitions(self, topic: str) -> list[str]:
        """The full names of a topic's partitions; the topic itself if it has none."""
        count = self._partition_count(topic)
        return [f"{topic}-partition-{number}" for number in range(count)] or [topic]

    def unload(self, topic: str) -> None:
        """Make the broker unload a topic. Its next use loads it again."""
        self._ask("PUT", f"{_path(topic)}/unload")

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its subscriptions and messages."""
        suffix = "/partitions" if self._partition_count(topic) else ""
        self._ask("DELETE", f"{_path(topic)}{suffix}", params={"force": "true"})

    def last_position(self, partition: str) -> Position:
        """The last entry of a topic partition; its entry id is -1 if there is none."""
        answer = self._ask("GET", f"{_path(partition)}/lastMessageId").json()
        return Position(answer["ledgerId"], answer["entryId"])

    def internal_stats(self, partition: str) -> dict[str, Any]:
        """The ledgers and cursors of a topic partition, as the broker reports them."""
        answer: dict[str, Any] = self._ask("GET", f"{_path(partition)}/internalStats").json()
        return answer

    def subscription_stats(self, partition: str, name: str) -> dict[str, Any] | None:
        """Statistics of a subscription, with the size and age of its backlog; None if absent."""
        params = {"getEarliestTimeInBacklog": "true"}
        answer = self._ask("GET", f"{_path(partition)}/stats", params=params).json()
        found: dict[str, Any] | None = answer["subscriptions"].get(name)
        return found

    def created_at(self, partition: str) -> int | None:
        """When a topic partition was created, in epoch ms; None if the broker does not know."""
        stats = self._ask("GET", f"{_path(partition)}/stats").json()
        return int(stats.get("topicCreationTimeStamp") or 0) or None

    def state(self, partition: str) -> PartitionState:
        """Fetch the end, the ledgers and the subscriptions of a topic partition in one request."""
        stats = self.internal_stats(partition)
        last = _position(stats["lastConfirmedEntry"])
        ledgers = [Ledger(x["ledgerId"], x["entries"], x["size"]) for x in stats["ledgers"]]
        if ledgers:  # the newest is listed without entries, and may be newer than the last entry
            newest = ledgers[-1].id
            entries = last.entry + 1 if last.ledger == newest else 0
            ledgers[-1] = Ledger(newest, entries, stats["currentLedgerSize"] if entries else 0)
        cursors = {
            unquote(name): _position(cursor["markDeletePosition"])
            for name, cursor in stats["cursors"].items()
        }
        return PartitionState(last, PartitionLog(ledgers), cursors)

    def log(self, partition: str) -> PartitionLog:
        """The ledgers of a topic partition."""
        return self.state(partition).log

    def entry(self, partition: str, position: Position) -> Entry | None:
        """What an entry holds; None if it is gone."""
        path = f"{_path(partition)}/ledger/{position.ledger}/entry/{position.entry}"

        def classify(response: httpx.Response) -> Outcome:
            """The broker fails with 500 for a deleted ledger, too."""
            if response.status_code == httpx.codes.INTERNAL_SERVER_ERROR and all(
                ledger.id != position.ledger for ledger in self.log(partition).ledgers
            ):
                return Outcome.GONE
            return _classify(response)

        try:
            return _entry(self._ask("GET", path, classify, without_body=True).headers)
        except TopicNotFoundError:
            return None

    def glance(self, partition: str, position: Position) -> Entry | None:
        """What an entry holds, if the broker answers at once; otherwise None. Asks only once.

        The broker never answers for a compressed chunk, and fails for metadata of more than 8 KB.
        """
        path = f"{_path(partition)}/ledger/{position.ledger}/entry/{position.entry}"
        try:
            response = self._send("GET", path, without_body=True, timeout=GLANCE_SECONDS)
        except httpx.HTTPError:
            return None
        return _entry(response.headers) if response.status_code == httpx.codes.OK else None

    def last_readable(self, partition: str) -> Position:
        """The position up to which an open transaction lets readers go.

        Called only if there seems to be an open transaction. After the broker has loaded a topic,
        all of it seems to be held back until the topic's transactions are recovered. The broker
        reports transactions only of loaded topics, and answers that other topics do not exist.
        Asking for the last position loads the topic, or shows that it is really gone.
        """
        path = _path(partition).partition("/")[2]
        url = f"{self._url.rstrip('/')}/admin/v3/transactions/transactionBufferStats/{path}"

        def classify(response: httpx.Response) -> Outcome:
            outcome = _classify(response)
            if outcome is Outcome.GONE:
                self.last_position(partition)  # raises TopicNotFoundError if it is really gone
                return Outcome.NOT_YET
            if outcome is Outcome.OK and response.json()["state"] in ("None", "Initializing"):
                return Outcome.NOT_YET
            return outcome

        stats = self._ask("GET", url, classify).json()
        return _position(stats["maxReadPosition"])

    def compacted(self, partition: str) -> Position:
        """The position up to which a topic partition is compacted; START if it is not."""
        stats = self.internal_stats(partition)
        if stats["compactedLedger"]["entries"] <= 0:
            return START
        return _position(stats["cursors"]["__compaction"]["markDeletePosition"])

    def position_at(self, partition: str, epoch_ms: int) -> Position:
        """The last position published before an instant; its entry id may be -1."""
        answer = self._ask("GET", f"{_path(partition)}/messageid/{epoch_ms}").json()
        return Position(answer["ledgerId"], max(answer["entryId"] - 1, -1))

    def matching_topics(self, pattern: str) -> list[str]:
        """Topics whose full names match `persistent://tenant/namespace/<regular expression>`."""
        namespace = "/".join(pattern.removeprefix("persistent://").split("/")[:2])
        partitioned = self._ask("GET", f"persistent/{namespace}/partitioned").json()
        plain = self._ask("GET", f"persistent/{namespace}").json()
        parts = tuple(f"{name}-partition-" for name in partitioned)
        names = {*partitioned, *(name for name in plain if not name.startswith(parts))}
        return sorted(name for name in names if re.fullmatch(pattern, name))

    def schemas(self, topic: str) -> list[dict[str, Any]]:
        """All schema versions of a topic, each with `version`, `type` and `data`."""
        path = quote(topic.partition("://")[2])
        try:
            answer = self._ask("GET", f"schemas/{path}/schemas").json()
        except TopicNotFoundError:
            return []
        found: list[dict[str, Any]] = answer["getSchemaResponses"]
        return found

    def subscription(self, partition: str, name: str) -> Position | None:
        """The position up to which a durable subscription lets the broker drop messages.

        None if the subscription does not exist.
        """
        return self.state(partition).cursors.get(name)

    def create_subscription(self, partition: str, name: str, position: Position) -> None:
        """Create a durable subscription that makes the broker keep everything after a position."""
        self._ask("PUT", f"{_path(partition)}/subscription/{quote(name, safe='')}", json=EARLIEST)
        if position > START:
            self.move_subscription(partition, name, position)

    def move_subscription(self, partition: str, name: str, position: Position) -> None:
        """Let the broker drop what a subscription kept, up to and including a position.

        An entry that is only partly read is kept.
        """
        read = position.entry if position.batch == WHOLE else position.entry - 1
        body = {**EARLIEST, "ledgerId": position.ledger, "entryId": read, "excluded": True}
        path = f"{_path(partition)}/subscription/{quote(name, safe='')}/resetcursor"
        self._ask("POST", path, json=body)

    def delete_subscription(self, partition: str, name: str) -> None:
        """Delete a durable subscription, so that the broker keeps nothing for it any more."""
        self._ask("DELETE", f"{_path(partition)}/subscription/{quote(name, safe='')}")

    def _create(self, path: str, content: dict[str, Any]) -> None:
        # A broker that is starting may create its defaults at the same time.
        with contextlib.suppress(AlreadyThereError):
            self._ask("PUT", path, json=content)

    def _is_ok(self, path: str) -> bool:
        try:
            return self._client.get(path).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def _partition_count(self, topic: str) -> int:
        try:
            return int(self._ask("GET", f"{_path(topic)}/partitions").json()["partitions"])
        except TopicNotFoundError as error:
            what = f"The broker at {self._url} has no topic {topic}."
            remedy = "Create it, or correct its name."
            raise TopicNotFoundError(what, remedy) from error

    def _ask(
        self, method: str, path: str, classify: Classify = _classify, **content: Any
    ) -> httpx.Response:
        """Send a request until the broker answers it.

        Args:
            method: the HTTP method.
            path: the path below the base URL of the admin API, or a whole URL.
            classify: what a response of this endpoint means.
            content: further arguments for `_send`.

        Raises:
            TopicNotFoundError: what was asked for does not exist.
            AlreadyThereError: what was to be created exists already.
            BrokerError: the broker does not answer, or refuses the request.
        """
        try:
            return self._ask_patiently(partial(self._ask_once, method, path, classify, **content))
        except (httpx.HTTPError, _NotYetError) as error:
            what = f"The Pulsar broker at {self._url} does not answer ({error})."
            raise BrokerError(what, "Start it, or correct the option adminUrl.") from error

    def _send(
        self, method: str, path: str, *, without_body: bool = False, **content: Any
    ) -> httpx.Response:
        """Send a request, and follow redirects to the broker that owns the topic."""
        places = [path]
        while len(places) <= REDIRECTS:
            with self._client.stream(method, places[-1], **content) as response:
                if response.is_error or not without_body:  # a body may be megabytes
                    response.read()
            if (
                response.status_code != httpx.codes.TEMPORARY_REDIRECT
                or response.next_request is None
            ):
                return response
            places.append(self._checked(response.url, response.next_request.url))
            content.pop("params", None)  # the address of the redirect contains them
        what = f"The brokers redirect us in a circle: {' -> '.join(places)}."
        remedy = (
            "The topic may be moving; try again. If the error persists, give each broker an "
            "advertisedAddress of its own."
        )
        raise BrokerError(what, remedy)

    def _checked(self, asked: httpx.URL, place: httpx.URL) -> str:
        """The address of a redirect, if we may send our credentials there.

        Raises:
            BrokerError: the host is not a known broker, or the protocol differs.
        """
        if place.host not in self._hosts:
            brokers = self._client.get("brokers")
            listed = brokers.json() if brokers.is_success else []
            self._hosts |= {broker.rpartition(":")[0] for broker in listed}
        if place.scheme != asked.scheme or place.host not in self._hosts:
            what = (
                f"The broker at {self._url} redirects us to {place.scheme}://{place.netloc.decode()},"
                " which we do not follow: the host is not in the broker's list of brokers, our "
                "role may not read that list, or the protocol differs."
            )
            remedy = (
                "If the host is one of your brokers, name it with the option adminHosts, or name a "
                "proxy with adminUrl."
            )
            raise BrokerError(what, remedy)
        return str(place)

    @staticmethod
    def _ask_patiently(ask: Callable[[], httpx.Response]) -> httpx.Response:
        """Repeat a request until the broker answers, but no longer than a restart takes."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        wait, longest = WAIT_SECONDS
        while True:
            try:
                return ask()
            except (httpx.TransportError, _NotYetError):
                if time.monotonic() + wait > deadline:
                    raise
            time.sleep(wait)
            wait = min(2 * wait, longest)

    def _ask_once(
        self, method: str, path: str, classify: Classify, **content: Any
    ) -> httpx.Response:
        response = self._send(method, path, **content)
        outcome = classify(response)
        if outcome is Outcome.OK:
            return response
        kind, message = FAILURES[outcome]
        reason = f"{path} is not ready yet" if response.is_success else _reason(response)
        raise kind(message.format(url=self._url, method=method, path=path, reason=reason))


def _entry(headers: httpx.Headers) -> Entry:
    def header(name: str) -> int | None:
        value = headers.get(f"X-Pulsar-{name}")
        return int(value) if value else None

    hidden = headers.get("X-Pulsar-txn-aborted") == "true" or bool(header("marker-type"))
    pending = headers.get("X-Pulsar-txn-uncommitted") == "true"
    chunk = header("chunk-id"), header("num-chunks-from-msg")
    return Entry(header("num-batch-message") or 1, *chunk, hidden, pending)


def _named(hosts: str | None) -> set[str]:
    return {host.strip() for host in (hosts or "").split(",") if host.strip()}


def namespace_of(topic: str) -> str:
    """The namespace, `tenant/namespace`, of a topic that is named in full."""
    return topic.partition("://")[2].rpartition("/")[0]


def _path(topic: str) -> str:
    domain, _, rest = topic.partition("://")
    return f"{domain}/{quote(rest)}"


def _position(text: str) -> Position:
    ledger, entry = text.split(":")
    return Position(int(ledger), int(entry))


def _reason(response: httpx.Response) -> str:
    try:
        return f"{response.status_code} {response.json()['reason']}"
    except (ValueError, KeyError, TypeError):
        return f"{response.status_code} {response.reason_phrase}"
