"""Tests that the last errors of a stream survive restarts, kills and power cuts."""

import datetime as dt
from pathlib import Path

import pytest

from lake.settings.settings import LakeSettings, load_settings
from lake.streams.last_errors import (
    ERRORS,
    LONGEST,
    MOST,
    last_errors,
    note_error,
    note_started_again,
)

QUERY = "bronze.o"


@pytest.fixture
def settings(tmp_path: Path) -> LakeSettings:
    found = load_settings(home=tmp_path)
    Path(found.checkpoint_path(QUERY)).mkdir(parents=True)
    return found


def test_the_newest_errors_are_kept(settings: LakeSettings) -> None:
    assert last_errors(settings, QUERY) == []
    for number in range(MOST + 3):
        note_error(settings, QUERY, f"error {number}", retry=f"{number} of 9", delay=10)
    found = last_errors(settings, QUERY)
    assert [each.reason for each in found] == [f"error {n}" for n in range(MOST + 2, 2, -1)]
    begun, due = (dt.datetime.fromisoformat(each) for each in (found[0].at, found[0].retry_at))
    assert (due - begun).total_seconds() == 10


def test_a_start_is_noted_once_and_needs_no_write_without_an_error(settings: LakeSettings) -> None:
    note_started_again(settings, QUERY)
    file = Path(settings.checkpoint_path(QUERY)) / ERRORS
    assert not file.exists()
    note_error(settings, QUERY, "gone", retry="1 of 2", delay=0)
    note_started_again(settings, QUERY)
    [error] = last_errors(settings, QUERY)
    assert error.started_at >= error.at
    written = file.stat().st_mtime_ns
    note_started_again(settings, QUERY)
    assert file.stat().st_mtime_ns == written


def test_reasons_are_masked_and_cut(settings: LakeSettings) -> None:
    note_error(settings, QUERY, "token=abcdefgh " + "no answer, " * 999, retry="", delay=0)
    [error] = last_errors(settings, QUERY)
    assert error.reason.startswith("token=*** no answer")
    assert len(error.reason) == LONGEST
    assert error.retry_at == ""


def test_a_torn_file_counts_as_empty_and_a_lost_folder_stops_nothing(
    settings: LakeSettings,
) -> None:
    file = Path(settings.checkpoint_path(QUERY)) / ERRORS
    for content in ("", "\0\0\0", '{"errors": [{"at'):
        file.write_text(content)
        assert last_errors(settings, QUERY) == []
    note_error(settings, QUERY, "after", retry="", delay=0)
    assert [each.reason for each in last_errors(settings, QUERY)] == ["after"]
    note_error(settings, "bronze.never", "no folder", retry="", delay=0)
    assert last_errors(settings, "bronze.never") == []
