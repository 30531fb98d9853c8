"""The folder of a backup: the content of files by checksum, and a list of the files.

    backup.json     the list; written last, so it names only what is there
    objects/ab/…    the content of each file, named by its SHA-256
    id              names the backup's subscriptions on the broker

A later backup into the same folder adds only content that is new, replaces the list, and then
deletes content that the list no longer names. If it is killed before the list is replaced, the
former backup is as it was. All files are private, because they hold data and hashed passwords.
"""

import contextlib
import datetime as dt
import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import BaseModel, ValidationError

from lake.durable import PRIVATE, move_durably, read_json, sync_folder, write_durably
from lake.tables.format import release
from lake.tables.storage import BLOCK, SourceFile
from lakehouse.operate.moment import Moment
from pulsar_spark.errors import LakehouseError, SettingsError

LIST = "backup.json"
OBJECTS = "objects"
ID = "id"
LOCK = ".lock"
LAYOUT = 1  # of the folder; increased when earlier releases would restore it wrongly


class Stored(BaseModel):
    """A file in a backup.

    size: in bytes. modified: when the file was last written, in ns since 1970; 0 if unknown.
    """

    sha256: str
    size: int
    modified: int = 0


class Backup(Moment):
    """The list of a backup: a moment of a lake, and the files that make it up.

    lake: the id of the lake. readers: the id under which it reads each topic. partitions: those
    whose messages the broker keeps for the backup. layout, release: of the folder, and of the code
    that wrote it. files: by their path, which begins with `lake/` or `project/`, except for the SQL
    users. moved: the path within the project of what was outside of it, by setting. secrets: the
    files that settings name, such as those of secrets, which are not in the backup. variables: the
    names of environment variables with settings.
    """

    layout: int
    release: str
    id: str
    lake: str
    readers: dict[str, str]
    partitions: list[str]
    created_at: dt.datetime
    files: dict[str, Stored]
    embedded_broker: bool
    moved: dict[str, str]
    secrets: dict[str, str]
    variables: list[str]


