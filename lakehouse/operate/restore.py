"""`lakehouse restore DIR`: bring a backup back into an empty home, so that `up` continues from it.

All files are first copied beside the lake's folder, with their checksums verified, and get their
place by one rename. If the tables are to be in a bucket, they are copied there before that rename.
Until then there are no checkpoints, so nothing reads or writes them.

The restored streams read their topics under ids of their own. A restore therefore does not disturb
the lake that was backed up if it still runs, as when a restore is rehearsed.
"""

import contextlib
import json
import os
import shutil
import time
import uuid
from pathlib import Path

import structlog

from bronze.ingest import query_name, subscription
from bronze.start import NAME as STARTED
from lake.durable import PRIVATE, delete_durably, sync_folder, write_durably
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import IDENTITY, READER, identity
from lake.streams.rewind import BEGUN, log_files
from lake.tables.format import LakeFormat, require_known
from lake.tables.lake import Lake
from lake.tables.storage import (
    copy_in,
    delete_file,
    files_below,
    in_bucket,
    require_bucket,
)
from lakehouse.operate.backup import LAKE, USERS, pin_of
from lakehouse.operate.backup_store import Backup, BackupStore
from lakehouse.operate.moment import subscribe
from lakehouse.sql.users import users_file
from pulsar_spark.broker.admin import PulsarAdmin, TopicNotFoundError
from pulsar_spark.eras import Era, Partitioning, Span, partitionings, with_partitionings
from pulsar_spark.errors import LakehouseError, SettingsError
from pulsar_spark.offsets import START, from_json, topic_of

BEGUN_IN = "restored-into"  # in the stage: the bucket that holds tables of this restore
VERIFIED = "verified"  # a file on its way to the bucket

log = structlog.get_logger()


def read_backup(store: BackupStore) -> Backup:
    """The list of the backup in a folder.

    Raises:
        SettingsError: there is no complete backup.
        FormatError: a newer release has written the lake.
        LakehouseError: the list is damaged.
    """
    backup = store.read()
    if backup is None:
        message = f"There is no complete backup in {store.folder}: it has no backup.json."
        remedy = "Name the folder that was given to `lakehouse backup`."
        raise SettingsError(message, remedy)
    require_known(
        LakeFormat(backup.format, backup.release), f"The lake in the backup {store.folder}"
    )
    return backup


def require_empty(settings: LakeSettings) -> None:
    """Check that a lake can be restored into the home of the settings.

    Raises:
        SettingsError: there is a lake already, or the bucket cannot be used.
    """
    lake = settings.lake_dir
    if lake.exists() and (not lake.is_dir() or any(lake.iterdir())):
        message = (
            f"{lake} is not empty, and a restore overwrites nothing. Choose another home with "
            "--home or LAKEHOUSE_HOME, or delete this lake first (`lakehouse reset`)."
        )
        raise SettingsError(message)
    if not in_bucket(settings):
        return
    require_bucket(settings)
    if files_below(settings, settings.tables) and _begun_in(_stage(settings)) != settings.tables:
        message = (
            f"{settings.tables} is not empty, and a restore overwrites nothing. Name another place "
            "as LAKEHOUSE_LAKE, or delete what is there."
        )
        raise SettingsError(message)


