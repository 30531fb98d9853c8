"""Writes Delta's version checksum, `<version>.crc`, for commits that we make without Spark.

The checksum repeats the table's columns and protocol beside its newest commit. Without it, Spark
runs a three-stage job over the log for each new version that it sees, which means for every batch
of silver. See "Version Checksum File" in Delta's PROTOCOL.md. delta-rs 1.6 neither writes nor
deletes these files.
"""

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

KEPT_VERSIONS = 10  # a reader of an older version reads the log instead


def write_checksum(table: DeltaTable, *, if_absent: bool = False) -> None:
    """Write the checksum of the version that `table` has loaded, and delete an outdated one.

    Does nothing for a table in a bucket, where the two extra requests cost as much as they save.

    Args:
        table: the table, loaded at its newest version.
        if_absent: keep an existing file, because the one that Spark writes holds more.
    """
    place = urlsplit(table.table_uri)
    if place.scheme not in ("", "file"):
        return
    log = Path(unquote(place.path), "_delta_log")
    file = _file(log, table.version())
    if if_absent and file.exists():
        return
    draft = file.with_name(f".{file.name}")
    draft.write_text(json.dumps(_checksum(table)))
    draft.replace(file)
    _file(log, table.version() - KEPT_VERSIONS).unlink(missing_ok=True)


def _file(log: Path, version: int) -> Path:
    return log / f"{version:020d}.crc"


def _checksum(table: DeltaTable) -> dict[str, Any]:
    sizes = pa.table(table.get_add_actions())["size_bytes"]
    return {
        "tableSizeBytes": pc.sum(sizes).as_py() or 0,
        "numFiles": len(sizes),
        "numMetadata": 1,
        "numProtocol": 1,
        "metadata": _metadata(table),
        "protocol": _protocol(table),
    }


def _metadata(table: DeltaTable) -> dict[str, Any]:
    known = table.metadata()
    named = {"name": known.name, "description": known.description}
    return {
        "id": known.id,
        **{name: text for name, text in named.items() if text is not None},
        "format": {"provider": "parquet", "options": {}},
        "schemaString": table.schema().to_json(),
        "partitionColumns": known.partition_columns,
        "configuration": known.configuration,
        "createdTime": known.created_time,
    }


def _protocol(table: DeltaTable) -> dict[str, Any]:
    known = table.protocol()
    features = {
        "readerFeatures": known.reader_features,
        "writerFeatures": known.writer_features,
    }
    return {
        "minReaderVersion": known.min_reader_version,
        "minWriterVersion": known.min_writer_version,
        **{name: sorted(each) for name, each in features.items() if each},
    }
