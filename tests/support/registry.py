"""Messages with a schema in the broker's registry, encoded by the test itself."""

import io
from collections.abc import Mapping
from typing import Any

import fastavro
import pulsar


def record(**fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Person",
        "fields": [
            {"name": name, "type": kind, **({"default": None} if isinstance(kind, list) else {})}
            for name, kind in fields.items()
        ],
    }


def avro(schema: Mapping[str, Any], fields: Mapping[str, Any]) -> bytes:
    content = io.BytesIO()
    fastavro.schemaless_writer(content, dict(schema), dict(fields))
    return content.getvalue()


class Raw(pulsar.schema.Schema):  # type: ignore[misc]
    """A schema of any kind, for already encoded payloads."""

    def __init__(self, kind: Any, definition: Any = None) -> None:
        super().__init__(bytes, kind, definition, "raw")

    def encode(self, obj: bytes) -> bytes:
        return obj
