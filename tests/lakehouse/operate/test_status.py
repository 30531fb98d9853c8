"""Tests the lines of `lakehouse status`. Lag and totals are tested with a real lake (metrics)."""

import datetime as dt
from pathlib import Path

import pytest
from landed_lake import landed_lake
from topic import events

from lake.tables.lake import Lake
from lakehouse.operate.status import TableStatus, lake_status
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
