"""Tests that the last batches of the streams of this process are remembered."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from lake.observe import batch_metrics
from lake.observe.batch_metrics import BatchMetrics
from lake.observe.recent_batches import MOST, Batch, RecentBatches
from lake.settings.settings import LakeSettings


def test_the_newest_batches_of_each_stream_are_kept() -> None:
    recent = RecentBatches()
    for number in range(MOST + 5):
        recent.add("a", Batch(number, number, 1.0, {}))
    recent.add("b", Batch(1, 0, 1.0, {}))
    assert [each.number for each in recent.of("a")] == list(range(5, MOST + 5))
    assert len(recent.of("b")) == 1
    assert recent.of("c") == []


@pytest.mark.parametrize("is_on", [True, False])
def test_batches_are_remembered_if_a_console_asks_for_it(
    monkeypatch: pytest.MonkeyPatch, is_on: bool
) -> None:
    recent = RecentBatches()
    monkeypatch.setattr(batch_metrics, "RECENT", recent)
    durations = {"triggerExecution": 3000, "addBatch": 2500}
    progress = SimpleNamespace(
        batchId=7, durationMs=durations, timestamp="2026-01-01T00:00:10.500Z"
    )
    query = SimpleNamespace(
        lastProgress=progress, recentProgress=[progress], status={"isTriggerActive": False}
    )
    with recent.remembering() if is_on else nullcontext():
        metrics = BatchMetrics(LakeSettings(), "bronze.test")
        metrics.started(query)  # type: ignore[arg-type]
        metrics.look()
        metrics.ended()
    expected = [Batch(7, 1767225610.5, 3.0, {"addBatch": 2.5})] if is_on else []
    assert recent.of("bronze.test") == expected


def test_after_the_console_nothing_is_remembered() -> None:
    recent = RecentBatches()
    with recent.remembering():
        assert recent.is_on
    assert not recent.is_on
