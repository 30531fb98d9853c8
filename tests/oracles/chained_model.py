"""The expected lookups of events through other lookups, in plain Python, batch by batch."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

Row = dict[str, Any]


class Version(NamedTuple):
    """A message of a changelog; `row` is None if it deletes its key."""

    key: tuple[Any, ...]
    position: int
    at: int
    row: Row | None


def valid(versions: Iterable[Version], key: tuple[Any, ...], at: int) -> Version | None:
    """Return the version of a key that is valid at an instant, by definition."""
    mine = [each for each in versions if each.key == key and each.at <= at]
    return max(mine, key=lambda each: (each.at, each.position), default=None)


def current(versions: Iterable[Version], key: tuple[Any, ...]) -> Version | None:
    """Return the latest version of a key; None if there is none."""
    mine = [each for each in versions if each.key == key]
    return max(mine, key=lambda each: each.position, default=None)


def key_in(version: Version | None, fields: Sequence[str]) -> tuple[Any, ...]:
    """Return the key to which a version refers; parts of it are None if it was deleted."""
    row = version.row if version and version.row else {}
    return tuple(row.get(name) for name in fields)
