"""The expected SCD2 table of a changelog in plain Python, by instant and batch by batch."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Version(NamedTuple):
    """A message of the changelog; `key` is None for a truncation.

    order: (sequence, position). at: the time of the change.
    """

    key: str | None
    order: tuple[int, int]
    at: int


def valid(history: Iterable[Version], instant: int) -> dict[str, Version]:
    """Return the version of each key that is valid at an instant, by definition.

    It is the key's last change up to the instant. It is not valid if a truncation that follows it
    in the order happened by the instant. Versions that were never valid do not count.
    """
    versions = list(history)
    truncations = [each for each in versions if each.key is None]

    def is_ended(version: Version, by: int) -> bool:
        return any(each.order > version.order and each.at <= by for each in truncations)

    last: dict[str, Version] = {}
    for version in sorted(versions, key=lambda each: (each.at, each.order)):
        held = version.at <= instant and not is_ended(version, version.at)
        if version.key is not None and held:
            last[version.key] = version
    return {key: version for key, version in last.items() if not is_ended(version, instant)}


class Woven:
    """The versions as silver maintains them.

    A batch recomputes the versions of its keys; a batch with a truncation, those of all keys.
    """

    def __init__(self) -> None:
        self.ends: dict[Version, int | None] = {}

    def batch(self, changes: Iterable[Version]) -> None:
        new = set(changes)
        truncations = [each for each in {*new, *self.ends} if each.key is None]
        touched = {each.key for each in new}
        if None in touched:
            touched |= {each.key for each in self.ends}
        for key in touched:
            mine = [each for each in {*new, *self.ends} if each.key == key]
            end: int | None = None
            for version in sorted(mine, key=lambda each: (each.at, each.order), reverse=True):
                cuts = [each.at for each in truncations if each.order > version.order]
                ends = [*cuts, *([end] if end is not None else [])]
                self.ends[version] = max(version.at, min(ends)) if ends and key else None
                if min(cuts, default=version.at + 1) > version.at:
                    end = version.at

    def valid(self, instant: int) -> dict[str, Version]:
        return {
            version.key: version
            for version, end in self.ends.items()
            if version.key is not None and version.at <= instant and (end is None or instant < end)
        }


def chain(parents: Mapping[str, str | None], key: str) -> tuple[list[str], str | None]:
    """Return the keys of a merge chain and the key at its end, None if the chain is a cycle."""
    links = [key]
    while (parent := parents.get(links[-1])) is not None:
        if parent in links:
            return links, None
        links.append(parent)
    return links, links[-1]
