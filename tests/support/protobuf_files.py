"""A Protobuf message type, its files as a broker's registry has them, and its messages."""

import base64
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

Field = descriptor_pb2.FieldDescriptorProto


def field(name: str, number: int, kind: str, **more: Any) -> descriptor_pb2.FieldDescriptorProto:
    """Return a field; a kind with a dot is the name of a message."""
    if kind.startswith("."):
        more |= {"type": Field.TYPE_ENUM if kind.endswith("Level") else Field.TYPE_MESSAGE}
        more["type_name"] = kind
    else:
        more["type"] = getattr(Field, f"TYPE_{kind.upper()}")
    if more.pop("many", False):
        more["label"] = Field.LABEL_REPEATED
    return descriptor_pb2.FieldDescriptorProto(name=name, number=number, **more)


def files() -> descriptor_pb2.FileDescriptorSet:
    """Return the files of a message `shop.Order`; a file comes before those that it needs."""
    time = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(time)
    entry = descriptor_pb2.DescriptorProto(name="LabelsEntry")
    entry.field.extend([field("key", 1, "string"), field("value", 2, "int32")])
    entry.options.map_entry = True
    line = descriptor_pb2.DescriptorProto(name="Line")
    stamp = ".google.protobuf.Timestamp"
    line.field.extend([field("sku", 1, "string"), field("at", 2, stamp)])
    geo = descriptor_pb2.DescriptorProto(name="Geo")
    geo.field.extend([field("lat", 1, "double")])
    order = descriptor_pb2.DescriptorProto(name="Order")
    order.nested_type.append(entry)
    order.oneof_decl.add(name="_note")
    order.field.extend(
        [
            field("id", 1, "int64"),
            field("raw", 2, "bytes"),
            field("at", 3, stamp),
            field("sent", 4, stamp),
            field("level", 5, ".shop.Level"),
            field("lines", 6, ".shop.Line", many=True),
            field("labels", 7, ".shop.Order.LabelsEntry", many=True),
            field("note", 8, "string", proto3_optional=True, oneof_index=0),
            field("geo", 9, ".shop.Geo"),
            field("is_paid", 10, "bool"),
        ]
    )
    level = descriptor_pb2.EnumDescriptorProto(name="Level")
    for number, name in enumerate(["LOW", "HIGH"]):
        level.value.add(name=name, number=number)
    own = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    own.dependency.append(time.name)
    own.message_type.extend([line, geo, order])
    own.enum_type.append(level)
    return descriptor_pb2.FileDescriptorSet(file=[own, time])


def definition(found: descriptor_pb2.FileDescriptorSet) -> dict[str, str]:
    """Return the definition of the schema as the Java client registers it."""
    return {
        "fileDescriptorSet": base64.b64encode(found.SerializeToString()).decode(),
        "rootMessageTypeName": "shop.Order",
        "rootFileDescriptorName": "shop.proto",
    }


def order(found: descriptor_pb2.FileDescriptorSet) -> Any:
    """Return an empty message of the class that these files define."""
    pool = descriptor_pool.DescriptorPool()
    for file in reversed(found.file):
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))()
