"""Runs the statements of the SQL page, a few at a time, and keeps the last results.

A page starts a statement and asks for its result later, so a slow statement holds no request, and
can be cancelled from any page.
"""

from __future__ import annotations

import csv
import io
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from lake.settings.console import CONSOLE_TOKEN_ENV
from lake.tables.lake import Lake
from lakehouse.console.masking import Masking
from lakehouse.sql.reader import OFFER, Answer, Reader, Refusal
from pulsar_spark.errors import LakehouseError
from pulsar_spark.log_masking import redact

AT_ONCE = 2  # statements that run
KEPT = 4  # results in memory, of at most `LONGEST_RESULT` characters (`ReaderQuery.java`) each
LONGEST = 20_000  # characters of a statement
TOKEN = f"{CONSOLE_TOKEN_ENV}_FILE"


class StatementError(LakehouseError):
    """A statement cannot be started."""


@dataclass
class Statement:
    """A statement, its state, and what came of it.

    key: by which pages know it, which cannot be guessed.
    begun: in seconds since 1970. seconds: how long it took; None while it runs.
    outcome: None while it runs.
    """

    key: str
    text: str
    begun: float
    seconds: float | None = None
    outcome: Answer | Refusal | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def answer(self) -> Answer | None:
        """The result, if there is one."""
        return self.outcome if isinstance(self.outcome, Answer) else None

    @property
    def refusal(self) -> Refusal | None:
        """Why there is no result, if it has ended without one."""
        return self.outcome if isinstance(self.outcome, Refusal) else None

    def as_csv(self) -> str:
        """The result as CSV with a header. NULL is an empty field."""
        text = io.StringIO()
        writer = csv.writer(text)
        if self.answer is not None:
            writer.writerow(self.answer.names)
            writer.writerows(self.answer.rows)
        return text.getvalue()


class Statements:
    """The statements of a console. Thread-safe.

    lake: the lake. masking: which columns are masked. has_token: whether the console asks for one.
    """

    def __init__(self, lake: Lake, masking: Masking, *, has_token: bool) -> None:
        self._lake = lake
        self._masking = masking
        self._has_token = has_token
        self._lock = threading.Lock()
        self._known: dict[str, Statement] = {}
        self._pool = ThreadPoolExecutor(AT_ONCE, "console-sql")

    @property
    def reader(self) -> Reader | None:
        """What runs statements; None if that is not possible."""
        return None if self.obstacle else OFFER.reader

    @property
    def obstacle(self) -> str:
        """Why no statement can be run, and what to do about it; empty if one can."""
        if self._lake.settings.sql_authentication != "none" and not self._has_token:
            return (
                "The SQL endpoint asks for passwords, so not everyone who can open this page may "
                f"read its tables. Set {TOKEN}. People with the token can then run statements."
            )
        if OFFER.reader is None:
            return (
                "No SQL endpoint runs in this process. `lakehouse up` runs one after its streams "
                "have started; use the console of that process. Beside a job on a cluster, "
                "`lakehouse sql` runs a statement in a Spark of its own."
            )
        return ""

    def begin(self, text: str, address: str) -> Statement:
        """Start a statement.

        Raises:
            StatementError: it is empty or too long, too many run, or none can be run.
        """
        reader = self.reader
        if reader is None:
            raise StatementError(self.obstacle)
        if not text.strip() or len(text) > LONGEST:
            what = "There is no statement."
            if text.strip():
                what = f"The statement has more than {LONGEST:,} characters."
            raise StatementError(what)
        statement = Statement(secrets.token_urlsafe(12), text, time.time())
        with self._lock:
            running = [each for each in self._known.values() if each.outcome is None]
            if len(running) >= AT_ONCE:
                what = f"{AT_ONCE} statements are running. Wait until one has ended, or cancel it."
                raise StatementError(what)
            ended = [key for key, each in self._known.items() if each.outcome is not None]
            for key in ended[: max(len(ended) - KEPT + 1, 0)]:
                del self._known[key]
            self._known[statement.key] = statement
        self._pool.submit(self._run, reader, statement, address)
        return statement

    def get(self, key: str) -> Statement | None:
        """A statement that runs, or one of the last ones."""
        return self._known.get(key)

    @property
    def running(self) -> list[Statement]:
        """The statements that run."""
        return [each for each in [*self._known.values()] if each.outcome is None]

    def cancel(self, key: str) -> None:
        """Cancel a statement. Does nothing if it has ended."""
        statement, reader = self._known.get(key), OFFER.reader
        if statement is not None and statement.outcome is None and reader is not None:
            reader.cancel(key)

    def stop(self) -> None:
        """Cancel all statements. Called when the console stops."""
        for each in self.running:
            self.cancel(each.key)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, reader: Reader, statement: Statement, address: str) -> None:
        limit = reader.most_seconds
        with _Limit(limit, lambda: reader.cancel(statement.key)) as timer:
            outcome = self._outcome(reader, statement, address)
        if isinstance(outcome, Refusal) and outcome.is_cancelled:
            why = "The statement was cancelled."
            if timer.is_over:
                why = f"The statement was cancelled after {limit} s. Make it read less."
            outcome = Refusal(why, is_cancelled=True)
        statement.seconds = time.time() - statement.begun
        statement.outcome = outcome
        statement.ended.set()

    def _outcome(self, reader: Reader, statement: Statement, address: str) -> Answer | Refusal:
        try:
            return reader.run(
                self._lake.topics, self._masking.columns, statement.key, statement.text, address
            )
        except Exception as error:  # noqa: BLE001 - the page says so
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            return Refusal(redact(why))


class _Limit:
    """Calls a function if its block takes too long."""

    def __init__(self, seconds: float, act: Callable[[], None]) -> None:
        self.is_over = False
        self._act = act
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> _Limit:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _end(self) -> None:
        self.is_over = True
        self._act()
