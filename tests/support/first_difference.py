"""Says where two tables in a failed assertion begin to differ, instead of printing both."""

from collections.abc import Iterator, Sequence, Set
from typing import Any

FEW = 3  # entries that pytest's own explanation shows well
ABSENT = "(absent)"


def first_difference(left: Any, right: Any) -> list[str] | None:
    """Describe how two large values that should be equal differ. Called for each failed `==`.

    Args:
        left: rows by key, a list of rows, or a set of them.
        right: a value of the same kind.

    Returns:
        Lines with the number of differing keys, and with the first of them in both values; None for
        other values, and for small ones.
    """
    kinds = (dict, list, tuple, Set)
    if not any(isinstance(left, kind) and isinstance(right, kind) for kind in kinds):
        return None
    if max(len(left), len(right)) <= FEW:
        return None
    found = list(_differences(left, right))
    if not found:
        return None
    key, here, there = found[0]
    sizes = f"entries that differ: {len(found)} (left has {len(left)}, right has {len(right)})"
    return [sizes, f"first: {key!r}", f"  left:  {here}", f"  right: {there}"]


def _differences(left: Any, right: Any) -> Iterator[tuple[Any, str, str]]:
    if isinstance(left, dict):
        for key in dict.fromkeys([*left, *right]):
            here, there = (repr(rows[key]) if key in rows else ABSENT for rows in (left, right))
            if key not in left or key not in right or left[key] != right[key]:
                yield key, here, there
    elif isinstance(left, Sequence):
        for place in range(max(len(left), len(right))):
            here, there = (
                repr(rows[place]) if place < len(rows) else ABSENT for rows in (left, right)
            )
            if here is ABSENT or there is ABSENT or left[place] != right[place]:
                yield place, here, there
    else:
        for each in sorted(left ^ right, key=repr):
            yield each, *((repr(each), ABSENT) if each in left else (ABSENT, repr(each)))
