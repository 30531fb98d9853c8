"""Tests what is said about an import, without a database or a broker."""

import datetime as dt
from pathlib import Path

from imported import Imported

from lake.settings.settings import load_settings
from lake.streams.given_up import note_given_up, note_started
from lake.streams.state import stream_names
from lakehouse.imports.published import Change, Published
from lakehouse.imports.state import ImportState, import_states
from lakehouse.operate.doctor import imported as examine


def test_the_state_is_that_of_the_last_comparison(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path / "home")
    table = Imported(settings, tmp_path, "postgresql://nowhere/db")
    assert stream_names(table.lake.topics)[0] == "import.districts"
    [state] = import_states(table.lake)
    assert (state, state.note) == (ImportState("import.districts"), "has compared nothing yet")
    table.file.parent.mkdir(parents=True)
    copy = Published(table.file)
    copy.keep([Change(b"1", b"a"), Change(b"2", b"b"), Change(b"1", b"")], {})
    copy.note_compared(1_767_225_600_500)
    [state] = import_states(table.lake)
    assert state.rows == 1
    assert state.compared == dt.datetime(2026, 1, 1, 0, 0, 0, 500_000, dt.timezone.utc)
    assert (state.note, examine(state).state) == ("compared at 2026-01-01 00:00:00 UTC", "ok")
    note_given_up(settings, "import.districts", "The table is gone.")
    [state] = import_states(table.lake)
    assert (state.note, examine(state).state) == ("given up: The table is gone.", "fail")
    note_started(settings, "import.districts")
    assert not import_states(table.lake)[0].problem
    copy.close()
    table.file.write_bytes(b"torn" * 1000)
    assert import_states(table.lake)[0].compared is None
