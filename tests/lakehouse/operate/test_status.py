"""Tests the lines of `lakehouse status`. Lag and totals are tested with a real lake (metrics)."""

import datetime as dt
import os
from pathlib import Path

import pytest
from landed_lake import landed_lake
from topic import events

from lake.streams.given_up import note_given_up, note_started
from lake.streams.last_errors import note_error, note_started_again
from lake.tables.lake import Lake
from lakehouse.operate.status import LATELY, TableStatus, lake_status
from lakehouse.runtime.ports import free_port

NOW = dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc)


@pytest.mark.parametrize(
    ("newest", "shown"),
    [
        (None, None),
        (NOW - dt.timedelta(hours=1, milliseconds=400), "3600 s"),
        (NOW + dt.timedelta(seconds=5), "0 s"),
    ],
)
def test_the_age_of_the_newest_message_is_shown_in_seconds(
    newest: dt.datetime | None, shown: str | None
) -> None:
    line = TableStatus("bronze.orders", 3, newest, 7, "a note")
    assert line.cells(NOW) == ["bronze.orders", 3, shown, 7, "a note"]


def test_what_does_not_exist_is_shown_without_values(tmp_path: Path) -> None:
    settings = landed_lake(tmp_path)
    nowhere = f"127.0.0.1:{free_port()}"
    own = {"pulsar_url": f"pulsar://{nowhere}", "pulsar_admin_url": f"http://{nowhere}"}
    lake = Lake(settings.model_copy(update=own), events("other"))
    assert lake_status(lake) == [
        TableStatus("bronze.other", None, note="no broker answers"),
        TableStatus("silver.enriched_other", None),
        TableStatus("silver.quarantine", None),
        TableStatus("silver.reconciliation", None),
    ]


def test_the_last_error_of_a_stream_is_noted_until_it_has_worked_for_a_while(
    tmp_path: Path,
) -> None:
    settings = landed_lake(tmp_path)
    nowhere = f"127.0.0.1:{free_port()}"
    own = {"pulsar_url": f"pulsar://{nowhere}", "pulsar_admin_url": f"http://{nowhere}"}
    lake = Lake(settings.model_copy(update=own), events("p"))
    folder = Path(settings.checkpoint_path("bronze.p"))
    for log in ("offsets", "commits"):
        (folder / log).mkdir(parents=True)
        (folder / log / "0").touch()

    def note() -> str:
        return lake_status(lake)[0].note

    def works_until(at: float) -> None:
        os.utime(folder / "commits" / "0", (at, at))

    now = dt.datetime.now(dt.timezone.utc).timestamp()
    note_error(settings, "bronze.p", "No answer.", retry="1 of 5", delay=10)
    assert ", restart 1 of 5: No answer.; no broker answers" in note()
    note_started_again(settings, "bronze.p")
    works_until(now + LATELY / 2)
    assert note().startswith("failed at 20")
    works_until(now + LATELY + 60)
    assert note() == "no broker answers"
    note_given_up(settings, "bronze.p", "x" * 500)
    assert note().startswith("given up at 20")
    assert len(note()) < 250
    note_started(settings, "bronze.p")
    assert note() == "no broker answers"
