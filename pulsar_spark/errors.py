"""Errors whose cause the user can correct.

    LakehouseError            one clear sentence or two for the user
    |- SettingsError          a setting, option or topic file is wrong
    |- BrokerError            the broker cannot be reached, or refuses a request
    |- DataLossError          messages were lost before they were read
    `- CheckpointError        checkpoint, table and topic do not belong together

Each message says where the error occurred, what happened, what it means and what to do.
"""

import importlib.util


class LakehouseError(Exception):
    """An error whose message is meant for the user and is shown without a traceback.

    The text of the error is `what`, followed by `remedy`.

    what: where and why the error occurred. Without a remedy of its own, it is the whole message.
    remedy: what the user can do, as sentences of their own; empty if `what` says it already.
    exit_code: the exit code of a command that ends with this error.
    may_pass: whether a retry may succeed although nothing is changed here.
    """

    exit_code = 2
    may_pass = False

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(*((what, remedy) if remedy else (what,)))  # pickle calls us with these
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return " ".join(self.args)


class SettingsError(LakehouseError):
    """A setting, option or topic file is wrong."""


class BrokerError(LakehouseError):
    """The broker cannot be reached, or refuses a request."""

    may_pass = True


class DataLossError(LakehouseError):
    """The broker no longer has messages that have not been read."""


class CheckpointError(LakehouseError):
    """A checkpoint, a table and a topic do not belong together."""


def require_library(library: str, extra: str, option: str) -> None:
    """Check that a library is installed that only some options need.

    Called where options are parsed, so a query fails at its start and not at the first loss.

    Args:
        library: the name of the module to import.
        extra: the extra of `pulsar-spark` that installs it.
        option: the option that needs it.

    Raises:
        SettingsError: the library is not installed.
    """
    if importlib.util.find_spec(library) is None:
        message = (
            f"Option '{option}' needs the library {library}, which is not installed. Install it "
            f"with `pip install 'pulsar-spark[{extra}]'`."
        )
        raise SettingsError(message)
