"""Delta's version checksum, `<version>.crc`, for the commits that we make without Spark.

It repeats columns and protocol of the table beside its newest commit. Without it Spark learns them
by a job of three stages over the log, for each new version that it sees: at every batch of silver.
"Version Checksum File" of Delta's PROTOCOL.md; delta-rs 1.6 writes none and deletes none.
"""

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

KEPT_VERSIONS = 10  # a reader that has begun with an older one finds out by itself


def write_checksum(table: DeltaTable, *, if_absent: bool = False) -> None:
    """Write it for the version that a table is open at, and drop an old one.

    Not in a bucket, where two more requests cost as much as they save.

    Args:
        table: the table.
        if_absent: leave it if there is one, as Spark's has more.
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
