"""Tests that `lakehouse status --watch` runs until Ctrl-C, with and without a terminal."""

import itertools
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from lakehouse.commands.status import status
from lakehouse.operate.status import TableStatus
from lakehouse.operate.watch import watch
from lakehouse.runtime.context import current
from lakehouse.runtime.ports import free_port
from pulsar_spark.errors import BrokerError, LakehouseError


def test_each_look_shows_what_is_new_and_an_error_does_not_end_the_watch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("lakehouse.operate.watch.time.monotonic", lambda: now[0])
    rows = itertools.chain([10, None], itertools.repeat(40))

    def look() -> Sequence[TableStatus]:
        now[0] += 2
        count = next(rows)
        if count is None:
            message = "No answer."
            raise BrokerError(message)
        if count == 40:
            os.kill(os.getpid(), signal.SIGINT)
        return [TableStatus("bronze.users", count), TableStatus("silver.users", None)]

    watch(look, every=0)
    said = capsys.readouterr().out
    first, second, third, *_ = said.split("lag (messages)")[1:]
    assert "bronze.users │   10 │" in first
    assert "bronze.users │   10 │" in second
    assert "No answer." in second
    assert "bronze.users │   40 │" in third
    assert "7.5 │" in third, "30 rows in the 4 seconds since the last look"
    assert "No answer." not in third


def test_on_a_terminal_the_watch_is_drawn_in_place_and_ends_cleanly_with_ctrl_c(
    tmp_path: Path,
) -> None:
    ours, theirs = pty.openpty()
    # The children of a shell in the background ignore Ctrl-C.
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    start += "; from lakehouse.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", start, "status", "--watch", "--every", "0.1s"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": ":".join(sys.path),
            "TERM": "xterm",
            "COLUMNS": "160",
            "LAKEHOUSE_PULSAR_ADMIN_URL": f"http://127.0.0.1:{free_port()}",
        },
    )
    os.close(theirs)
    said = b""
    try:
        while said.count(b"bronze.users") < 3:
            said += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        while chunk := _read(ours):
            said += chunk
        assert process.wait() == 0, said.decode()
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    text = said.decode()
    assert "no broker answers" in text
    assert "Traceback" not in text
    assert text.count("\x1b[1A") > 10, "the cursor moves up to redraw the table"
    assert text.endswith("\x1b[?25h"), "the cursor is shown again at the end"


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # how Linux reports that no writer is left
        return b""


def test_a_format_that_cannot_be_watched_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    current.begin(home=tmp_path)
    monkeypatch.setattr("lakehouse.operate.watch.watch", lambda *_: pytest.fail("watched"))
    with pytest.raises(LakehouseError, match="Remove --format json"):
        status(form="json", live=True)
