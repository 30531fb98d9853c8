"""Tests the lanes of batches."""

import os
from pathlib import Path

import pytest
from quiet_lake import QuietLake
from served_console import quiet_settings

from lake.observe.recent_batches import RECENT, Batch, RecentBatches
from lakehouse.console import timeline
from lakehouse.console.timeline import WIDTH, Bar, lanes, phases_of

SPARKS = {"latestOffset": 1.0, "queryPlanning": 0.5, "walCommit": 0.5, "addBatch": 6.0, "odd": 9.0}


@pytest.fixture
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QuietLake:
    monkeypatch.setattr(timeline, "RECENT", RecentBatches())
    found = QuietLake(quiet_settings(tmp_path))
    for batch, (begun, ended) in enumerate([(100, 104), (500, 510), (590, 596)]):
        folder = found.run("silver", batch)
        os.utime(folder / "offsets" / str(batch), (begun, begun))
        os.utime(folder / "commits" / str(batch), (ended, ended))
    (folder / "commits" / ".7.crc").touch()
    return found


def test_a_lane_shows_the_batches_of_another_process_by_their_files(quiet: QuietLake) -> None:
    [lane] = lanes(quiet.settings, ["silver"], now=600, minutes=5)
    assert lane.bars == [
        Bar(
            round(200 / 300 * WIDTH, 2),
            round(10 / 300 * WIDTH, 2),
            "batch",
            "batch 1: batch 10.00 s of 10.00 s",
        ),
        Bar(round(290 / 300 * WIDTH, 2), 20.0, "batch", "batch 2: batch 6.00 s of 6.00 s"),
    ]
    assert (lane.batches, lane.usual, lane.longest) == (2, 10, 10)
    assert lane.busy == pytest.approx(16 / 300)


def test_batches_of_this_process_are_divided_into_phases(quiet: QuietLake) -> None:
    timeline.RECENT.add("silver", Batch(2, 590, 8.0, SPARKS))
    [lane] = lanes(quiet.settings, ["silver"], now=600, minutes=5)
    assert [bar.phase for bar in lane.bars] == ["batch", "read", "plan", "process"]
    assert lane.bars[1].x == round(290 / 300 * WIDTH, 2)
    assert lane.bars[3].width == 20.0
    assert lane.slowest[0][0].number == 1
    assert phases_of(Batch(1, 0, 3, SPARKS)) == {"read": 1.0, "plan": 1.0, "process": 6.0}


def test_a_stream_that_has_not_run_has_an_empty_lane(quiet: QuietLake) -> None:
    [lane] = lanes(quiet.settings, ["bronze.users"], now=600, minutes=5)
    assert (lane.bars, lane.batches, lane.usual, lane.slowest) == ([], 0, None, [])
    assert RECENT.of("bronze.users") == []
