"""`lakehouse savepoint`: name a moment of the lake, and restore the whole lake to it.

A savepoint is a named moment (`moment.py`). On the broker, each savepoint has its own
subscriptions, which keep all later messages. After a restore has brought the tables back, the
streams therefore read these messages again.
"""

import contextlib
import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path

from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from bronze.ingest import subscription
from gold.lock import alone
from gold.tables import published_tables
from lake.durable import delete_durably, read_json, write_durably
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import Checkpoint, claim, reader_id
from lake.streams.delta_offset import offset_of_delta
from lake.streams.rewind import move
from lake.tables.format import FORMAT, FormatError, release
from lake.tables.lake import Lake
from lake.tables.spec import bronze_table
from lake.tables.storage import is_there
from lake.tables.table import Table
from lakehouse.operate.moment import Moment, hold, interrupted_command, subscribe, take_moment
from pulsar_spark.broker.admin import PulsarAdmin, TopicNotFoundError
from pulsar_spark.errors import LakehouseError, SettingsError
from silver.contract.tables import silver_tables
from silver.refine import QUERY

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


class Savepoint(Moment):
    """A savepoint, as stored in its file."""

    name: str
    created_at: dt.datetime


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
    moment = take_moment(lake, "savepoint")
    savepoint = Savepoint(name=name, created_at=dt.datetime.now(dt.timezone.utc), **dict(moment))
    with PulsarAdmin(lake.settings.connection) as admin:
        for topic in savepoint.topics:
            hold(admin, lake, savepoint, topic, _pin(lake.settings, topic, name))
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
    if (command := interrupted_command(lake.settings)) == _restoring(name):
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
            own = subscription(checkpoints[f"bronze.{topic}"].reader)
            for partition, position in savepoint.positions(lake, topic, admin):
                subscribe(admin, partition, own, position)
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


def _pin(settings: LakeSettings, topic: str, name: str) -> str:
    return f"{subscription(str(reader_id(settings, f'bronze.{topic}')))}-{name}"


def _restoring(name: str) -> str:
    return f"lakehouse savepoint restore {name}"


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
