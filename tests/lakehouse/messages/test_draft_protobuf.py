"""Tests that a Protobuf schema is drafted as the fields that silver reads."""

import json

from protobuf_files import definition, field, files

from lakehouse.messages.draft_protobuf import fields_of_protobuf


def test_fields_have_the_types_and_paths_of_the_descriptor() -> None:
    found = files()
    line, _, order = found.file[0].message_type
    line.field.append(field("next", 3, ".shop.Line"))  # contains itself
    order.field.append(field("total", 11, "uint64"))
    drafted = fields_of_protobuf(json.dumps(definition(found)))
    fields = {".".join(each.place): (each.kind, each.is_required) for each in drafted}
    lines, _ = fields.pop("lines")
    assert lines is not None
    assert lines.startswith("array<struct<sku: string, at: timestamp, next: struct<sku: string")
    assert fields == {
        "id": ("long", True),
        "raw": ("binary", True),
        "at": ("timestamp", False),
        "sent": ("timestamp", False),
        "level": ("string", True),
        "labels": ("map<string, int>", True),
        "note": ("string", False),
        "geo.lat": ("double", False),
        "is_paid": ("boolean", True),
        "total": ("decimal(20,0)", True),
    }
