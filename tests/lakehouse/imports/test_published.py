"""Tests the copy of what a topic holds, without a broker."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakehouse.imports import published
from lakehouse.imports.published import Change, Partition, Published
from lakehouse.imports.source import Row
from pulsar_spark.errors import CheckpointError

ONLY = Partition("persistent://a/b/c", 1)


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Published]:
    found = Published(tmp_path / "copy")
    yield found
    found.close()


def sorted_rows(table: dict[bytes, bytes]) -> list[Row]:
    return [Row(key, table[key]) for key in sorted(table)]


def test_changes_lead_from_any_table_to_any_other(
    copy: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oracle applies the changes to a dictionary. Changes are kept while others are found."""
    monkeypatch.setattr(published, "PAGE", 3)
    rng = random.Random(1)
    topic: dict[bytes, bytes] = {}
    for _ in range(25):
        keys = rng.sample(range(30), rng.randrange(0, 25))
        table = {f"{key}ü".encode(): b"%d" % rng.randrange(3) for key in keys}
        seen = []
        for change in copy.differences(sorted_rows(table)):
            copy.keep([change], {})
            assert topic.get(change.key, b"") != change.payload, "nothing has changed"
            seen.append(change.key)
            topic[change.key] = change.payload
        assert len(seen) == len({*seen})
        topic = {key: payload for key, payload in topic.items() if payload}
        assert topic == table


def test_rows_and_positions_are_kept_over_restarts(tmp_path: Path) -> None:
    first = Published(tmp_path / "copy")
    assert first.positions([ONLY]) == {}
    first.keep([Change(b"a", b"1"), Change(b"b", b"2"), Change(b"a", b"")], {ONLY: b"id"})
    first.note_compared(5)
    first.close()
    again = Published(tmp_path / "copy")
    assert again.positions([ONLY, Partition("another", 2)]) == {ONLY.name: b"id"}
    assert again.compared_at() == 5
    assert [*again.differences([])] == [Change(b"b", b"")]
    again.close()


def test_a_topic_that_was_made_again_holds_nothing(copy: Published) -> None:
    copy.keep([Change(b"a", b"1")], {ONLY: b"id"})
    assert copy.positions([ONLY._replace(created=2)]) == {}
    assert [*copy.differences([])] == []


def test_a_deleted_key_is_overwritten_in_the_file(tmp_path: Path) -> None:
    copy = Published(tmp_path / "copy")
    copy.keep([Change(b"canary-of-a-person", b"1")], {})
    assert b"canary-of-a-person" in (tmp_path / "copy").read_bytes()
    copy.keep([Change(b"canary-of-a-person", b"")], {})
    copy.close()
    assert b"canary-of-a-person" not in (tmp_path / "copy").read_bytes()
    assert [each.name for each in tmp_path.iterdir()] == ["copy"]


def test_a_damaged_file_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "copy").write_bytes(b"torn" * 1000)
    with pytest.raises(CheckpointError, match=r"copy is damaged: .* Delete it: the import then"):
        Published(tmp_path / "copy")
