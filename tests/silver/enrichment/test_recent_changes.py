"""Tests how many changes are kept in memory beside a copy of a table."""

import random

import pyarrow as pa
import pytest

from silver.enrichment import recent_changes

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("_change_type", pa.string())])


@pytest.mark.parametrize(
    ("keys", "size", "batches"),
    [(40, 30, 300), (40, 1, 300), (10**9, 1, 300)],
    ids=["hot keys", "single changes of hot keys", "single new keys"],
)
def test_kept_changes_grow_with_the_keys_and_not_with_the_batches(
    keys: int, size: int, batches: int
) -> None:
    random_, expected = random.Random(keys + size), dict[int, tuple[str, str]]()
    changes = recent_changes.RecentChanges("id", SCHEMA)
    for batch in range(batches):
        some = {
            random_.randrange(keys): (f"v{batch}", random_.choice(["insert", "delete"]))
            for _ in range(size)
        }
        new = [{"id": key, "v": v, "_change_type": kind} for key, (v, kind) in some.items()]
        assert changes.add(pa.Table.from_pylist(new, SCHEMA))
        expected |= some
        kept = changes.kept
        assert kept.keys == len(expected)
        assert kept.rows <= 2 * kept.keys
        assert kept.bytes <= 100 * kept.rows
        assert kept.parts <= recent_changes.MOST_PARTS
        asked = [*random_.sample(sorted(expected), min(9, len(expected))), -1]
        rows_, others = changes.find(asked)
        there = {key: expected[key][0] for key in asked[:-1] if expected[key][1] == "insert"}
        assert dict(zip(*rows_.to_pydict().values(), strict=True)) == there
        assert others == [-1]


def test_changes_that_are_too_many_or_too_large_are_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recent_changes, "MOST_KEYS", 10)
    monkeypatch.setattr(recent_changes, "MOST_BYTES", 10_000)

    def fits(keys: range, value: str) -> bool:
        new = [{"id": key, "v": value, "_change_type": "insert"} for key in keys]
        return all(changes.add(pa.Table.from_pylist([row], SCHEMA)) for row in new)

    changes = recent_changes.RecentChanges("id", SCHEMA)
    assert fits(range(10), "a")
    assert not fits(range(10, 11), "a")
    changes = recent_changes.RecentChanges("id", SCHEMA)
    assert all(fits(range(2), "a" * 2_000) for _ in range(50)), "replaced rows do not count"
    assert not fits(range(6), "a" * 2_000)
