"""Drafts the fields of a Protobuf message from its descriptor in the broker's registry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from lake.topics.field_type import field_type
from lake.topics.nested import Place
from silver.records.protobuf import TIMESTAMP, WRAPPERS, message_class

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

DEEPEST = 8  # messages within one another
TYPES = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), "int"),
    **dict.fromkeys(("uint32", "fixed32", "int64", "sint64", "sfixed64"), "long"),
    **dict.fromkeys(("uint64", "fixed64"), "decimal(20,0)"),  # half of the values are no long
    **{"double": "double", "float": "float", "bool": "boolean", "string": "string"},
    **{"bytes": "binary", "enum": "string"},
}


class Drafted(NamedTuple):
    """A field as it was found.

    kind: its type in a topic file; None if none fits. shown: what it is called where it was found,
    such as its type in the `.proto` file. place: the names that lead to it.
    """

    kind: str | None
    is_required: bool
    shown: str
    place: Place


def fields_of_protobuf(definition: str) -> Iterator[Drafted]:
    """The fields of a schema of the type `PROTOBUF_NATIVE`. Those of inner messages have a path."""
    message = message_class(definition).DESCRIPTOR
    yield from _fields(message, (), (message,), is_required=True)


def _fields(
    message: Descriptor, within: Place, around: tuple[Descriptor, ...], *, is_required: bool
) -> Iterator[Drafted]:
    for field in message.fields:
        place, inner = (*within, field.name), field.message_type
        is_always = is_required and not field.has_presence
        is_object = inner is not None and not field.is_repeated and _single(field) is None
        if is_object and inner not in around and len(place) < DEEPEST:
            yield from _fields(inner, place, (*around, inner), is_required=False)
        else:
            shown = inner.full_name if inner is not None else _name(field)
            yield Drafted(_kind(field, len(place)), is_always, shown, place)


def _kind(field: FieldDescriptor, depth: int) -> str | None:
    """The type of a field; None if none fits."""
    if not field.is_repeated:
        return _single(field) or _struct(field.message_type, depth)
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        return _checked(f"map<string, {_element(entry.fields_by_name['value'], depth)}>")
    return _checked(f"array<{_element(field, depth)}>")


def _element(field: FieldDescriptor, depth: int) -> str | None:
    return _single(field) or _struct(field.message_type, depth)


def _single(field: FieldDescriptor) -> str | None:
    """The type of a field with a single value; None if it is an object."""
    inner = field.message_type
    if inner is None:
        return TYPES.get(_name(field))
    if inner.full_name == TIMESTAMP:
        return "timestamp"
    if inner.full_name in WRAPPERS:
        return _single(inner.fields_by_name["value"])
    return None


def _struct(message: Descriptor | None, depth: int) -> str | None:
    if message is None or depth >= DEEPEST:  # or a message that contains itself
        return None
    members = ((field.name, _kind(field, depth + 1)) for field in message.fields)
    found = ", ".join(f"{name}: {kind}" for name, kind in members if kind)
    return _checked(f"struct<{found}>")


def _checked(text: str) -> str | None:
    try:
        return str(field_type(text))
    except ValueError:
        return None


def _name(field: FieldDescriptor) -> str:
    """The name of a scalar type, as in a `.proto` file."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    name: str = FieldDescriptorProto.Type.Name(field.type)
    return name.removeprefix("TYPE_").lower()
