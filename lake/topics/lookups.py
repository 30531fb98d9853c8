"""Lookups of events: which row of a changelog belongs to an event, and the rules that are checked.

A lookup goes by fields of the event, or by fields of the row that another lookup has found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator

from lake.topics.field_spec import Declaration, Name
from lake.topics.field_type import NAME

if TYPE_CHECKING:  # it calls these checks
    from lake.topics.topic import Topic
    from lake.topics.topic_file import TopicFile

_ON = re.compile(rf"{NAME.pattern}(\.{NAME.pattern})?")


def _fields(value: Any) -> Any:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names:
        message = "must be a field, or a list with a field for each field of the key"
        raise ValueError(message)
    for name in names:
        if not isinstance(name, str) or not _ON.fullmatch(name):
            message = f"'{name}' is neither the name of a field, nor '<lookup>.<field>'"
            raise ValueError(message)
    return tuple(names)


class Lookup(Declaration):
    """A lookup of the row of the changelog `topic` whose key equals the fields `on`.

    topic: the changelog that is looked up.
    on: a field for each field of the changelog's key, in the order of the key. `<lookup>.<field>`
        is a field of the row that another lookup has found.
    mode: `latest` (default): the current row when the event arrives, or the first row to arrive
        later. `as_of`: the version that was valid at the event time.
    """

    topic: Name
    on: Annotated[tuple[str, ...], BeforeValidator(_fields)]
    mode: Literal["latest", "as_of"] = "latest"

    @property
    def own(self) -> list[str]:
        """The fields of the event by which it goes."""
        return [name for name in self.on if "." not in name]

    @property
    def through(self) -> list[tuple[str, str]]:
        """The fields of looked-up rows by which it goes: the lookup and the field of each."""
        parts = (name.partition(".") for name in self.on)
        return [(lookup, field) for lookup, dot, field in parts if dot]

    @property
    def is_simple(self) -> bool:
        """Whether it goes by one field of the event."""
        return len(self.on) == 1 and not self.through


def in_order(topic: Topic) -> list[str]:
    """The lookups of a topic, each after those that it goes through.

    Raises:
        CycleError: they go through each other in a circle.
    """
    through = {
        name: [other for other, _ in lookup.through if other in topic.lookups]
        for name, lookup in topic.lookups.items()
    }
    if not any(through.values()):
        return [*topic.lookups]
    return [*TopologicalSorter(through).static_order()]


def lookup_rules(topics: TopicFile) -> Iterator[str]:
    """What is wrong with the lookups of a topic file."""
    for topic in topics.events():
        try:
            in_order(topic)
        except CycleError as error:
            circle = "', '".join(dict.fromkeys(error.args[1]))
            yield f"lookups '{circle}' of topic '{topic.name}' go through each other in a circle"
            return
        for name, lookup in topic.lookups.items():
            what = f"lookup '{name}' of topic '{topic.name}'"
            target = topics.topics.get(lookup.topic)
            if target is None or target.kind != "changelog":
                yield f"{what} needs '{lookup.topic}' to be a changelog in this file"
                return
            if len(target.key) != len(lookup.on):
                key = "', '".join(target.key)
                yield (
                    f"{what} needs a field for each field of the key of '{lookup.topic}' in 'on', "
                    f"in this order: '{key}'"
                )
            yield from (f"{what} {x}" for x in _through(topic, lookup, topics))
            yield from (x.format(what) for x in _about_people(topic, lookup, target))
            if lookup.mode == "as_of" and not target.history:
                yield f"{what} is 'as_of', so the changelog '{lookup.topic}' needs history = true"


def _through(topic: Topic, lookup: Lookup, topics: TopicFile) -> Iterator[str]:
    for other, field in lookup.through:
        base = topic.lookups.get(other)
        if base is None:
            yield (
                f"goes by '{other}.{field}', but '{other}' is no lookup of the topic; for members "
                "of a struct, declare a field with a 'path'"
            )
            continue
        there = topics.topics.get(base.topic)
        if there is None or field not in there.fields:
            yield f"goes by '{other}.{field}', but '{base.topic}' has no field '{field}'"
        elif not there.fields[field].kind.is_scalar:
            kind = there.fields[field].type
            yield f"goes by '{other}.{field}', which needs a single value, but its type is {kind}"
        elif there.fields[field].is_protected:
            yield f"goes by '{other}.{field}', which must have personal = 'keep'"
        if base.mode == "as_of" and lookup.mode == "latest":
            yield (
                f"goes by '{other}.{field}', and '{other}' is 'as_of', whose row may change when "
                "an earlier version arrives late; it must be 'as_of' as well, so that the result "
                "does not depend on which came first"
            )


def _about_people(topic: Topic, lookup: Lookup, target: Topic) -> Iterator[str]:
    """What `lakehouse forget` could not erase. `{}` stands for the lookup."""
    if not any(spec.personal for spec in target.fields.values()):
        return
    if not lookup.is_simple:
        yield (
            "{} refers to people, so it must go by one field of the event, which `lakehouse "
            "forget` can rewrite"
        )
        return
    [on] = lookup.on
    for field in topic.computed_fields:
        if on in topic.computed_from(field) and not topic.fields[field].personal:
            yield (
                f"topic '{topic.name}' computes '{field}' from '{on}', which refers to people; "
                "declare it as personal"
            )
    if on in topic.element_fields or on not in topic.payload_fields:
        yield (
            f"{{}} refers to people by '{on}', which must be in the payload, and not in an array, "
            "where `lakehouse forget` can rewrite it"
        )
