"""Tests that a decision pauses silver only for as long as it takes, even if it is killed."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock
from tenacity import Retrying, retry_if_not_result, stop_after_delay, wait_fixed

from lake.settings.settings import LakeSettings, load_settings
from lake.streams.checkpoint import claim
from lake.streams.pause import is_paused, pause
from lakehouse.console import decisions
from lakehouse.console.decisions import NOTE, Decision, Decisions, command

ASKED = Decision("discard", "orders", "it's", "waiting", 0.0)


@pytest.fixture
def settings(tmp_path: Path) -> LakeSettings:
    return load_settings(home=tmp_path)


def runs(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Let decisions run a small program instead of Spark."""
    started = [sys.executable, "-c", program]
    monkeypatch.setattr(decisions, "command", lambda settings, decision: started)


def wait(condition: Callable[[], object]) -> None:
    until = {"stop": stop_after_delay(20), "wait": wait_fixed(0.02)}
    Retrying(retry=retry_if_not_result(bool), **until)(condition)  # type: ignore[arg-type]


def finished(found: Decisions) -> Decision:
    wait(lambda: found.last is not None and found.last.is_over)
    assert found.last is not None
    return found.last


def note(settings: LakeSettings) -> Path:
    return settings.home_dir / "run" / NOTE


def test_silver_is_paused_while_the_command_runs(
    settings: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = Path(settings.checkpoint_path("silver")) / "lakehouse.paused"
    runs(monkeypatch, f"import os; print('paused', os.path.exists({str(paused)!r}))")
    silver = claim(settings, "silver")
    found = Decisions(settings)
    assert found.begin("replay", "orders", None)
    assert not found.begin("discard", None, None), "one after another"
    wait(lambda: is_paused(settings, "silver"))
    assert found.last is not None
    assert found.last.state == "waiting"
    silver.release()
    done = finished(found)
    assert (done.state, done.said) == ("done", "paused True")
    assert not is_paused(settings, "silver")
    assert not note(settings).exists()
    assert found.begin("discard", None, None)
    assert finished(found).action == "discard"


def test_silver_that_was_paused_before_stays_paused(
    settings: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs(monkeypatch, "print('ok')")
    pause(settings, "silver")
    found = Decisions(settings)
    found.begin("replay", None, None)
    assert finished(found).state == "done"
    assert is_paused(settings, "silver")


def test_a_failure_is_shown_with_its_output_but_without_secrets(
    settings: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs(monkeypatch, "import sys; print('Error: token=abcdefgh is bad'); sys.exit(2)")
    found = Decisions(settings)
    found.begin("replay", None, None)
    failed = finished(found)
    assert (failed.state, failed.said) == ("failed", "Error: token=*** is bad")
    assert not is_paused(settings, "silver")


def test_silver_that_does_not_stop_is_left_alone(
    settings: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "WAIT_SECONDS", 0.1)
    runs(monkeypatch, "print('must not run')")
    silver = claim(settings, "silver")
    found = Decisions(settings)
    found.begin("discard", None, None)
    failed = finished(found)
    silver.release()
    assert failed.state == "failed"
    assert "has not paused" in failed.said
    assert not is_paused(settings, "silver")


def test_stopping_the_console_ends_the_command_and_resumes_silver(
    settings: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs(monkeypatch, "import time; time.sleep(60)")
    found = Decisions(settings)
    found.begin("replay", None, None)
    wait(lambda: found._process is not None)  # noqa: SLF001 - there is no other sign
    thread = threading.Thread(target=found.stop)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert finished(found).state == "failed"
    assert not is_paused(settings, "silver")


@pytest.mark.parametrize("by_us", [True, False])
def test_after_a_kill_the_next_console_lets_silver_continue(
    settings: LakeSettings, by_us: bool
) -> None:
    pause(settings, "silver")
    note(settings).parent.mkdir(parents=True)
    note(settings).write_text(json.dumps({"paused_by_us": by_us}))
    Decisions(settings).recover()
    assert is_paused(settings, "silver") is not by_us
    assert not note(settings).exists()


def test_a_decision_of_a_console_that_is_alive_is_not_undone(settings: LakeSettings) -> None:
    pause(settings, "silver")
    note(settings).parent.mkdir(parents=True)
    note(settings).write_text(json.dumps({"paused_by_us": True}))
    with FileLock(note(settings).with_suffix(".lock")):
        Decisions(settings).recover()
        second = Decisions(settings)
        second.begin("discard", None, None)
        assert "Another console" in finished(second).said
    assert is_paused(settings, "silver")
    assert note(settings).exists()


@pytest.mark.parametrize("content", ["", "\0\0", '{"paused'])
def test_a_torn_note_was_written_before_silver_was_paused(
    settings: LakeSettings, content: str
) -> None:
    note(settings).parent.mkdir(parents=True)
    note(settings).write_text(content)
    Decisions(settings).recover()
    assert not note(settings).exists()


def test_the_command_names_lake_topic_and_reason(settings: LakeSettings) -> None:
    program = command(settings, ASKED)
    assert program[:3] == [sys.executable, "-m", "lakehouse"]
    assert program[-5:] == ["quarantine", "discard", "--topic=orders", "--reason=it's", "--yes"]
    assert f"--home={settings.home_dir}" in program
    done = subprocess.run(
        [*program, "--help"], capture_output=True, text=True, check=False, timeout=60
    )
    assert "Usage: lakehouse quarantine discard" in done.stdout
