"""What a changelog may declare about updates, versions and snapshots, and the rules for it.

Only changelogs that use these options are concerned. `topic.py` has the other rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, model_validator

from lake.topics.field_spec import Declaration, Name

if TYPE_CHECKING:  # it calls these checks
    from lake.topics.topic import Topic


class Columns(Declaration):
    """Some fields of a topic, or all.

    columns: these fields.
    except: all fields but these.
    """

    columns: Annotated[tuple[Name, ...] | None, Field(min_length=1)] = None
    left_out: Annotated[tuple[Name, ...] | None, Field(min_length=1, alias="except")] = None

    @model_validator(mode="after")
    def _is_one_list(self) -> Columns:
        if self.columns and self.left_out:
            message = "has 'columns' and 'except'; remove one of them"
            raise ValueError(message)
        return self

    @property
    def named(self) -> tuple[str, ...]:
        """The fields that are listed, in whichever way."""
        return self.columns or self.left_out or ()

    def has(self, name: str) -> bool:
        """Whether a field is one of them."""
        return name in self.columns if self.columns else name not in (self.left_out or ())


def checked_columns(value: Any) -> Any:
    """A value of a topic file for `Columns`: true stands for all fields, and false for none."""
    if isinstance(value, bool):
        return Columns() if value else None
    if value == {}:
        message = "names no fields; use true, columns = [...] or except = [...]"
        raise ValueError(message)
    if value is not None and not isinstance(value, dict | Columns):
        message = "must be true, false, { columns = [...] } or { except = [...] }"
        raise ValueError(message)
    return value


def changelog_rules(topic: Topic) -> Iterator[str]:
    """What is wrong with the options of a changelog that are about several messages of a key.

    Each problem continues a sentence that begins with the topic.
    """
    for option in ("history", "ignore_null_updates"):
        chosen: Columns | None = getattr(topic, option)
        for name in chosen.named if chosen else ():
            if name not in topic.fields:
                yield f"names '{name}' in '{option}', which is not among its fields"
    yield from _versions(topic)
    yield from _merged(topic)
    yield from _snapshots(topic)


def _versions(topic: Topic) -> Iterator[str]:
    tracked = topic.tracked
    if tracked is None:
        return
    if not tracked:
        yield "tracks no field in 'history'; name a field whose changes make a new version"
    if topic.history and {*(topic.history.left_out or ())} & {*topic.key}:
        yield f"excepts its key '{topic.key[0]}' in 'history'; each key has versions of its own"
    if topic.merged_into and topic.merged_into not in tracked:
        yield (
            f"has '{topic.merged_into}' in 'merged_into', so 'history' must track it: merge chains "
            "are followed from version to version"
        )
    for name in tracked:
        if any(holder == "map" for _, holder, _ in topic.fields[name].kind.scalars()):
            yield (
                f"tracks '{name}' in 'history', which has a map, and maps cannot be compared; "
                f'name the other fields, or use except = ["{name}"]'
            )


def _merged(topic: Topic) -> Iterator[str]:
    """Partial updates, and updates whose nulls are ignored."""
    if not topic.merges_fields:
        return
    what = "partial updates" if topic.updates == "partial" else "'ignore_null_updates'"
    if topic.merged_into:
        yield f"has {what}, which cannot be combined with 'merged_into'"
    if topic.history and topic.truncates:
        rule = "truncate" if topic.truncate else "envelope"
        yield (
            f"has {what} and 'history', which cannot be combined with '{rule}': a truncation would "
            "end parts of versions only"
        )
    ignored = topic.ignore_null_updates
    for name in (*topic.key, *topic.sequence):
        if ignored and name in (ignored.columns or ()):
            yield (
                f"names '{name}' in 'ignore_null_updates', but each message needs it for the key "
                "or the sequence; leave it out"
            )


def _snapshots(topic: Topic) -> Iterator[str]:
    end = topic.snapshot_end
    if end is None:
        return
    if not topic.sequence:
        yield (
            "has 'snapshot_end', so it needs a 'sequence' with the number or time of the snapshot, "
            "which all its messages have in common"
        )
    if topic.partitions > 1 or topic.has_several:
        several = "topics" if topic.has_several else "partitions"
        yield (
            f"has 'snapshot_end' and several {several}, where the end of a snapshot may be read "
            f"before its last rows; publish snapshots to one topic with one partition"
        )
    for option, is_set in (
        ("truncate", topic.truncate),
        ("envelope", topic.envelope),
        ("ignore_null_updates", topic.ignore_null_updates),
        ("updates = 'partial'", topic.updates == "partial"),
    ):
        if is_set:
            yield f"has 'snapshot_end', which cannot be combined with '{option}'"
    if end.field in (*topic.key, *topic.sequence):
        yield f"has '{end.field}' in 'snapshot_end', which is part of its key or sequence"
