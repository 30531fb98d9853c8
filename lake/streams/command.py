"""Shared by all command lines: the option `--available-now`, and how a command ends.

Used by `lakehouse` and by `python -m` with `bronze`, `silver` and `gold`. Heavy modules are
imported only where they are needed, so that help and shell completion answer at once.
"""

import signal
import sys
import traceback
from collections.abc import Callable
from typing import Annotated

import typer

from lake.remedies import said
from lake.settings.log_format import is_json
from pulsar_spark.errors import LakehouseError
from pulsar_spark.log_masking import redact

AvailableNow = Annotated[
    bool, typer.Option("--available-now", help="Process the messages that exist now, then exit.")
]


def exit_with(app: Callable[[], object], *, traces: Callable[[], bool] = lambda: False) -> None:
    """Run a command line. An error becomes one message on stderr and an exit code.

    The exit code is 2 for an error that the user can fix, 130 after Ctrl-C, and 1 for any other
    error. If `traces` returns true, the traceback comes first. If logs are JSON, so is the error.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        message, exit_code = _verdict(error)
        if is_json():
            import structlog

            log = structlog.get_logger()
            log.error("failed", error=message, exit_code=exit_code, exc_info=traces())
        else:
            if traces():
                typer.echo(redact(traceback.format_exc()), err=True)
            typer.secho("Error: ", fg="red", err=True, nl=False)
            typer.echo(redact(message), err=True)
        sys.exit(exit_code)


def _verdict(error: Exception) -> tuple[str, int]:
    if isinstance(error, LakehouseError):
        return said(error), error.exit_code
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}. Check that it exists and is writable.", 2
    from lake.streams.failures import NO_SPARK, explain

    if isinstance(error, NO_SPARK):
        return explain(error), 1
    return f"{type(error).__name__}: {explain(error)}", 1
