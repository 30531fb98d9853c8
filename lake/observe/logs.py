"""Configures logging: one event per line on stderr, because stdout is for results.

The format `text` is coloured on a terminal and logfmt elsewhere. The format `json` is one object
per line with `timestamp`, `level` and `event`. Logs and warnings of other libraries have the same
format.
"""

import contextlib
import logging
import sys
from collections import deque
from collections.abc import Mapping
from typing import Any

import structlog
from structlog.typing import EventDict, Processor

from lake.settings.log_format import LogFormat, use_format
from pulsar_spark.log_masking import HIDDEN, SECRET_NAME, redact

# Python loggers of Spark that print a traceback for an error that is also raised, or for Ctrl-C.
LOUD = ("py4j", "SQLQueryContextLogger", "DataFrameQueryContextLogger")
FIRST = ("timestamp", "level", "event")
# The last events of this process as logfmt, with secrets masked. The console shows them.
RECENT_LINES: deque[str] = deque(maxlen=500)
_as_line = structlog.processors.LogfmtRenderer(
    key_order=list(FIRST), drop_missing=True, bool_as_flag=False
)


def configure_logs(form: LogFormat = "text") -> None:
    """Log to stderr in this format from now on, and mask secrets. Can be called again."""
    for name in LOUD:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    known: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,  # without local variables, which may be secret
    ]
    renderer = _renderer(form)
    structlog.configure(
        processors=[*known, mask, _remember, renderer],
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),  # may be replaced
    )
    _take_over_standard_logs(known, renderer)
    use_format(form)


def _renderer(form: LogFormat) -> Processor:
    if form == "json":
        return _json
    if sys.stderr.isatty():
        return structlog.dev.ConsoleRenderer()
    return structlog.processors.LogfmtRenderer(key_order=list(FIRST))


def _json(logger: Any, method: str, event: EventDict) -> str:
    ordered = {name: event.pop(name) for name in FIRST if name in event} | dict(event)
    return str(structlog.processors.JSONRenderer(ensure_ascii=False)(logger, method, ordered))


def _remember(logger: Any, method: str, event: EventDict) -> EventDict:
    """Keep an event for the console, and pass it on."""
    with contextlib.suppress(ValueError):  # a key that logfmt does not allow
        RECENT_LINES.append(str(_as_line(logger, method, {**event})))
    return event


def mask(_: Any, __: str, event: EventDict) -> EventDict:
    """Mask secrets in an event. They are recognised by their names and by their shapes."""
    return {name: _masked(name, value) for name, value in event.items()}


def _masked(name: str, value: Any) -> Any:
    if SECRET_NAME.search(name) and value is not None:
        return HIDDEN
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {key: _masked(str(key), each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_masked("", each) for each in value]
    return redact(str(value))


class _StandardErr(logging.Handler):
    """Writes the records of other libraries to the current `sys.stderr`."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        sys.stderr.write(self.format(record) + "\n")


def _take_over_standard_logs(known: list[Processor], renderer: Processor) -> None:
    handler = _StandardErr(logging.WARNING)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*known, structlog.stdlib.add_logger_name],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                mask,
                _remember,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    for old in [each for each in root.handlers if isinstance(each, _StandardErr)]:
        root.removeHandler(old)
    root.addHandler(handler)
    logging.captureWarnings(capture=True)
