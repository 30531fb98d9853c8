"""`lakehouse savepoint`: name a moment of the lake, and restore the whole lake to it.

A savepoint is the latest snapshot in `silver.cuts`, with the matching versions of all tables and
positions of all streams: bronze as far as silver has read it, and gold as built by then. On the
broker, each savepoint has its own subscriptions, which keep all later messages. After a restore has
brought the tables back, the streams therefore read these messages again.
"""

import contextlib
import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path

from deltalake.exceptions import DeltaError
from pydantic import BaseModel
from pyspark.sql import SparkSession
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from bronze.ingest import subscription
from gold.lock import alone
from gold.tables import last_published, published_tables
from lake.durable import delete_durably, read_json, write_durably
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import Checkpoint, checkpoint_id, claim, interrupted
from lake.streams.delta_offset import offset_of_delta
from lake.streams.rewind import Place, move
from lake.tables.format import FIRST, FORMAT, FormatError, release
from lake.tables.lake import Lake
from lake.tables.spec import bronze_table
from lake.tables.storage import is_there
from lake.tables.table import Table
from pulsar_spark.broker.admin import PulsarAdmin, TopicNotFoundError
from pulsar_spark.errors import LakehouseError, SettingsError
from pulsar_spark.offsets import START, Offset, Position, from_json
from pulsar_spark.read.reader import split_partition
from silver.audit.snapshots import SilverSnapshot, last_batch, latest_snapshot
from silver.contract.tables import CUTS, silver_tables
from silver.refine import QUERY, require_bronze

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
SETTLE_SECONDS = 60


class _NotSettledError(LakehouseError):
    """Silver is in the middle of a batch, which some tables contain and the snapshot does not."""


class Savepoint(BaseModel):
    """A savepoint, as stored in its file.

    format: that of the lake. versions: Delta version by table name. places: the position of each query, None if it had read
    nothing yet. addresses: the full name on the broker of each topic; absent from the savepoints of
    older versions, whose topics were all in the namespace of the settings.
    """

    name: str
    created_at: dt.datetime
    silver_batch: int
    versions: dict[str, int]
    places: dict[str, Place | None]
    addresses: dict[str, str] = {}
    format: int = FIRST

    def bronze_offset(self, topic: str) -> Offset:
        """The offset in a topic up to which bronze had read it, empty if it had read nothing."""
        place = self.places[f"bronze.{topic}"]
        return from_json(place.ends["0"]) if place else {}

    @property
    def topics(self) -> list[str]:
        """The topics that were declared when the savepoint was created."""
        layers = (name.partition(".") for name in self.places)
        return [topic for layer, _, topic in layers if layer == "bronze"]

    def address(self, lake: Lake, topic: str) -> str:
        """The full name that a topic had on the broker. It may not be declared any more."""
        return self.addresses.get(topic) or lake.settings.full_topic(topic)

    def positions(
        self, lake: Lake, topic: str, admin: PulsarAdmin
    ) -> Iterator[tuple[str, Position]]:
        """Each partition of a topic on the broker, and the position after which to read it.

        Raises:
            TopicNotFoundError: the broker does not have the topic.
        """
        offset = self.bronze_offset(topic)
        for partition in admin.partitions(self.address(lake, topic)):
            yield partition, offset.get(partition, START)


def savepoints(settings: LakeSettings) -> list[Savepoint]:
    """All savepoints, oldest first.

    Raises:
        LakehouseError: the file of a savepoint is damaged.
    """
    stored = (read_json(file, _lost(file)) for file in _folder(settings).glob("*.json"))
    found = [Savepoint.model_validate(each) for each in stored if each is not None]
    return sorted(found, key=lambda each: each.created_at)


