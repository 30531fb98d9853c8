"""Lists the files that a version of a Delta table consists of, to copy them.

These are its data files, its deletion vectors, and the log from the last checkpoint of the log on.
A table that holds only these files can be read and continued from that version, as if VACUUM had
just deleted everything older. Files of later versions, and files that are just being written, are
not among them.

delta-rs names the data files of a version, but neither the deletion vectors nor the log files.
"""

import json
import re
import string
import uuid
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from lake.settings.settings import LakeSettings
from lake.tables.storage import Place, files_below, open_file, read_bytes
from pulsar_spark.errors import LakehouseError

LOG = "_delta_log"
CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
NEEDED = ["add.path", "add.deletionVector.storageType", "add.deletionVector.pathOrInlineDv"]
# The digits of Z85 (ZeroMQ RFC 32), in which Delta writes the id of a deletion vector.
Z85 = string.digits + string.ascii_letters + ".-:+=^!/*?&<>()[]{}@%$#"
ID = 20  # digits of an id

Action = dict[str, Any]


def files_of_version(settings: LakeSettings, table: Place, version: int) -> list[str]:
    """The paths, relative to the table's folder, of the files that make up a version.

    Raises:
        FileNotFoundError: the log of the version is no longer complete.
        LakehouseError: a file is outside the folder, as in a shallow clone.
    """
    log = f"{table}/{LOG}"
    there = files_below(settings, log)
    begun, parts = _last_checkpoint(there, version)
    commits = [f"{number:020d}.json" for number in range(begun + 1, version + 1)]
    adds: dict[str, Action] = {}
    for part in parts:
        for add in _checkpointed(settings, f"{log}/{part}"):
            adds[add["path"]] = add
    for commit in commits:
        for action in map(json.loads, read_bytes(settings, f"{log}/{commit}").splitlines()):
            if add := action.get("add"):
                adds[add["path"]] = add
            elif remove := action.get("remove"):
                # A commit that marks rows as deleted removes a file and adds it again.
                _forget(adds, remove)
    checksum = f"{version:020d}.crc"
    named = [*parts, *commits, *([checksum] if checksum in there else [])]
    data = {path for add in adds.values() for path in _files(table, add)}
    return [*(f"{LOG}/{name}" for name in named), *sorted(data)]


def _last_checkpoint(names: Iterable[str], version: int) -> tuple[int, list[str]]:
    """The newest whole checkpoint up to a version, and its files; -1 if there is none."""
    found: dict[tuple[int, str], list[str]] = {}
    for name in sorted(names):
        match = CHECKPOINT.fullmatch(name)
        if match and int(match[1]) <= version:
            found.setdefault((int(match[1]), match[3] or "1"), []).append(name)
    whole = {each: files for each, files in found.items() if len(files) == int(each[1])}
    newest = max(whole, default=None)
    return (-1, []) if newest is None else (newest[0], whole[newest])


def _checkpointed(settings: LakeSettings, file: Place) -> Iterator[Action]:
    with open_file(settings, file) as source:
        stored = pq.ParquetFile(source)
        known = {column.path for column in stored.schema}
        for batch in stored.iter_batches(columns=[name for name in NEEDED if name in known]):
            yield from (add for add in batch.column("add").to_pylist() if add and add.get("path"))


def _forget(adds: dict[str, Action], remove: Action) -> None:
    known = adds.get(remove["path"])
    if known is not None and _vector(known) == _vector(remove):
        del adds[remove["path"]]


def _vector(action: Action) -> str | None:
    found = action.get("deletionVector") or {}
    return found.get("pathOrInlineDv")


def _files(table: Place, add: Action) -> Iterable[str]:
    path = unquote(add["path"])
    vector = add.get("deletionVector") or {}
    kind = vector.get("storageType")
    if "://" in path or path.startswith(("/", "file:")) or kind == "p":
        message = (
            f"The table in {table} uses the file {path}, which is outside its folder, as in a "
            "shallow clone. Its files cannot be copied as one table."
        )
        raise LakehouseError(message, "Write the table again as a copy of its own.")
    yield path
    if kind == "u":
        text = vector["pathOrInlineDv"]
        folder, number = text[:-ID], uuid.UUID(bytes=_from_z85(text[-ID:]))
        yield f"{folder}/deletion_vector_{number}.bin".removeprefix("/")


def _from_z85(text: str) -> bytes:
    found = b""
    for start in range(0, len(text), 5):
        number = 0
        for digit in text[start : start + 5]:
            number = number * 85 + Z85.index(digit)
        found += number.to_bytes(4, "big")
    return found
