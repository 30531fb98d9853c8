"""Checks fields that are not read from the payload: parts of the message, and computed fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it calls these checks
    from lake.topics.topic import Topic


def of_the_message(topic: Topic) -> Iterator[str]:
    """What is wrong with the fields that come from a part of the message other than its payload.

    Each problem continues a sentence that begins with the topic.
    """
    parts: dict[str, str] = {}
    for name, spec in topic.fields.items():
        part = spec.from_message
        if part in parts:
            yield f"has '{parts[part]}' and '{name}' from the same part of the message"
        if part:
            parts[part] = name
    if not topic.payload_fields:
        yield "has no field in the payload, so nothing of the payload would be read"
    for name in topic.key_in_message_key:
        if name in parts.values() and [name] != topic.key:
            yield (
                f"has '{name}' in a key of several fields, but a message without a payload has "
                "all of them in its message key; leave it out of the key"
            )
        if name in parts.values() and parts.get("key") != name:
            yield (
                f"has '{name}' as its key, but a message without a payload has its key in the "
                "message key; only from_message = 'key' can be a key"
            )
    if not topic.key_in_message_key:
        yield f"has only '{topic.key[0]}' as its key, which is the same in all messages of a topic"
    if topic.merged_into and {topic.merged_into, *topic.key} & {*parts.values()}:
        yield (
            "has 'merged_into', so that field and its key must be in the payload, where "
            "`lakehouse forget` can rewrite them"
        )
    if topic.truncation and topic.truncation.field in parts.values():
        yield (
            f"truncates by '{topic.truncation.field}', which must be in the payload, because a "
            "message without a payload is a tombstone"
        )
    if topic.message_key and parts.get("key", topic.message_key) != topic.message_key:
        yield f"has '{parts['key']}' from the message key, so 'message_key' must name this field"


def computed(topic: Topic) -> Iterator[str]:
    """What is wrong with the computed fields, as in `of_the_message`.

    Their value must be a function of the message, and must not tell what another field hides.
    """
    rules = [rule for rule in (topic.delete, topic.truncate) if rule and not isinstance(rule, str)]
    uses = {
        **dict.fromkeys(topic.key, "key"),
        **dict.fromkeys(topic.sequence, "sequence"),
        **{rule.field: "delete' or 'truncate" for rule in rules},
        **({topic.snapshot_end.field: "snapshot_end"} if topic.snapshot_end else {}),
        **dict.fromkeys(topic.referring, "lookups"),
        **{str(topic.merged_into): "merged_into", str(topic.event_time): "event_time"},
        str(topic.message_key): "message_key",
    }
    for name in topic.computed_fields:
        if topic.merges_fields:
            yield (
                f"has partial updates, so '{name}' cannot be computed: a message may lack the "
                "fields that it is computed from"
            )
        if name in uses:
            yield f"has '{name}' in '{uses[name]}', so it cannot be computed"
        try:
            sources = topic.computed_from(name)
        except ValueError as error:
            how = "sql" if topic.fields[name].sql else "of"
            yield f"has '{name}', whose '{how}' {error}"
            return
        for source in sources:
            yield from _told(topic, name, source)


def _told(topic: Topic, name: str, source: str) -> Iterator[str]:
    """How a computed field is less protected than a field that it is computed from."""
    theirs, ours = topic.fields[source], topic.fields[name]
    if source == topic.merged_into:
        yield (
            f"computes '{name}' from '{source}', where `lakehouse forget` replaces a person's "
            "key without computing again"
        )
    if theirs.is_protected and not ours.is_protected:
        yield (
            f"computes '{name}' from '{source}', of which gold must not see the value; declare "
            "it with personal = 'mask' or 'hash' as well"
        )
    if theirs.personal and not ours.personal:
        yield (
            f"computes '{name}' from '{source}', which is personal; declare it as personal as well"
        )
