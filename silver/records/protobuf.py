"""Reads Protobuf messages by the descriptor that the broker's registry has of them.

Pulsar's type `PROTOBUF_NATIVE` has the descriptors of all files that a message needs. The older
type `PROTOBUF` has an Avro schema instead, which does not say the numbers of fields.
"""

from __future__ import annotations

import base64
import datetime as dt
import functools
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from lake.topics.field_type import FieldType
from lake.topics.nested import Tree, part

if TYPE_CHECKING:
    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.message import Message

TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in (
        *("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes"),
    )
}
DEEPEST = 100  # as in Google's own parsers


class ProtobufError(Exception):
    """A payload does not match its descriptor. The text continues a sentence about the payload."""


def protobuf_record(payload: bytes, definition: str, tree: Tree) -> dict[str, Any]:
    """The fields of a message, by the names in its `.proto` file.

    A field without a value is left out. Fields of proto3 that cannot be absent have their default.

    Args:
        payload: the message.
        definition: the schema in the registry.
        tree: the declared fields, as a payload nests them. They decide whether a timestamp is an
            instant or an object with seconds and nanos.

    Raises:
        ProtobufError: the payload does not match.
        Exception: the definition is not valid.
    """
    from google.protobuf.message import DecodeError

    message = message_class(definition)()
    try:
        message.ParseFromString(payload)
    except DecodeError as error:
        what = "does not match its Protobuf schema"
        raise ProtobufError(what) from error
    if missing := message.FindInitializationErrors():
        what = f"lacks the required field '{missing[0]}' of its Protobuf schema"
        raise ProtobufError(what)
    return _members(message, tree, "")


@functools.lru_cache(maxsize=1000)
def message_class(definition: str) -> type[Message]:
    """The class of the messages of a schema version."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    found = json.loads(definition)
    content = base64.b64decode(found["fileDescriptorSet"])
    files = {file.name: file for file in FileDescriptorSet.FromString(content).file}
    pool, added = DescriptorPool(), set[str]()

    def add(name: str) -> None:
        if name not in added and name in files:
            added.add(name)
            for needed in files[name].dependency:  # the registry has them in any order
                add(needed)
            pool.Add(files[name])

    for name in files:
        add(name)
    root = pool.FindMessageTypeByName(found["rootMessageTypeName"])
    return cast("type[Message]", GetMessageClass(root))


def _members(message: Message, declared: Tree | FieldType | None, place: str) -> dict[str, Any]:
    from google.protobuf.unknown_fields import UnknownFieldSet

    if place.count(".") > DEEPEST:
        what = f"has more than {DEEPEST} messages within one another"
        raise ProtobufError(what)
    if len(UnknownFieldSet(message)):
        where = f" in '{place}'" if place else ""
        what = f"has bytes{where} that belong to no field of its Protobuf schema"
        raise ProtobufError(what)
    return dict(_present(message, declared, f"{place}." if place else ""))


def _present(
    message: Message, declared: Tree | FieldType | None, within: str
) -> Iterator[tuple[str, Any]]:
    for field in message.DESCRIPTOR.fields:
        name = field.name
        if field.has_presence and not message.HasField(name):
            continue
        inner, where, value = part(declared, name), f"{within}{name}", getattr(message, name)
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            of_value = entry.fields_by_name["value"]
            element = part(inner, None)
            yield (
                name,
                {_key(k): _value(of_value, value[k], element, where) for k in value},
            )
        elif field.is_repeated:
            element = part(inner, None)
            yield name, [_value(field, each, element, where) for each in value]
        else:
            yield name, _value(field, value, inner, where)


def _key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _value(
    field: FieldDescriptor, value: Any, declared: Tree | FieldType | None, place: str
) -> Any:
    kind = field.message_type
    if kind is not None:
        is_scalar = isinstance(declared, FieldType) and declared.is_scalar
        if is_scalar and kind.full_name == TIMESTAMP:
            return _instant(value, place)
        if is_scalar and kind.full_name in WRAPPERS:
            return value.value
        return _members(value, declared, place)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        if known is None:
            what = f"has the number {value} in '{place}', which its enum does not define"
            raise ProtobufError(what)
        return known.name
    return value


def _instant(value: Any, place: str) -> dt.datetime:
    """The instant of a timestamp. Digits beyond microseconds are dropped."""
    try:
        begin = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
        return begin + dt.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    except OverflowError as error:
        what = f"has a time in '{place}' that is outside the years 1 to 9999"
        raise ProtobufError(what) from error
