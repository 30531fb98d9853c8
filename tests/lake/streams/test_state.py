"""Tests that the state of a stream is read from its checkpoint, without disturbing it."""

import subprocess
import sys
from pathlib import Path

import pytest

from lake.settings.settings import LakeSettings, load_settings
from lake.streams import state
from lake.streams.checkpoint import claim
from lake.streams.given_up import note_given_up, note_started
from lake.streams.last_errors import note_error, note_started_again
from lake.streams.pause import pause, resume
from lake.streams.state import State, finished_batches, stream_names, stream_states
from lake.topics.topic_file import load_topics

QUERY = "bronze.o"


@pytest.fixture
def settings(tmp_path: Path) -> LakeSettings:
    return load_settings(home=tmp_path)


def state_of(settings: LakeSettings) -> State:
    [found] = stream_states(settings, [QUERY])
    return found.state


def test_each_state_is_recognised(settings: LakeSettings) -> None:
    assert state_of(settings) == "stopped"
    running = claim(settings, QUERY)
    assert state_of(settings) == "running"
    claim_elsewhere_fails(settings)
    note_error(settings, QUERY, "No answer.", retry="1 of 5", delay=10)
    assert state_of(settings) == "retrying"
    note_started_again(settings, QUERY)
    assert state_of(settings) == "running"
    note_error(settings, QUERY, "No answer.", retry="", delay=0)
    note_given_up(settings, QUERY, "No answer.")
    assert state_of(settings) == "given up"
    note_started(settings, QUERY)
    pause(settings, QUERY)
    running.release()
    [found] = stream_states(settings, [QUERY])
    assert found.state == "paused"
    assert found.since
    assert [each.reason for each in found.errors] == ["No answer.", "No answer."]
    resume(settings, QUERY)
    assert state_of(settings) == "stopped"


def claim_elsewhere_fails(settings: LakeSettings) -> None:
    """Claim the checkpoint in another process, after its state was read here."""
    code = (
        "from lake.settings.settings import load_settings; from lake.streams.checkpoint import "
        f"claim; claim(load_settings(home={str(settings.home_dir)!r}), {QUERY!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "already runs in another process" in done.stderr


def test_a_process_that_runs_elsewhere_is_found(settings: LakeSettings) -> None:
    code = (
        "from lake.settings.settings import load_settings; from lake.streams.checkpoint import "
        f"claim; held = claim(load_settings(home={str(settings.home_dir)!r}), {QUERY!r}); "
        "print('held', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert state_of(settings) == "running"
        other.communicate("\n")
    assert state_of(settings) == "stopped"


def test_without_a_list_of_locks_the_state_is_unknown(
    settings: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "LOCKS", Path("/nowhere"))
    assert state_of(settings) == "unknown"
    note_given_up(settings, QUERY, "r")
    pause(settings, QUERY)
    assert state_of(settings) == "paused"


def test_batches_are_found_by_the_files_of_the_checkpoint(settings: LakeSettings) -> None:
    folder = Path(settings.checkpoint_path(QUERY))
    for log in ("offsets", "commits"):
        (folder / log).mkdir(parents=True)
        for batch in (9, 10):
            (folder / log / str(batch)).touch()
    (folder / "offsets" / "11").touch()
    (folder / "commits" / "12").touch()  # whose offsets are gone
    (folder / "commits" / ".9.crc").touch()
    assert [each.number for each in finished_batches(settings, QUERY)] == [9, 10]
    [found] = stream_states(settings, [QUERY])
    assert found.batch == 11
    assert finished_batches(settings, "bronze.never") == []


def test_all_streams_of_a_topic_file_have_names(settings: LakeSettings) -> None:
    names = stream_names(load_topics(settings.topics))
    assert names[-1] == "silver"
    assert {"bronze.users", "bronze.orders"} < {*names}
