"""Stores whether logs are text or JSON. Imports nothing heavy, because `--help` loads it."""

from typing import Literal

LogFormat = Literal["text", "json"]


class _State:
    form: LogFormat = "text"


def use_format(form: LogFormat) -> None:
    """Write logs, and errors that end a command, in this format. Called by `configure_logs`."""
    _State.form = form


def is_json() -> bool:
    """Whether logs are written as JSON."""
    return _State.form == "json"
