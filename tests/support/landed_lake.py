"""A lake in which a stream has landed some batches, written without Spark and a broker."""

import json
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction

from lake.settings.settings import LakeSettings, load_settings
from lake.streams.checkpoint import IDENTITY, WRITER, claim

QUERY = "bronze.o"


def landed_lake(folder: Path) -> LakeSettings:
    """Return a lake below a folder, whose query `bronze.o` has finished batch 3."""
    settings = load_settings(home=folder)
    checkpoint = claim(settings, QUERY)
    checkpoint.release()
    place = Path(checkpoint.path)
    path = settings.table_path("bronze", "o")
    schema = pa.schema([("n", pa.int64())])
    DeltaTable.create(
        path,
        schema,
        configuration={WRITER: checkpoint.id},
        raise_if_key_not_exists=False,
        commit_properties=CommitProperties(app_transactions=[Transaction("q", 3)]),
    )
    stored = json.loads((place / IDENTITY).read_text())
    stored["tables"] = {QUERY: str(DeltaTable(path).metadata().id)}
    (place / IDENTITY).write_text(json.dumps(stored))
    (place / "metadata").write_text(json.dumps({"id": "q"}))
    for log, content in (("offsets", "v1\n{}\n{}"), ("commits", "v1\n{}")):
        (place / log).mkdir()
        (place / log / "3").write_text(content)
    return settings