def restore(
    lake: Lake,
    store: BackupStore,
    backup: Backup,
    *,
    new_broker: bool = False,
    take_over: bool = False,
) -> None:
    """Restore a lake. If this is killed, run it again; until it is done there is no lake.

    Args:
        lake: the empty lake, with the topics of the project.
        store: the folder of the backup.
        backup: its list.
        new_broker: the topics are on another broker, or were created again. All messages that they
            hold are landed, and count as later than those in the backup.
        take_over: the lake that was backed up is gone, so the broker drops what it kept for it.

    Raises:
        SettingsError: the home is not empty, or a topic is declared with another address.
        LakehouseError: a file of the backup is missing or damaged, or the broker does not have the
            messages after the backup. Nothing is changed then.
    """
    require_empty(lake.settings)
    _refuse_other_addresses(lake, backup)
    if not new_broker:
        _see_messages_are_kept(lake, backup)
    target = lake.settings.lake_dir
    stage = _stage(lake.settings)
    readers = _readers(stage, backup)
    _clear(lake.settings, stage)
    _copy_out(lake.settings, store, backup, stage)
    _restore_users(lake.settings, store, backup)
    checkpoints = stage / lake.settings.checkpoints_dir.relative_to(target)
    for query, reader in readers.items():
        file = checkpoints / query / IDENTITY
        write_durably(file, json.dumps({**identity(file.parent), READER: reader}, indent=1))
    if new_broker:
        _begin_again(lake, backup, checkpoints)
    else:
        _subscribe(lake, backup, readers)
    if take_over:
        _drop_former(lake, backup)
    for folder, _, _ in os.walk(stage):
        sync_folder(Path(folder))
    os.replace(stage, target)  # replaces an empty folder
    sync_folder(target.parent)


def _stage(settings: LakeSettings) -> Path:
    """Where the lake's folder is put together."""
    return settings.lake_dir.with_name(f".{settings.lake_dir.name}.restoring")


def _begun_in(stage: Path) -> str | None:
    """The bucket into which a restore that was killed has copied tables; None if there is none."""
    file = stage / BEGUN_IN
    return file.read_text("utf-8") if file.exists() else None


def _clear(settings: LakeSettings, stage: Path) -> None:
    """Delete what a killed restore has left, which `require_empty` has found to be nothing else."""
    if in_bucket(settings):
        for name in files_below(settings, settings.tables):
            delete_file(settings, f"{settings.tables}/{name}")
    shutil.rmtree(stage, ignore_errors=True)


def _copy_out(settings: LakeSettings, store: BackupStore, backup: Backup, stage: Path) -> None:
    """Copy checkpoints and tables to the stage; tables that are to be in a bucket go there.

    Raises:
        LakehouseError: a file of the backup is missing or damaged.
    """
    checkpoints = f"{settings.checkpoints_dir.relative_to(settings.lake_dir)}/"
    if in_bucket(settings):
        stage.mkdir(parents=True)
        write_durably(stage / BEGUN_IN, settings.tables)
    for full_name, stored in backup.files.items():
        if not full_name.startswith(LAKE):
            continue
        name = full_name.removeprefix(LAKE)
        if in_bucket(settings) and not name.startswith(checkpoints):
            store.copy(full_name, stored, stage / VERIFIED)
            copy_in(settings, stage / VERIFIED, f"{settings.tables}/{name}")
            (stage / VERIFIED).unlink()
        else:
            store.copy(full_name, stored, stage / name)


def _readers(stage: Path, backup: Backup) -> dict[str, str]:
    """A reader id for each stream; the one that a killed restore has used, if there was one."""
    found = {}
    for query in backup.places:
        stored = {}
        with contextlib.suppress(LakehouseError):
            stored = identity(stage / "_checkpoints" / query)
        found[query] = stored.get(READER) or uuid.uuid4().hex
    return found


def _refuse_other_addresses(lake: Lake, backup: Backup) -> None:
    for topic in lake.topics.topics:
        former = backup.addresses.get(topic)
        if former is not None and former != str(lake.address(topic)):
            message = (
                f"The topic '{topic}' was {former} when the backup was made, and is "
                f"{lake.address(topic)} now (the key 'topic' or 'pattern' in "
                f"{lake.settings.topics}, or the setting pulsar_namespace). Positions do not order "
                "the messages of two topics. Name the former address again."
            )
            raise SettingsError(message)


