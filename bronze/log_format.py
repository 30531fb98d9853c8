"""Whether logs are text for people or JSON for machines. Imports nothing, as the help loads it."""

from typing import Literal

LogFormat = Literal["text", "json"]


class _State:
    form: LogFormat = "text"


def use_format(form: LogFormat) -> None:
    """Write logs, and errors that end a command, in this format; called by `configure_logs`."""
    _State.form = form


def is_json() -> bool:
    """Whether a machine reads stderr."""
    return _State.form == "json"
