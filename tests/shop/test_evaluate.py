"""Tests the measures of recommendations; `tests/gold/test_recommendations.py` takes them."""

from shop.evaluate import Quality, judge


def test_measures_of_rankings() -> None:
    held_out = {1: {10}, 2: {20, 21}, 3: {30}, 4: {40}}
    recommended = {1: [9, 8, 7, 10], 2: [21, 20], 3: [1, 2, 3, 4, 30], 5: [1]}
    found = judge("mine", recommended, held_out, at=4)
    assert found == Quality("mine", accounts=4, hit_rate=0.5, reciprocal_rank=(1 / 4 + 1) / 4)
