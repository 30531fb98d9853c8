"""Checks the paths and nested types of a topic, and arranges its fields as a payload nests them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lake.topics.field_type import DECIMAL, NAME, FieldType

if TYPE_CHECKING:  # it calls these checks
    from lake.topics.topic import Topic

Place = tuple[str, ...]
Tree = dict[str, "Tree | FieldType"]
BARE = ("string", "bytes")  # formats whose payload is a single value
RESERVED = "_corrupt"  # a column that silver's JSON parser adds to a row
TEXTS = ("string", "binary", "date", "timestamp")


def checked_path(value: Any) -> Any:
    """The names of a path. It is written as a text with dots, or as a list of names.

    Raises:
        ValueError: a name is empty, or has a character that no name can have.
    """
    names = value.split(".") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names:
        message = f"'{value}' is no path; write names with dots between them, or a list of names"
        raise ValueError(message)
    for name in names:
        if not isinstance(name, str) or not name.isprintable() or not name or {*name} & {*"\"'`\\"}:
            message = (
                f"the path has the name '{name}', which is empty or has a quote, a backslash or a "
                "character that cannot be printed"
            )
            raise ValueError(message)
    return tuple(names)


def tree_of(fields: Mapping[Place, FieldType]) -> Tree:
    """Arrange fields by the names that lead to them."""
    tree: Tree = {}
    for place, kind in fields.items():
        within = tree
        for name in place[:-1]:
            inner = within.setdefault(name, {})
            if isinstance(inner, FieldType):  # refused by `nested`, which is called later
                break
            within = inner
        within[place[-1]] = kind
    return tree


def part(declared: Tree | FieldType | None, name: str | None) -> Tree | FieldType | None:
    """What is declared of a member of an object, or of the elements of a list or map."""
    if isinstance(declared, FieldType):
        if declared.name == "struct":
            return dict(declared.parts).get(str(name))
        return None if declared.is_scalar else declared.element
    if isinstance(declared, Mapping):
        return declared.get(name) if name else None
    return None


def struct_of(tree: Tree) -> FieldType:
    """A tree as a type."""
    inner = ((n, x if isinstance(x, FieldType) else struct_of(x)) for n, x in tree.items())
    return FieldType("struct", tuple(inner))


def leaves(tree: Tree, within: Place = ()) -> Iterator[tuple[Place, FieldType]]:
    """The fields of a tree, by the names that lead to them."""
    for name, inner in tree.items():
        if isinstance(inner, FieldType):
            yield (*within, name), inner
        else:
            yield from leaves(inner, (*within, name))


def objects(tree: Tree, within: Place = ()) -> Iterator[tuple[Place, Tree]]:
    """The objects of a tree below its root, outer ones before those in them."""
    found = [(n, inner) for n, inner in tree.items() if not isinstance(inner, FieldType)]
    for name, inner in found:
        yield (*within, name), inner
    for name, inner in found:
        yield from objects(inner, (*within, name))


def shown(place: Place) -> str:
    """A path as errors and reasons show it."""
    return ".".join(place)


def nested(topic: Topic) -> Iterator[str]:
    """What is wrong with the paths and the nested types of a topic.

    Each problem continues a sentence that begins with the topic.
    """
    yield from _roles(topic)
    paths = {name: spec.path for name, spec in topic.fields.items() if spec.path}
    if paths and topic.format in BARE:
        yield f"has '{next(iter(paths))}' with a path, but a bare value has no members"
    for name, path in paths.items():
        if path[0] == RESERVED:
            yield f"has '{name}' at the path '{shown(path)}', which silver cannot read"
    if not topic.envelope:
        yield from _overlaps(topic)
    yield from _mixed(topic.whole)


def exploded(topic: Topic) -> Iterator[str]:
    """What is wrong with `explode`, as in `nested`. Checked first, because others rely on it."""
    if topic.explode is None:
        return
    path, index, within = topic.explode.path, topic.explode.index, topic.element_fields
    if topic.kind != "events":
        yield (
            "is a changelog, and only events can have 'explode': a message with a shorter array "
            "could not delete the rows of the elements that it lacks"
        )
    if topic.format in BARE:
        yield "has 'explode', but a bare value has no array"
    spec = topic.fields.get(index)
    if spec is None or spec.type not in ("int", "long") or spec != type(spec)(type=spec.type):
        yield f"needs the field '{index}' for 'explode'; declare it as '{index} = \"int\"'"
    if index not in topic.key:
        yield (
            f"needs '{index}' in its key, because rows of the same message could otherwise not be "
            "told apart"
        )
    own = [name for name in topic.key if name != index]
    if not own or {*own} & {*within}:
        yield (
            f"has 'explode', so its key must be '{index}' and fields of the message, which are not "
            "in the elements"
        )
    if not any(not spec.personal for spec in within.values()):
        yield (
            f"has no field in the elements of '{shown(path)}' that is not personal; give a field a "
            f"path such as '{shown((*path, 'name'))}'"
        )
    uses = {"event_time": topic.event_time, "message_key": topic.message_key}
    for option, name in uses.items():
        if name is not None and (name == index or name in within):
            yield f"has '{name}' in '{option}', which must be a field of the message"
    for name, spec in within.items():
        inner = (spec.path or ())[len(path) :]
        if not inner and len(within) > 1:
            yield f"has '{name}' as an element, and other fields in the elements"
        if any(not NAME.fullmatch(part) for part in inner):
            yield f"has '{name}' at a path with a name that a member of a struct cannot have"
        if spec.absent is not None or spec.personal == "hash":
            option = "'absent'" if spec.absent is not None else "personal = 'hash'"
            yield f"has '{name}' with {option}, which fields in the elements cannot have"
        if topic.explode.function and any(
            s.name == "timestamp_ms" for _, _, s in spec.kind.scalars()
        ):
            yield f"has '{name}' in rows of a function, which have no JSON; its type is 'timestamp'"
    for name in topic.computed_fields:
        with contextlib.suppress(ValueError):  # reported by `computed`
            if used := {*topic.computed_from(name)} & {index, *within}:
                yield (
                    f"computes '{name}' from '{min(used)}', which is in an element; only fields of "
                    "the message can be used"
                )


def _roles(topic: Topic) -> Iterator[str]:
    """Fields that must be single values, because rows are found, ordered or chosen by them."""
    rules = {
        option: rule.field
        for option, rule in (
            *(("delete", topic.delete), ("truncate", topic.truncate)),
            ("snapshot_end", topic.snapshot_end),
        )
        if rule is not None and not isinstance(rule, str)
    }
    single = {"event_time": topic.event_time, "message_key": topic.message_key, **rules}
    single |= {"merged_into": topic.merged_into}
    uses = [
        *(("key", name) for name in topic.key),
        *(("sequence", name) for name in topic.sequence),
        *single.items(),
        *(("on", name) for name in topic.referring),
    ]
    for option, name in uses:
        if name is not None and not topic.fields[name].kind.is_scalar:
            kind = topic.fields[name].type
            yield f"has '{name}' in '{option}', which needs a single value, but its type is {kind}"


def _overlaps(topic: Topic) -> Iterator[str]:
    """Fields of which one is within another, or whose names differ only in case."""
    places = {name: topic.place(name) for name in topic.payload_fields}
    for (one, outer), (other, inner) in itertools.permutations(places.items(), 2):
        if inner[: len(outer)] == outer:
            yield (
                f"has '{other}' at '{shown(inner)}', which is within the field '{one}' at "
                f"'{shown(outer)}'; declare one of them"
            )
    spelled: dict[Place, Place] = {}
    for place in places.values():
        for length in range(1, len(place) + 1):
            part = place[:length]
            known = spelled.setdefault(tuple(map(str.lower, part)), part)
            if known != part:
                yield (
                    f"has the paths '{shown(known)}' and '{shown(part)}', which differ only in "
                    "case, so silver cannot read both"
                )


def _mixed(topic: Topic) -> Iterator[str]:
    """Fields in which a decimal cannot be told from a text of the same name.

    Silver checks decimals before it parses JSON, by their names. In a row, it then reads the fields
    without decimals from the original text. In an envelope, it does not.
    """
    fields = topic.payload_fields.items()
    known = [(name, [*spec.kind.scalars(topic.place(name)[-1])]) for name, spec in fields]
    remedy = "with another type" if topic.envelope else "as a field of its own, with 'path'"
    for group in [known] if topic.envelope else [[each] for each in known]:
        decimals, texts = dict[str, str](), dict[str, str]()
        for name, scalars in group:
            for own, holder, kind in scalars:
                if DECIMAL.fullmatch(kind.name):
                    decimals[own] = name
                elif kind.name in TEXTS:
                    texts["" if holder == "map" else own] = name
        for own, name in decimals.items():
            if other := texts.get("", texts.get(own)):
                yield (
                    f"has the decimal '{own}' in '{name}', and a text in '{other}' that may have "
                    f"the same name; declare the decimal {remedy}"
                )
