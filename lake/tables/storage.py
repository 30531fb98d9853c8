"""Access to tables in a folder or in an S3 bucket. Only this module knows which of the two it is.

Whatever is locked or renamed, such as checkpoints and savepoints, stays in a folder on this machine
(`lake_dir`). Credentials are not settings. delta-rs, Arrow and Hadoop each find them where any AWS
client looks, so no configuration, log or table contains them.
"""

import errno
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from deltalake import DeltaTable
from pyarrow import NativeFile
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, LocalFileSystem, S3FileSystem

from lake.durable import write_durably
from lake.settings.settings import LakeSettings
from pulsar_spark.errors import SettingsError
from pulsar_spark.log_masking import hide, redact

SCHEME = "s3://"
# Spark uses `s3://`, too, so that a table has one address. Hadoop itself knows only `s3a`.
CLIENT = "org.apache.hadoop.fs.s3a.S3AFileSystem"
SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
LOG_STORE = "lakehouse.S3LogStore"  # see `log_store.py`
CREDENTIALS = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"

Place = str | Path
BLOCK = 8 << 20  # bytes that are copied at once


@dataclass(frozen=True)
class SourceFile:
    """A file to copy, on this machine or in a bucket.

    size: in bytes. modified: when it was last written, in ns since 1970.
    """

    files: FileSystem
    path: str
    size: int
    modified: int

    def open(self) -> NativeFile:
        """Open the file to read it. Raises FileNotFoundError if it does not exist any more."""
        return self.files.open_input_stream(self.path)


def in_bucket(settings: LakeSettings) -> bool:
    """Whether the tables are in a bucket."""
    return settings.tables.startswith(SCHEME)


def require_folder(settings: LakeSettings, what: str, why: str) -> None:
    """Refuse an operation that does not support tables in a bucket yet.

    Args:
        settings: the lake.
        what: the operation, for the error.
        why: the reason why it is not supported, for the error.

    Raises:
        SettingsError: the tables are in a bucket.
    """
    if in_bucket(settings):
        message = (
            f"{what} does not support a lake on S3 yet: {why}. docs/deploying.md lists what does. "
            f"Nothing was changed at {settings.tables}."
        )
        raise SettingsError(message)


def require_bucket(settings: LakeSettings) -> None:
    """Check that the bucket exists and can be accessed, if the tables are in one.

    Also masks AWS secrets in all logs from now on.

    Raises:
        SettingsError: the bucket does not exist or cannot be accessed.
    """
    if not in_bucket(settings):
        return
    for name in SECRETS:
        hide(os.environ.get(name, ""))
    files, path = _files(settings, settings.tables)
    bucket = path.partition("/")[0]
    try:
        found = files.get_file_info(bucket).type
        files.get_file_info(FileSelector(path, allow_not_found=True))
    except OSError as error:
        why = redact(str(error))
    else:
        if found != FileType.NotFound:
            return
        why = "the bucket does not exist"
    what = (
        f"The bucket of LAKEHOUSE_LAKE={settings.tables} cannot be used at "
        f"{settings.s3_server or 'Amazon'}, region {settings.s3_region_name}: {why}."
    )
    remedy = (
        "Check LAKEHOUSE_S3_ENDPOINT, LAKEHOUSE_S3_REGION and the credentials (AWS_… or a role)."
    )
    raise SettingsError(what, remedy)


def storage_options(settings: LakeSettings) -> dict[str, str] | None:
    """The options that delta-rs needs to reach the tables; None for a folder."""
    if not in_bucket(settings):
        return None
    options = {"AWS_REGION": settings.s3_region_name}
    if settings.s3_server:
        plain = str(settings.s3_server.startswith("http://")).lower()
        options |= {"AWS_ENDPOINT_URL": settings.s3_server, "AWS_ALLOW_HTTP": plain}
    return options


def spark_options(settings: LakeSettings) -> dict[str, str]:
    """The Spark settings that are needed to reach the tables; empty for a folder."""
    if not in_bucket(settings):
        return {}
    options = {
        "fs.s3.impl": CLIENT,
        "fs.s3a.aws.credentials.provider": CREDENTIALS,
        "fs.s3a.endpoint.region": settings.s3_region_name,
    }
    if settings.s3_server:
        options |= {"fs.s3a.endpoint": settings.s3_server, "fs.s3a.path.style.access": "true"}
    hadoop = {f"spark.hadoop.{name}": value for name, value in options.items()}
    return {**hadoop, "spark.delta.logStore.s3.impl": LOG_STORE}


def open_table(settings: LakeSettings, place: Place, version: int | None = None) -> DeltaTable:
    """Open the Delta table at a place, at its newest version or the given one."""
    return DeltaTable(place, version=version, storage_options=storage_options(settings))


def is_table(settings: LakeSettings, place: Place) -> bool:
    """Whether there is a Delta table at a place."""
    return DeltaTable.is_deltatable(str(place), storage_options(settings))


def tables_below(settings: LakeSettings, place: Place) -> list[str]:
    """The names of the Delta tables in a folder or below an address, sorted.

    A log without a commit does not count as a table. A process that is killed while it creates a
    table leaves such a log.
    """
    names = folders_below(settings, place)
    return [name for name in names if is_table(settings, f"{place}/{name}")]


def folders_below(settings: LakeSettings, place: Place) -> list[str]:
    """The names of the folders in a folder or below an address, sorted."""
    files, path = _files(settings, place)
    there = files.get_file_info(FileSelector(path, allow_not_found=True))
    return sorted(each.base_name for each in there if each.type == FileType.Directory)


