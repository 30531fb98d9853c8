"""Tests where chains of merged keys end."""

import pytest
from history_model import chain
from hypothesis import given, settings
from hypothesis import strategies as st

from silver.state.merge_chains import passed, spans, survivors

parents = st.lists(st.sampled_from([None, *"abcd"]), min_size=8, max_size=8)


@pytest.mark.parametrize(
    ("merges", "ends"),
    [
        ({1: 2, 2: 3, 4: 3}, {1: 3, 2: 3, 4: 3}),
        ({1: 2, 2: 1, 3: 1, 5: 6}, {1: None, 2: None, 3: None, 5: 6}),
        ({7: 7}, {7: None}),
        ({}, {}),
    ],
)
def test_merge_chains_end_at_the_canonical_key_and_cycles_at_none(
    merges: dict[int, int], ends: dict[int, int | None]
) -> None:
    assert survivors(merges) == ends


@settings(max_examples=200, deadline=None)
@given(by_key=st.fixed_dictionaries(dict.fromkeys("abc", parents)))
def test_merge_chains_end_at_the_canonical_key_of_each_instant(
    by_key: dict[str, list[str | None]],
) -> None:
    """Each key has a parent, or none, at eight instants; `d` is never merged."""
    merged = {
        key: [(parent, n, n + 1) for n, parent in enumerate(found) if parent is not None]
        for key, found in by_key.items()
    }
    merged = {key: found for key, found in merged.items() if found}
    ends, others = list(spans(merged)), set(passed(merged))
    for instant in range(8):
        now = {key: found[instant] for key, found in by_key.items()}
        for key in "abc":
            links, end = chain(now, key)
            found = [
                into for k, begin, until, into in ends if k == key and begin <= instant < until
            ]
            assert found == ([end] if now[key] is not None else [])
            assert {(key, link) for link in links[1:] if link in merged} <= others
