"""`lakehouse backup DIR`: copy lake, checkpoints, users and project, while everything runs.

A backup holds the lake as of one moment (`moment.py`): each table at one version, each stream at
the position that belongs to it. Files of later versions are left out, so streams and gold need not
stop. On the broker, a subscription per topic partition keeps the messages after that moment until
the next backup into the same folder has replaced this one.
"""

import contextlib
import datetime as dt
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog

from bronze.ingest import query_name, subscription
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import checkpoint_id, reader_id
from lake.streams.rewind import Place, frozen
from lake.tables.format import LakeFormat, as_text, format_of, release
from lake.tables.lake import Lake
from lake.tables.storage import SourceFile, local_file, source_files
from lake.tables.version_files import files_of_version
from lakehouse.operate.backup_store import LAYOUT, Backup, BackupStore, Stored
from lakehouse.operate.moment import Moment, hold, take_moment
from lakehouse.operate.project_files import PREFIX, project_files, secret_files, variables
from lakehouse.runtime.broker import left_over_broker
from lakehouse.sql.users import users_file
from pulsar_spark.broker.admin import PulsarAdmin, TopicNotFoundError
from pulsar_spark.errors import LakehouseError, SettingsError
from silver.refine import QUERY

LAKE = "lake/"
USERS = "sql-users"
ATTEMPTS = 5

log = structlog.get_logger()


@dataclass(frozen=True)
class BackupResult:
    """What a backup holds, and how many files and bytes were new in it."""

    backup: Backup
    new_files: int
    new_bytes: int


def back_up(lake: Lake, folder: Path, project: Path) -> BackupResult:
    """Copy the latest consistent moment of the lake into a folder. Streams and gold may run.

    Only content that the folder does not have is copied. If it fails or is killed, the former
    backup stays valid.

    Args:
        lake: the lake.
        folder: the folder of the backup; empty, new, or with an earlier backup of the same lake.
        project: the folder in which the command runs, with `lakehouse.toml`.

    Raises:
        SettingsError: the folder holds something else or lies in the lake, or a command was
            interrupted.
        LakehouseError: silver has not finished a batch, or the broker has dropped messages that
            silver has not read.
        CheckpointError: Spark no longer keeps the position of bronze at the snapshot.
    """
    store = BackupStore(folder)
    _refuse_inside(lake.settings, store.folder)
    with store.alone():
        former = store.read()
        _refuse_other_lake(lake, store, former)
        for attempt in range(1, ATTEMPTS + 1):
            moment = take_moment(lake, "backup")
            partitions = _hold(lake, moment, store.id)
            try:
                result = _copy(lake, store, former, moment, project, partitions)
            except FileNotFoundError as error:
                # A command such as `forget` deletes old files at once.
                log.warning(
                    "backup begins again", attempt=attempt, gone=error.filename or str(error)
                )
            else:
                store.write(result.backup)
                _release_read(lake, result.backup)
                return result
    message = (
        f"The backup was given up after {ATTEMPTS} attempts, because files of the lake were "
        "deleted while they were copied. The former backup, if any, is still valid."
    )
    raise LakehouseError(message, "Wait until `lakehouse forget` or `replay` is done, then retry.")


def release_backup(lake: Lake, folder: Path) -> None:
    """Let the broker drop the messages that it keeps for a backup, which does not change.

    Raises:
        SettingsError: there is no complete backup in the folder.
    """
    store = BackupStore(folder)
    backup = store.read()
    if backup is None:
        message = f"There is no complete backup in {store.folder}."
        raise SettingsError(message)
    with PulsarAdmin(lake.settings.connection) as admin:
        for topic in backup.topics:
            pin = pin_of(backup.readers[topic], backup.id)
            with contextlib.suppress(TopicNotFoundError):
                for partition, _ in backup.positions(lake, topic, admin):
                    if pin in admin.state(partition).cursors:
                        admin.delete_subscription(partition, pin)


def lake_id(settings: LakeSettings) -> str:
    """The id of a lake, which a reset or a restore changes."""
    return str(reader_id(settings, QUERY))


def pin_of(reader: str, backup: str) -> str:
    """The name of the subscription that keeps a topic's messages for a backup."""
    return f"{subscription(reader)}-backup-{backup}"


def _refuse_inside(settings: LakeSettings, folder: Path) -> None:
    for place in (settings.lake_dir, settings.home_dir):
        if folder.resolve().is_relative_to(place):
            message = (
                f"{folder} lies in {place}, which the backup is to protect. Name a folder outside "
                "of it, if possible on another disk."
            )
            raise SettingsError(message)