def newest_version(settings: LakeSettings, place: Place) -> int:
    """The newest version of the table at a place.

    In a folder, only the names of the log's files are read. The version is -1 if there are none.
    """
    if in_bucket(settings):
        return open_table(settings, place).version()
    names = (file.stem for file in Path(place, "_delta_log").glob("*.json"))
    return max((int(name) for name in names if name.isdigit()), default=-1)


def is_there(settings: LakeSettings, place: Place) -> bool:
    """Whether a place holds a file, or a folder with files."""
    return bool(_look(settings, place).type != FileType.NotFound)


def written_at(settings: LakeSettings, place: Place) -> float | None:
    """When a file was last written, in seconds since 1970; None if it does not exist."""
    nanoseconds: int | None = _look(settings, place).mtime_ns
    return None if nanoseconds is None else nanoseconds / 1e9


def read_text(settings: LakeSettings, place: Place) -> str | None:
    """The text of a file; None if it does not exist."""
    try:
        return str(read_bytes(settings, place), "utf-8")
    except FileNotFoundError:
        return None


def read_bytes(settings: LakeSettings, place: Place) -> bytes:
    """The content of a file."""
    files, path = _files(settings, place)
    with files.open_input_stream(path) as stream:
        return bytes(stream.read())


def open_file(settings: LakeSettings, place: Place) -> NativeFile:
    """Open a file to read parts of it. Raises FileNotFoundError if it does not exist."""
    files, path = _files(settings, place)
    return files.open_input_file(path)


def source_files(
    settings: LakeSettings, place: Place, names: Sequence[str]
) -> dict[str, SourceFile]:
    """The files with these names below a place.

    Raises:
        FileNotFoundError: one does not exist any more.
    """
    files, path = _files(settings, place)
    return dict(zip(names, _sources(files, [f"{path}/{name}" for name in names]), strict=True))


def local_file(path: Path) -> SourceFile:
    """A file of this machine. Raises FileNotFoundError if it does not exist."""
    [found] = _sources(LocalFileSystem(), [str(path)])
    return found


def _sources(files: FileSystem, paths: list[str]) -> list[SourceFile]:
    found = files.get_file_info(paths)  # of all at once, as a bucket takes its time for each
    for each in found:
        if each.type != FileType.File:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), each.path)
    return [SourceFile(files, each.path, each.size, each.mtime_ns) for each in found]


def copy_in(settings: LakeSettings, source: Path, place: Place) -> None:
    """Copy a file of this machine to the tables. In a bucket, it appears when it is complete."""
    files, path = _files(settings, place)
    with source.open("rb") as content, files.open_output_stream(path) as target:
        while block := content.read(BLOCK):
            target.write(block)


def write_text(settings: LakeSettings, place: Place, text: str) -> None:
    """Create or replace a small file. Readers find the old content or the new one."""
    if not in_bucket(settings):
        write_durably(Path(place), text)
        return
    files, path = _files(settings, place)
    with files.open_output_stream(path) as stream:  # an object appears when it is complete
        stream.write(text.encode())


def files_below(settings: LakeSettings, place: Place) -> dict[str, int]:
    """The size in bytes of each file in a folder and its subfolders, by path within the folder."""
    files, path = _files(settings, place)
    found = files.get_file_info(FileSelector(path, allow_not_found=True, recursive=True))
    start = len(path.rstrip("/")) + 1
    return {each.path[start:]: each.size for each in found if each.type == FileType.File}


def delete_file(settings: LakeSettings, place: Place) -> None:
    """Delete a file."""
    files, path = _files(settings, place)
    files.delete_file(path)


def delete(settings: LakeSettings, place: Place) -> None:
    """Delete a place and everything below it. Does nothing if it does not exist."""
    files, path = _files(settings, place)
    below = files.get_file_info(FileSelector(path, allow_not_found=True, recursive=True))
    folders = [each.path for each in below if each.type == FileType.Directory]
    for folder in sorted(folders, key=len, reverse=True):  # some servers delete only empty folders
        files.delete_dir(folder)
    if is_there(settings, place):
        files.delete_dir(path)


def link(settings: LakeSettings, source: Place, target: Place) -> None:
    """Make a file available at a second place: a hard link, or in a bucket a copy made by S3."""
    if in_bucket(settings):
        files, path = _files(settings, source)
        files.copy_file(path, _files(settings, target)[1])
        return
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # the places are on different file systems, or links are not supported
        draft = target.with_name(f".{target.name}")
        shutil.copy2(source, draft)
        draft.replace(target)


def _look(settings: LakeSettings, place: Place) -> FileInfo:
    files, path = _files(settings, place)
    return files.get_file_info(path)


def commit_file(table: Place, version: int) -> str:
    """The place of a version's commit file in the log of a Delta table."""
    return f"{table}/_delta_log/{version:020d}.json"


def _files(settings: LakeSettings, place: Place) -> tuple[FileSystem, str]:
    """The file system of the tables, and the path of a place in it."""
    if in_bucket(settings):
        files = s3_client(settings.s3_server, settings.s3_region_name)
        return files, str(place).removeprefix(SCHEME)
    return LocalFileSystem(), str(place)


@cache
def s3_client(server: str | None, region: str) -> S3FileSystem:
    """Arrow's client of a server (None: Amazon). It keeps the credentials of its first use."""
    return S3FileSystem(region=region, endpoint_override=server)