def _see_messages_are_kept(lake: Lake, backup: Backup) -> None:
    """Check that the broker has kept the messages after the backup.

    Raises:
        LakehouseError: it has not, or is another broker.
    """
    with PulsarAdmin(lake.settings.connection) as admin:
        for topic in backup.topics:
            pin = pin_of(backup.readers[topic], backup.id)
            try:
                places = [*backup.positions(lake, topic, admin)]
            except TopicNotFoundError:
                raise _not_kept(lake, str(backup.address(lake, topic)), pin) from None
            for partition, position in places:
                kept = admin.subscription(partition, pin)
                if partition not in backup.partitions:
                    log.warning(
                        "partition was added after the backup; what the broker has dropped of it "
                        "since is missing",
                        partition=partition,
                    )
                elif kept is None or (kept > position and position != START):
                    raise _not_kept(lake, partition, pin)


def _not_kept(lake: Lake, place: str, pin: str) -> LakehouseError:
    message = (
        f"{place}: the broker at {lake.settings.pulsar_admin_url} has not kept the messages after "
        f"the backup (subscription '{pin}'). Either it is another broker than at the time of the "
        "backup, or a later backup or `lakehouse backup --release` let it drop them. No lake was "
        "restored."
    )
    remedy = (
        "Name the former broker. If the topics are on another one now, --new-broker lands all "
        "messages that they hold there; messages that are in the backup, too, then land twice."
    )
    return LakehouseError(message, remedy)


def _restore_users(settings: LakeSettings, store: BackupStore, backup: Backup) -> None:
    stored = backup.files.get(USERS)
    if stored is None:
        return
    file = users_file(settings)
    content = store.text(USERS, stored)
    if file.exists() and file.read_text() != content:
        message = (
            f"{file} exists already, and differs from the users in the backup. Nothing was "
            "changed. Delete the file, or name another one as LAKEHOUSE_SQL_USERS_FILE."
        )
        raise SettingsError(message)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_durably(file, content, mode=PRIVATE)


def _subscribe(lake: Lake, backup: Backup, readers: dict[str, str]) -> None:
    """Make the broker keep the messages after the backup for the restored streams."""
    with PulsarAdmin(lake.settings.connection) as admin:
        for topic in backup.topics:
            own = subscription(readers[query_name(topic)])
            for partition, position in backup.positions(lake, topic, admin):
                subscribe(admin, partition, own, position)


def _drop_former(lake: Lake, backup: Backup) -> None:
    """Delete the subscriptions of the lake that was backed up, and of its savepoints."""
    with PulsarAdmin(lake.settings.connection) as admin:
        for topic in backup.topics:
            own = subscription(backup.readers[topic])
            pin = pin_of(backup.readers[topic], backup.id)
            with contextlib.suppress(TopicNotFoundError):
                for partition, _ in backup.positions(lake, topic, admin):
                    for name in admin.state(partition).cursors:
                        if name.startswith(own) and name != pin:
                            admin.delete_subscription(partition, name)


def _begin_again(lake: Lake, backup: Backup, checkpoints: Path) -> None:
    """Let the streams of bronze begin at the start of their topics, with a new era.

    Positions on another broker may be smaller than those in the backup, so the messages there get
    a later order time (`pulsar_spark/eras.py`).
    """
    now = time.time_ns() // 1000
    for topic in backup.topics:
        place = backup.places[query_name(topic)]
        folder = checkpoints / query_name(topic)
        delete_durably(folder / STARTED)  # a position on the former broker
        if place is None:
            continue
        known = partitionings(place.ends["0"])
        last = max((era.span.high for each in known.values() for era in each.eras), default=0)
        instant = max(now, last + 1)
        eras = (Era(Span(instant, instant), {}),)
        read = {*known, *map(topic_of, from_json(place.ends["0"]))}
        begun = {
            name: Partitioning(known[name].partitions if name in known else 0, eras)
            for name in {*backup.address(lake, topic).names, *read}
        }
        offset = json.dumps(with_partitionings({}, begun))
        moved = place.at_offset(offset)
        for name, content in {BEGUN: moved.stored(), **log_files(moved)}.items():
            write_durably(folder / name, content)
