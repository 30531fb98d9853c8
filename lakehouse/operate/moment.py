"""A moment at which all tables and streams of a lake belong together.

It is the latest snapshot in `silver.cuts`, with the matching versions of all tables and positions
of all streams: bronze as far as silver has read it, and gold as built by then. Savepoints and
backups are made of it. A subscription on the broker keeps the messages after it.
"""

import contextlib
import datetime as dt
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from gold.tables import last_published, published_tables
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import interrupted
from lake.streams.rewind import Place
from lake.tables.format import FIRST, FORMAT
from lake.tables.lake import Lake
from lake.tables.spec import bronze_table
from lake.topics.address import Address
from pulsar_spark.broker.admin import PulsarAdmin, TopicNotFoundError
from pulsar_spark.eras import partitionings
from pulsar_spark.errors import LakehouseError, SettingsError
from pulsar_spark.offsets import START, Offset, Position, from_json
from pulsar_spark.read.reader import split_partition
from silver.audit.snapshots import SilverSnapshot, last_batch, latest_snapshot
from silver.contract.tables import CUTS
from silver.refine import QUERY, require_bronze

SETTLE_SECONDS = 60


class _NotSettledError(LakehouseError):
    """Silver is in the middle of a batch, which some tables contain and the snapshot does not."""


class Moment(BaseModel):
    """A moment of a lake.

    format: that of the lake. versions: Delta version by table name. places: the position of each
    query, None if it had read nothing yet. addresses: the address on the broker of each topic, as
    text; absent from the savepoints of older versions, whose topics were all in the namespace of
    the settings.
    """

    silver_batch: int
    versions: dict[str, int]
    places: dict[str, Place | None]
    addresses: dict[str, str] = {}
    format: int = FIRST

    def bronze_offset(self, topic: str) -> Offset:
        """The offset in a topic up to which bronze had read it, empty if it had read nothing."""
        place = self.places[f"bronze.{topic}"]
        return from_json(place.ends["0"]) if place else {}

    def begun(self, topic: str) -> dt.datetime | None:
        """The order time of a topic's first messages on its present broker.

        None if the topic was always on this one; see `lakehouse restore --new-broker`.
        """
        place = self.places[f"bronze.{topic}"]
        stored = partitionings(place.ends["0"]) if place else {}
        eras = [era for each in stored.values() for era in each.eras]
        first = [era.span.low for era in eras if era.is_settled and not era.since]
        return dt.datetime.fromtimestamp(max(first) / 1e6, dt.timezone.utc) if first else None

    @property
    def topics(self) -> list[str]:
        """The topics that were declared at the moment."""
        layers = (name.partition(".") for name in self.places)
        return [topic for layer, _, topic in layers if layer == "bronze"]

    def address(self, lake: Lake, topic: str) -> Address:
        """Where a topic was on the broker. It may not be declared any more."""
        return Address.parse(self.addresses.get(topic) or lake.settings.full_topic(topic))

    def positions(
        self, lake: Lake, topic: str, admin: PulsarAdmin
    ) -> Iterator[tuple[str, Position]]:
        """Each partition of a topic on the broker, and the position after which to read it.

        Raises:
            TopicNotFoundError: the broker does not have the topic.
        """
        offset = self.bronze_offset(topic)
        for name in self.address(lake, topic).topics(admin):
            for partition in admin.partitions(name):
                yield partition, offset.get(partition, START)


def take_moment(lake: Lake, what: str) -> Moment:
    """The latest consistent moment of the lake. The streams may keep running.

    Args:
        lake: the lake.
        what: what is made of the moment, for errors: "savepoint" or "backup".

    Raises:
        SettingsError: a command was interrupted.
        LakehouseError: silver has not finished a batch yet or is in the middle of one.
        CheckpointError: Spark no longer keeps the position of bronze at the snapshot.
    """
    if command := interrupted_command(lake.settings):
        message = (
            f"`{command}` was interrupted, so the tables are not consistent and no {what} can "
            "be created. Run that command again first to finish it."
        )
        raise SettingsError(message)
    require_bronze(lake)
    shown = last_published(lake)
    versions = {table.full_name: table.log().version() for table in published_tables(lake)}
    while shown != (now := last_published(lake)):  # gold was published in between
        shown = now
        versions = {table.full_name: table.log().version() for table in published_tables(lake)}
    snapshot = _settled_snapshot(lake, shown.silver_batch if shown else -1, what)
    places: dict[str, Place | None] = {QUERY: _silver_place(lake, snapshot)}
    for topic in lake.topics.topics:
        table = bronze_table(topic)
        version = snapshot.versions[table.full_name]
        places[table.full_name] = Place.of_table(lake, table, version)
    return Moment(
        silver_batch=snapshot.silver_batch,
        versions={**snapshot.versions, **versions},
        places=places,
        addresses={topic: str(lake.address(topic)) for topic in lake.topics.topics},
        format=FORMAT,
    )