def _refuse_other_lake(lake: Lake, store: BackupStore, former: Backup | None) -> None:
    if former is not None and former.lake != lake_id(lake.settings):
        message = (
            f"{store.folder} holds a backup of another lake, made at "
            f"{former.created_at:%Y-%m-%d %H:%M} UTC. It was not changed. Name another folder. "
            "(After `lakehouse reset` or a restore, a lake counts as another one.)"
        )
        raise SettingsError(message)


def _hold(lake: Lake, moment: Moment, backup: str) -> list[str]:
    """Make the broker keep the messages after a moment, and those after the former backup.

    Returns:
        The partitions of all topics.

    Raises:
        LakehouseError: the broker has dropped some of them already.
    """
    partitions = []
    with PulsarAdmin(lake.settings.connection) as admin:
        for topic in moment.topics:
            pin = pin_of(str(reader_id(lake.settings, query_name(topic))), backup)
            partitions += hold(admin, lake, moment, topic, pin, also_earlier=True)
    return partitions


def _release_read(lake: Lake, backup: Backup) -> None:
    """Let the broker drop the messages that only the former backup needed."""
    with PulsarAdmin(lake.settings.connection) as admin:
        for topic in backup.topics:
            pin = pin_of(backup.readers[topic], backup.id)
            for partition, position in backup.positions(lake, topic, admin):
                kept = admin.subscription(partition, pin)
                if kept is not None and kept < position:
                    admin.move_subscription(partition, pin, position)


def _copy(
    lake: Lake,
    store: BackupStore,
    former: Backup | None,
    moment: Moment,
    project: Path,
    partitions: list[str],
) -> BackupResult:
    """Store all files of a moment.

    Raises:
        FileNotFoundError: a file was deleted since.
    """
    known = former.files if former else {}
    files: dict[str, Stored] = {}
    added: dict[str, int] = {}
    own, moved = project_files(lake.settings, project)
    sources = _tables(lake, moment)
    sources |= {PREFIX + name: local_file(file) for name, file in own.items()}
    if (logins := users_file(lake.settings)).exists():
        sources[USERS] = local_file(logins)
    for name, source in sources.items():
        files[name], is_new = store.put(source, known.get(name))
        if is_new:
            added[name] = files[name].size
    for name, content in _texts(lake, moment).items():
        files[name], is_new = store.put_text(content)
        if is_new:
            added[name] = files[name].size
    backup = Backup(
        **dict(moment),
        layout=LAYOUT,
        release=release(),
        id=store.id,
        lake=lake_id(lake.settings),
        readers={
            topic: str(reader_id(lake.settings, query_name(topic))) for topic in moment.topics
        },
        created_at=dt.datetime.now(dt.timezone.utc),
        partitions=partitions,
        files=files,
        embedded_broker=left_over_broker(lake.settings) is not None,
        moved=moved,
        secrets=secret_files(lake.settings),
        variables=variables(os.environ),
    )
    return BackupResult(backup, len(added), sum(added.values()))


def _tables(lake: Lake, moment: Moment) -> dict[str, SourceFile]:
    """The files of all tables, by their path in the backup.

    A table that the moment does not name, such as that of lost messages, or of a topic that is no
    longer declared, has no other table that it must agree with, so its newest version is taken.
    `gold_build` is left out, because the first build of gold in another home builds everything.
    """
    others = [table for layer in ("bronze", "silver") for table in lake.tables(layer).values()]
    versions = {table.full_name: table.log().version() for table in others} | moment.versions
    found = {}
    for full_name, version in versions.items():
        path = str(lake.named(*full_name.split(".")).path)
        place = path.removeprefix(f"{lake.settings.tables}/")
        names = files_of_version(lake.settings, path, version)
        for name, file in source_files(lake.settings, path, names).items():
            found[f"{LAKE}{place}/{name}"] = file
    return found


def _texts(lake: Lake, moment: Moment) -> dict[str, str]:
    """The files of checkpoints, and the note of the format, by their path in the backup."""
    folder = lake.settings.checkpoints_dir
    where = folder.relative_to(lake.settings.lake_dir)
    found = {}
    for query, place in {**dict(_undeclared(lake, moment)), **moment.places}.items():
        for name, content in frozen(folder / query, place).items():
            found[f"{LAKE}{where}/{query}/{name}"] = content
    noted = format_of(lake.settings) or LakeFormat(moment.format, release())
    return {**found, f"{LAKE}format.json": as_text(noted)}


def _undeclared(lake: Lake, moment: Moment) -> Iterator[tuple[str, Place | None]]:
    """The streams of topics that are no longer declared, with their last places."""
    for table in lake.tables("bronze").values():
        query = table.full_name
        if query not in moment.places and checkpoint_id(lake.settings, query) is not None:
            yield query, Place.newest(lake.settings, query)