def create(lake: Lake, name: str) -> Savepoint:
    """Name the latest consistent moment of the lake. The streams may keep running.

    Raises:
        SettingsError: the name is taken or not allowed, or a command was interrupted.
        LakehouseError: silver has not finished a batch yet or is in the middle of one, or the
            broker has dropped messages that silver has not read.
        CheckpointError: Spark no longer keeps the position of bronze at the snapshot.
    """
    if NAME.fullmatch(name) is None:
        message = f"'{name}' is not a valid savepoint name. Use letters, digits, '-' and '_'."
        raise SettingsError(message)
    if _file(lake.settings, name).exists():
        message = f"The savepoint '{name}' already exists. Drop it first, or choose another name."
        raise SettingsError(message)
    if command := _interrupted(lake.settings):
        message = (
            f"`{command}` was interrupted, so the tables are not consistent and no savepoint can "
            "be created. Run that command again first to finish it."
        )
        raise SettingsError(message)
    require_bronze(lake)
    versions = {table.full_name: table.log().version() for table in published_tables(lake)}
    shown = last_published(lake)
    snapshot = _settled_snapshot(lake, shown.silver_batch if shown else -1)
    places: dict[str, Place | None] = {QUERY: _silver_place(lake, snapshot)}
    for topic in lake.topics.topics:
        table = bronze_table(topic)
        version = snapshot.versions[table.full_name]
        places[table.full_name] = Place.of_table(lake, table, version)
    savepoint = Savepoint(
        name=name,
        created_at=dt.datetime.now(dt.timezone.utc),
        silver_batch=snapshot.silver_batch,
        versions={**snapshot.versions, **versions},
        places=places,
        addresses={topic: lake.address(topic) for topic in lake.topics.topics},
        format=FORMAT,
    )
    with PulsarAdmin(lake.settings.connection) as admin:
        for topic in savepoint.topics:
            pin = _pin(lake.settings, topic, name)
            for partition, position in savepoint.positions(lake, topic, admin):
                _subscribe(admin, partition, pin, position)
                kept = admin.subscription(partition, pin)
                if kept is None or not _keeps(lake, topic, partition, kept, position):
                    message = (
                        f"{partition}: the broker has dropped messages after {position} that "
                        "silver has not read yet, so the lake could not be restored to that point. "
                        "Let silver catch up."
                    )
                    raise LakehouseError(message)
    file = _file(lake.settings, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_durably(file, savepoint.model_dump_json(indent=1))
    return savepoint


def drop(lake: Lake, name: str) -> None:
    """Delete a savepoint, and let the broker drop the messages that it kept.

    Raises:
        SettingsError: there is no such savepoint, or a restore to it was interrupted.
    """
    savepoint = _find(lake.settings, name)
    if (command := _interrupted(lake.settings)) == _restoring(name):
        message = (
            f"`{command}` was interrupted and needs the savepoint to finish. Run it again, then "
            f"drop the savepoint '{name}'."
        )
        raise SettingsError(message)
    with PulsarAdmin(lake.settings.connection) as admin:
        for topic in savepoint.topics:
            with contextlib.suppress(TopicNotFoundError):
                for partition, _ in savepoint.positions(lake, topic, admin):
                    admin.delete_subscription(partition, _pin(lake.settings, topic, name))
    delete_durably(_file(lake.settings, name))


def restore(spark: SparkSession, lake: Lake, name: str) -> None:
    """Restore tables and streams to a savepoint. No stream and no build of gold may be running.

    If interrupted, run it again: it continues, and until it is done the streams and gold refuse to
    start.

    Raises:
        SettingsError: there is no such savepoint, or topics were added, removed or given another
            address since.
        FormatError: the savepoint is of a lake of another format.
        CheckpointError: a stream is running, or another command was interrupted.
        GoldError: gold is being built.
        LakehouseError: the old version of a table is no longer kept. Nothing is changed then.
    """
    savepoint = _find(lake.settings, name)
    _require_same_format(savepoint)
    _require_same_tables(lake, savepoint)
    tables = {name: lake.named(*name.split(".")) for name in sorted(savepoint.versions)}
    command = _restoring(name)
    with alone(lake.settings), _all_claimed(lake, command) as checkpoints:
        for full_name, table in tables.items():
            _see_it_is_kept(lake.settings, table, savepoint.versions[full_name])
        for checkpoint in checkpoints.values():
            checkpoint.expect(command)
        for table in published_tables(lake):  # what gold.cuts lists now, which is restored as well
            if table.full_name not in tables:
                table.delete()
        for full_name, table in tables.items():
            table.spark(spark).restoreToVersion(savepoint.versions[full_name])
        _move_streams(lake, savepoint, checkpoints)
        for checkpoint in checkpoints.values():
            checkpoint.expect(None)


def _require_same_format(savepoint: Savepoint) -> None:
    if savepoint.format != FORMAT:
        message = (
            f"The savepoint '{savepoint.name}' is of format {savepoint.format}, and this release "
            f"({release()}) writes format {FORMAT}. Nothing was changed."
        )
        remedy = "Restore it with the release that created it, or drop it."
        raise FormatError(message, remedy)


def _require_same_tables(lake: Lake, savepoint: Savepoint) -> None:
    """Check that a savepoint knows the topics that are declared, and their tables.

    Raises:
        SettingsError: a topic or a table was added or removed since, or the address of a topic was
            changed.
    """
    for topic in {*lake.topics.topics} & {*savepoint.topics}:
        if (former := savepoint.address(lake, topic)) != lake.address(topic):
            message = (
                f"The topic '{topic}' was {former} when the savepoint '{savepoint.name}' was "
                f"created, and is {lake.address(topic)} now. Use the topic file from that time."
            )
            raise SettingsError(message)
    others = {*lake.topics.topics} ^ {*savepoint.topics}
    owned = [*(bronze_table(topic) for topic in lake.topics.topics), *silver_tables(lake.topics)]
    later = [
        table.full_name
        for table in owned
        if table.full_name not in savepoint.versions and lake.table(table).exists()
    ]
    if not others and not later:
        return
    what = f"topic '{min(others)}'" if others else f"table {later[0]}"
    is_new = not others or min(others) in lake.topics.topics
    message = (
        f"The {what} was {'added' if is_new else 'removed'} after the savepoint "
        f"'{savepoint.name}' was created. Use the topic file from that time."
    )
    raise SettingsError(message)


def _move_streams(lake: Lake, savepoint: Savepoint, checkpoints: dict[str, Checkpoint]) -> None:
    with PulsarAdmin(lake.settings.connection) as admin:
        for topic in savepoint.topics:
            own = subscription(checkpoints[f"bronze.{topic}"].id)
            for partition, position in savepoint.positions(lake, topic, admin):
                _subscribe(admin, partition, own, position)
    ends = {}
    for topic in lake.topics.topics:
        table = bronze_table(topic)
        move(checkpoints[table.full_name], savepoint.places[table.full_name])
        # Silver continues after the restore, because the log before it holds rows that are gone.
        delta = lake.table(table).log()
        ends[topic] = offset_of_delta(delta, delta.version() + 1)
    place = savepoint.places[QUERY]
    if place is not None:
        move(checkpoints[QUERY], place.at(ends))


@contextlib.contextmanager
def _all_claimed(lake: Lake, command: str) -> Iterator[dict[str, Checkpoint]]:
    with contextlib.ExitStack() as stack:
        found = {}
        for query in (*(f"bronze.{topic}" for topic in lake.topics.topics), QUERY):
            found[query] = claim(lake.settings, query, command)
            stack.callback(found[query].release)
        yield found


def _settled_snapshot(lake: Lake, seen: int) -> SilverSnapshot:
    """The latest snapshot, once it is not older than gold's and all bronze versions are read fully.

    Args:
        lake: the lake.
        seen: the silver batch that gold was last published from, -1 if it never was.

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
                "finish (`lakehouse silver --available-now`), then create the savepoint."
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


def _see_it_is_kept(settings: LakeSettings, table: Table, version: int) -> None:
    try:
        files = table.log(version).file_uris()
        gone = [file for file in files if not is_there(settings, file)]
    except (DeltaError, OSError) as error:
        gone = [str(error)]
    if gone:
        message = (
            f"{table.full_name} cannot go back to version {version}: {gone[0]} is no longer kept. "
            "Old versions are kept for LAKEHOUSE_HISTORY_DAYS days. Nothing was changed."
        )
        raise LakehouseError(message)


def _subscribe(admin: PulsarAdmin, partition: str, name: str, position: Position) -> None:
    with contextlib.suppress(TopicNotFoundError):  # left over from an earlier attempt
        admin.delete_subscription(partition, name)
    admin.create_subscription(partition, name, position)


def _keeps(lake: Lake, topic: str, partition: str, kept: Position, at: Position) -> bool:
    """Whether the broker still has all messages of a partition after a position.

    If nothing had been read (`START`), the messages that bronze has landed since must still be on
    the broker. Messages that it has not landed yet are kept by bronze's own subscription.

    Args:
        lake: the lake.
        topic: the topic's declared name.
        partition: the partition's full name.
        kept: the position after which the broker keeps messages.
        at: the position to return to.
    """
    if at != START:
        return kept <= at
    number = split_partition(partition)[1]
    place = ["ledger", "entry"]
    landed = lake.table(bronze_table(topic)).arrow.rows(place, f"partition = {number}")
    return all(Position(row["ledger"], row["entry"]) > kept for row in landed)


def _pin(settings: LakeSettings, topic: str, name: str) -> str:
    return f"{subscription(str(checkpoint_id(settings, f'bronze.{topic}')))}-{name}"


def _restoring(name: str) -> str:
    return f"lakehouse savepoint restore {name}"


def _interrupted(settings: LakeSettings) -> str | None:
    return interrupted(Path(settings.checkpoint_path(QUERY)))


def _find(settings: LakeSettings, name: str) -> Savepoint:
    for savepoint in savepoints(settings):
        if savepoint.name == name:
            return savepoint
    known = ", ".join(each.name for each in savepoints(settings)) or "none"
    message = f"There is no savepoint '{name}'. The existing ones are: {known}."
    raise SettingsError(message)


def _lost(file: Path) -> str:
    """The remedy for a savepoint whose file is damaged."""
    name = file.stem
    return (
        f"The savepoint '{name}' can no longer be restored. Delete the file; then `lakehouse "
        f"savepoint create {name}` and `lakehouse savepoint drop {name}` make the broker drop the "
        "messages that it kept for the savepoint."
    )


def _folder(settings: LakeSettings) -> Path:
    return settings.lake_dir / "_savepoints"


def _file(settings: LakeSettings, name: str) -> Path:
    return _folder(settings) / f"{name}.json"
