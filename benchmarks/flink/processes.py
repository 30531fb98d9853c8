"""Starts and kills the processes of a system under test, and measures their cost."""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

SAMPLE_SECONDS = 0.5
STOP_SECONDS = 40


@dataclass
class Processes:
    """Named processes and their children. Each writes its output to `NAME.log` in `logs`.

    ended: CPU seconds of the processes that have finished.
    """

    logs: Path
    running: dict[str, psutil.Popen] = field(default_factory=dict)
    ended: float = 0.0

    def start(self, name: str, command: list[str], env: Mapping[str, str]) -> None:
        """Start a process."""
        self.logs.mkdir(parents=True, exist_ok=True)
        with (self.logs / f"{name}.log").open("a") as log:
            self.running[name] = psutil.Popen(
                command,
                env={**os.environ, **env},
                cwd=self.logs,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def finish(self, name: str, seconds: float) -> None:
        """Wait until a process has ended, and add its CPU time to `ended`.

        Raises:
            RuntimeError: the process failed, or did not end within these seconds.
        """
        process, spent = self.running[name], 0.0
        for _ in range(int(seconds / SAMPLE_SECONDS)):
            with contextlib.suppress(psutil.NoSuchProcess):
                spent = max(spent, _cpu(process))
            with contextlib.suppress(psutil.TimeoutExpired):
                process.wait(SAMPLE_SECONDS)
                break
        if process.returncode != 0:
            text = (self.logs / f"{name}.log").read_text()[-2000:]
            message = f"{name} ended with {process.returncode}. The end of its log:\n{text}"
            raise RuntimeError(message)
        self.ended += spent
        del self.running[name]

    def kill(self, *names: str) -> None:
        """Kill these processes and their children with SIGKILL, and drop them."""
        for name in names:
            process = self.running.pop(name)
            for each in [process, *process.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
            process.wait()

    def stop(self) -> None:
        """Ask all processes to stop, and kill those that have not after `STOP_SECONDS`."""
        for name, process in list(self.running.items()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
            with contextlib.suppress(psutil.TimeoutExpired):
                process.wait(STOP_SECONDS)
            if process.is_running():
                self.kill(name)
        self.running.clear()

    def cpu_seconds(self) -> float:
        """User and system time of all processes so far, including those that have ended."""
        spent = self.ended
        for process in self._all():
            with contextlib.suppress(psutil.NoSuchProcess):
                spent += _cpu(process)
        return spent

    def memory(self) -> int:
        """Bytes of memory of all processes. A page that several share counts once."""
        size = 0
        for process in self._all():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                size += process.memory_full_info().pss
        return size

    def _all(self) -> Iterator[psutil.Process]:
        for process in list(self.running.values()):
            with contextlib.suppress(psutil.NoSuchProcess):
                yield process
                yield from process.children(recursive=True)


def _cpu(process: psutil.Process) -> float:
    """CPU seconds of a process and of its children that have ended."""
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def folder_bytes(folder: Path) -> int:
    """The disk space, in bytes, of all files below a folder."""
    size = 0
    for file in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # deleted in the meantime
            size += file.stat().st_blocks * 512 if file.is_file() else 0
    return size
