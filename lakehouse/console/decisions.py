"""Replays or discards quarantined records, by `lakehouse quarantine` in a process of its own.

A decision does not run beside the silver stream. It therefore pauses silver, waits until silver has
released its checkpoint, runs the command, and lets silver continue. A note in the home says that
silver was paused for it: if this process is killed, the next console lets silver continue.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from lake.durable import delete_durably, read_json, write_durably
from lake.settings.console import CONSOLE_TOKEN_ENV
from lake.settings.settings import LakeSettings
from lake.streams.pause import is_paused, pause, resume
from lake.streams.state import SILVER, held_locks, is_claimed
from pulsar_spark.errors import LakehouseError
from pulsar_spark.log_masking import redact

NOTE = "console-decision.json"
LOG = "console-decision.log"
WAIT_SECONDS = 120.0
LOOK_SECONDS = 0.2
LONGEST = 2000  # characters of the command's output that are shown

Action = Literal["replay", "discard"]


@dataclass(frozen=True)
class Decision:
    """A decision about quarantined records.

    topic, reason: which open records; None for all topics or reasons.
    state: `waiting` for silver to pause, `running`, `done` or `failed`.
    said: what the command has printed last.
    begun: when the decision was made, in seconds since 1970.
    """

    action: Action
    topic: str | None
    reason: str | None
    state: Literal["waiting", "running", "done", "failed"]
    begun: float
    said: str = ""

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return self.state in ("done", "failed")


class Decisions:
    """Runs one decision at a time. Thread-safe."""

    def __init__(self, settings: LakeSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.last: Decision | None = None

    def recover(self) -> None:
        """Let silver continue if a killed console has paused it. Called when a console starts."""
        if not self._note.exists():
            return
        # If the lock is taken, another console handles it.
        with contextlib.suppress(Timeout), self._alone():
            with contextlib.suppress(LakehouseError):  # torn, so silver was not paused yet
                if (read_json(self._note, "") or {}).get("paused_by_us"):
                    resume(self._settings, SILVER)
            delete_durably(self._note)

    def begin(self, action: Action, topic: str | None, reason: str | None) -> bool:
        """Begin a decision, unless another one is running.

        Returns:
            Whether it has begun.
        """
        with self._lock:
            if self.last is not None and not self.last.is_over:
                return False
            self.last = Decision(action, topic, reason, "waiting", time.time())
        self._thread = threading.Thread(target=self._run, name="console-decision", daemon=True)
        self._thread.start()
        return True

    def stop(self) -> None:
        """Let the running command end, and silver continue. Called when the console stops."""
        self._stopped.set()
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
        if self._thread is not None:
            self._thread.join(30)

    def _run(self) -> None:
        try:
            self._note.parent.mkdir(parents=True, exist_ok=True)
            with self._alone():
                said, is_done = self._decide()
        except Timeout:
            said = "Another console is running a decision. Try again when it is done."
            is_done = False
        except OSError as error:
            said, is_done = f"{error.filename}: {error.strerror}", False
        self._change(state="done" if is_done else "failed", said=said)

    def _decide(self) -> tuple[str, bool]:
        paused = not is_paused(self._settings, SILVER)
        write_durably(self._note, json.dumps({"paused_by_us": paused}))
        try:
            if paused:
                pause(self._settings, SILVER)
            return self._wait_for_silver() or self._command()
        finally:
            if paused:
                resume(self._settings, SILVER)
            delete_durably(self._note)

    def _wait_for_silver(self) -> tuple[str, bool] | None:
        """Wait until no process runs silver. Returns what is wrong, if it does not stop."""
        until = time.monotonic() + WAIT_SECONDS
        while is_claimed(self._settings, SILVER, held_locks()):
            if time.monotonic() > until or self._stopped.wait(LOOK_SECONDS):
                return f"The silver stream has not paused within {WAIT_SECONDS:.0f} seconds.", False
        return None

    def _command(self) -> tuple[str, bool]:
        decision = self.last
        assert decision is not None  # noqa: S101 - set by `begin`
        self._change(state="running")
        log = self._settings.home_dir / "logs" / LOG
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command(self._settings, decision),
                env={n: value for n, value in os.environ.items() if n != CONSOLE_TOKEN_ENV},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            code = self._process.wait()
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        said = "\n".join(lines if code else lines[-1:])
        return redact(said)[-LONGEST:], code == 0

    def _change(self, **changes: str) -> None:
        with self._lock:
            if self.last is not None:
                self.last = replace(self.last, **changes)  # type: ignore[arg-type]

    def _alone(self) -> FileLock:
        """The lock of a decision, which the operating system releases if the process is killed."""
        return FileLock(self._note.with_suffix(".lock"), timeout=0)

    @property
    def _note(self) -> Path:
        return self._settings.home_dir / "run" / NOTE


def command(settings: LakeSettings, decision: Decision) -> list[str]:
    """The command line of a decision. Settings of the environment are passed on."""
    chosen = [f"--home={settings.home_dir}", f"--topics={settings.topics.expanduser().resolve()}"]
    which = [f"--{n}={v}" for n in ("topic", "reason") if (v := getattr(decision, n)) is not None]
    ask_not = ["--yes"] if decision.action == "discard" else []
    program = [sys.executable, "-m", "lakehouse", *chosen]
    return [*program, "quarantine", decision.action, *which, *ask_not]
