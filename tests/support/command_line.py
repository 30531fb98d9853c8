"""Runs `lakehouse` in this process, on the broker and the namespace of a test."""

import io
import os
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from lake.settings.settings import LakeSettings
from lakehouse import cli


class Outcome(NamedTuple):
    exit_code: int
    out: str
    err: str


def environment(settings: LakeSettings, topics: Path) -> dict[str, str]:
    """Return the variables with which a process of its own uses the test's broker and topics."""
    return {
        "LAKEHOUSE_HOME": str(settings.home_dir),
        "LAKEHOUSE_TOPICS": str(topics),
        "LAKEHOUSE_PULSAR_URL": settings.pulsar_url,
        "LAKEHOUSE_PULSAR_ADMIN_URL": settings.pulsar_admin_url,
        "LAKEHOUSE_PULSAR_NAMESPACE": settings.pulsar_namespace,
    }


class CommandLine:
    """The command line; call it with the arguments."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        settings: LakeSettings,
        topics: Path,
    ) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        for name, value in environment(settings, topics).items():
            monkeypatch.setenv(name, value)

    def __call__(self, *arguments: str | bytes, stdin: bytes = b"") -> Outcome:
        decoded = [os.fsdecode(each) for each in arguments]
        self._monkeypatch.setattr(sys, "argv", ["lakehouse", *decoded])
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = None
        try:
            cli.main()
        except SystemExit as end:
            code = end.code
        assert code is None or isinstance(code, int)
        return Outcome(code or 0, *self._capsys.readouterr())