class BackupStore:
    """The folder of a backup."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser().absolute()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Make the folder if needed, and hold its lock during the block.

        Raises:
            SettingsError: the folder holds other files, or another backup is being written there.
        """
        if self.folder.exists() and not self.folder.is_dir():
            message = f"{self.folder} is a file, so no backup can be made there. Name a folder."
            raise SettingsError(message)
        known = {LIST, OBJECTS, ID, LOCK}
        there = [*self.folder.iterdir()] if self.folder.is_dir() else []
        others = sorted(
            file.name for file in there if file.name not in known and not _is_draft(file)
        )
        if others:
            message = (
                f"{self.folder} holds other files, such as {others[0]}. A backup needs a folder of "
                "its own: name an empty or a new one."
            )
            raise SettingsError(message)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = FileLock(self.folder / LOCK, timeout=0)
        try:
            lock.acquire()
        except Timeout as error:
            message = (
                f"Another process is writing a backup to {self.folder}. Wait until it is done."
            )
            raise SettingsError(message) from error
        try:
            yield
        finally:
            lock.release()

    @property
    def id(self) -> str:
        """The id of the backup, made when it is first needed."""
        file = self.folder / ID
        if not file.exists():
            write_durably(file, secrets.token_hex(8), mode=PRIVATE)
        return file.read_text()

    def read(self) -> Backup | None:
        """The list of the last complete backup; None if there is none.

        Raises:
            LakehouseError: the list is damaged, or a newer release wrote it in another layout.
        """
        file = self.folder / LIST
        remedy = "Restore from another backup, or make a new one in an empty folder."
        stored = read_json(file, remedy)
        if stored is None:
            return None
        if isinstance(stored, dict) and stored.get("layout", 0) > LAYOUT:
            message = (
                f"The backup in {self.folder} was written by release {stored.get('release')} in a "
                f"layout that this release ({release()}) does not know. Nothing was changed."
            )
            raise LakehouseError(message, f"Use release {stored.get('release')} or a later one.")
        try:
            return Backup.model_validate(stored)
        except ValidationError as error:
            message = f"{file} is not the list of a backup ({error.errors()[0]['msg']})."
            raise LakehouseError(message, remedy) from error

    def put(self, source: SourceFile, known: Stored | None) -> tuple[Stored, bool]:
        """Store the content of a file, unless it is there already.

        Args:
            source: the file.
            known: the file in the former backup. If its size and time are the same, its content is.

        Returns:
            The stored file, and whether its content was new.

        Raises:
            FileNotFoundError: the file does not exist any more.
        """
        found = (source.size, source.modified)
        if known is not None and (known.size, known.modified) == found and self._has(known):
            return known, False
        with source.open() as stream:
            draft = self._draft()
            checksum = hashlib.sha256()
            with open(draft, "xb", opener=_private) as target:
                while block := stream.read(BLOCK):
                    checksum.update(block)
                    target.write(block)
            size = draft.stat().st_size
        stored = Stored(sha256=checksum.hexdigest(), size=size, modified=source.modified)
        return stored, self._keep(draft, stored)

    def put_text(self, content: str) -> tuple[Stored, bool]:
        """Store a text, unless it is there already; returns as `put`."""
        data = content.encode()
        stored = Stored(sha256=hashlib.sha256(data).hexdigest(), size=len(data))
        if self._has(stored):
            return stored, False
        draft = self._draft()
        with open(draft, "xb", opener=_private) as target:
            target.write(data)
        return stored, self._keep(draft, stored)

    def _draft(self) -> Path:
        folder = self.folder / OBJECTS
        folder.mkdir(exist_ok=True, mode=0o700)
        return folder / f".{secrets.token_hex(8)}.tmp"

    def _keep(self, draft: Path, stored: Stored) -> bool:
        """Give stored content its name, unless it is there already."""
        if self._has(stored):
            draft.unlink()
            return False
        target = self._object(stored)
        if not target.parent.exists():
            target.parent.mkdir(mode=0o700)
            sync_folder(target.parent.parent)
        move_durably(draft, target)
        return True

    def write(self, backup: Backup) -> None:
        """Replace the list, and delete what it does not name. All its content must be stored."""
        write_durably(self.folder / LIST, backup.model_dump_json(indent=1), mode=PRIVATE)
        self.sweep(backup)

    def sweep(self, backup: Backup | None) -> None:
        """Delete content that a backup does not name, as a killed process leaves it."""
        named = {stored.sha256 for stored in backup.files.values()} if backup else set()
        for file in (self.folder / OBJECTS).rglob("*"):
            if file.is_file() and file.name not in named:
                file.unlink()

    def copy(self, name: str, stored: Stored, target: Path) -> None:
        """Copy a file out of the backup, and check its content.

        Raises:
            LakehouseError: the content is missing or damaged.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        checksum = hashlib.sha256()
        try:
            with self._object(stored).open("rb") as source, target.open("wb") as copied:
                while block := source.read(BLOCK):
                    checksum.update(block)
                    copied.write(block)
                copied.flush()
                os.fsync(copied.fileno())
        except FileNotFoundError as error:
            raise self._damaged(name, stored, "is missing") from error
        if checksum.hexdigest() != stored.sha256:
            raise self._damaged(name, stored, "is damaged")
        if stored.modified:  # Delta finds versions by the time of their commits
            os.utime(target, ns=(stored.modified, stored.modified))

    def text(self, name: str, stored: Stored) -> str:
        """The content of a small file in the backup; raises as `copy`."""
        try:
            content = self._object(stored).read_bytes()
        except FileNotFoundError as error:
            raise self._damaged(name, stored, "is missing") from error
        if hashlib.sha256(content).hexdigest() != stored.sha256:
            raise self._damaged(name, stored, "is damaged")
        return content.decode()

    def _damaged(self, name: str, stored: Stored, what: str) -> LakehouseError:
        message = (
            f"The backup in {self.folder} cannot be restored: the content of {name} {what} "
            f"({self._object(stored)}). The lake was not changed."
        )
        return LakehouseError(message, "Restore from another backup.")

    def _has(self, stored: Stored) -> bool:
        file = self._object(stored)
        return file.exists() and file.stat().st_size == stored.size

    def _object(self, stored: Stored) -> Path:
        return self.folder / OBJECTS / stored.sha256[:2] / stored.sha256


def size_of(files: Mapping[str, Stored]) -> int:
    """The size of some files in bytes. Content that several files share counts once."""
    return sum({each.sha256: each.size for each in files.values()}.values())


def _is_draft(file: Path) -> bool:
    return file.name.startswith(".") and file.name.endswith(".tmp")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE)