def hold(
    admin: PulsarAdmin,
    lake: Lake,
    moment: Moment,
    topic: str,
    name: str,
    *,
    also_earlier: bool = False,
) -> list[str]:
    """Make the broker keep the messages of a topic after a moment, by a subscription.

    Args:
        admin: the broker.
        lake: the lake.
        moment: the moment.
        topic: the topic's declared name.
        name: the name of the subscription.
        also_earlier: whether a subscription that exists and stands at the moment or before it
            stays where it is. Otherwise it is replaced.

    Returns:
        The partitions of the topic.

    Raises:
        LakehouseError: the broker has dropped some of the messages already.
    """
    partitions = []
    for partition, position in moment.positions(lake, topic, admin):
        kept = admin.subscription(partition, name) if also_earlier else None
        if kept is None or kept > position:
            subscribe(admin, partition, name, position)
            kept = admin.subscription(partition, name)
        if kept is None or not _keeps(lake, moment, topic, partition, kept, position):
            message = (
                f"{partition}: the broker has dropped messages after {position} that "
                "silver has not read yet, so the lake could not be restored to that point. "
                "Let silver catch up."
            )
            raise LakehouseError(message)
        partitions.append(partition)
    return partitions


def interrupted_command(settings: LakeSettings) -> str | None:
    """The command that was interrupted while it replaced tables, as `interrupted` returns it."""
    return interrupted(Path(settings.checkpoint_path(QUERY)))


def _settled_snapshot(lake: Lake, seen: int, what: str) -> SilverSnapshot:
    """The latest snapshot, once it is not older than gold's and all bronze versions are read fully.

    Args:
        lake: the lake.
        seen: the silver batch that gold was last published from, -1 if it never was.
        what: what is made of the snapshot, for the error.

    Raises:
        LakehouseError: this was not so within `SETTLE_SECONDS`.
    """

    @retry(
        retry=retry_if_exception_type(_NotSettledError),
        wait=wait_fixed(0.2),
        stop=stop_after_delay(SETTLE_SECONDS),
        reraise=True,
    )
    def settled() -> SilverSnapshot:
        last = last_batch(lake) if lake.table(CUTS).exists() else -1
        snapshot = latest_snapshot(lake) if last >= max(seen, 0) else None
        whole = {bronze_table(topic).full_name for topic in lake.topics.topics}
        if snapshot is None or not snapshot.versions.keys() >= whole:
            message = (
                "Silver is in the middle of a batch, so its tables are not consistent. Let it "
                f"finish (`lakehouse silver --available-now`), then create the {what}."
            )
            raise _NotSettledError(message)
        return snapshot

    return settled()


def _silver_place(lake: Lake, snapshot: SilverSnapshot) -> Place:
    batch = last_batch(lake)
    place = Place.of(lake.settings, QUERY, batch)
    if place is None:
        message = (
            f"Spark no longer has the positions of silver's batch {batch}. Run silver, then try "
            "again."
        )
        raise LakehouseError(message)
    return place.at(snapshot.positions)


def subscribe(admin: PulsarAdmin, partition: str, name: str, position: Position) -> None:
    """Create a subscription that keeps everything after a position, or replace it by such a one."""
    with contextlib.suppress(TopicNotFoundError):  # left over from an earlier attempt
        admin.delete_subscription(partition, name)
    admin.create_subscription(partition, name, position)


def _keeps(
    lake: Lake, moment: Moment, topic: str, partition: str, kept: Position, at: Position
) -> bool:
    """Whether the broker still has all messages of a partition after a position.

    If nothing had been read (`START`), the messages that bronze has landed since must still be on
    the broker. Messages that it has not landed yet are kept by bronze's own subscription.

    Args:
        lake: the lake.
        moment: the moment whose position it is.
        topic: the topic's declared name.
        partition: the partition's full name.
        kept: the position after which the broker keeps messages.
        at: the position to return to.
    """
    if at != START:
        return kept <= at
    name, number = split_partition(partition)
    quoted = name.replace("'", "''")
    begun = moment.begun(topic)
    place = ["ledger", "entry", *(["order_time"] if begun else [])]
    condition = f"partition = {number} AND topic = '{quoted}'"
    landed = lake.table(bronze_table(topic)).arrow.rows(place, condition)
    if begun is not None:  # other messages are of a broker that the topic was on before
        landed = [row for row in landed if row["order_time"] and row["order_time"] >= begun]
    return all(Position(row["ledger"], row["entry"]) > kept for row in landed)
