"""Records who has run which statement at the SQL endpoint, in the table `bronze.sql_statements`.

`Audit.java` notes the statements. Owners can read the table; roles cannot be given it
(`access.py`). It holds no values: those in a statement are replaced by `?`, and of an error only
the name is kept, because Spark's messages quote values.
"""

import datetime as dt
import json
import re
import threading
from typing import Any

import structlog
from pyspark.sql import SparkSession

from gold.records import append_record
from lake.quoting import literal
from lake.settings.settings import LakeSettings
from lake.tables.lake import Lake
from lake.tables.spec import TableSpec
from pulsar_spark.schema import Column

WRITE_SECONDS = 5
MOST_WAITING = 100_000  # statements that are kept while the table cannot be written
LONGEST = 4000  # characters of a statement

STATEMENTS = TableSpec(
    "bronze",
    "sql_statements",
    "Statements at the SQL endpoint. Grain: one statement of a user; those of the last "
    "sql_audit_days",
    (
        Column("begun_at", "timestamp", "When the statement began", nullable=False),
        Column("user", "string", "Who ran it", nullable=False),
        Column("role", "string", "The user's role then; empty if it was refused unread"),
        Column("address", "string", "Network address of the client"),
        Column("statement", "string", "The statement, with ? for each value", nullable=False),
        Column("outcome", "string", "done, refused or failed", nullable=False),
        Column("error", "string", "Name of the error"),
        Column("rows", "bigint", "Rows that the client fetched", nullable=False),
        Column("seconds", "double", "How long it took", nullable=False),
    ),
)

# What a statement may consist of, as Spark's lexer divides it. Names in quotes that could be values
# are hidden like values.
VALUE = re.compile(
    r"""
    --(?:\\\n|[^\n])*                                 # comments; a backslash continues them
    | /\*(?:(?!/\*|\*/).)*\*/ | /\*.*                 # with a comment inside, hide all that follows
    | (?<=(?<!\w)[rR])(?:'[^']*(?:'|\Z)|"[^"]*(?:"|\Z))  # raw strings, in which \ means itself
    | '(?:\\.|''|[^'\\])*(?:'|\Z)                     # strings, also those that do not end
    | "(?:\\.|""|[^"\\])*(?:"|\Z)
    | (?P<name>`\w+`) | `(?:``|[^`])*(?:`|\Z)         # names; others than of letters and digits
    | (?<![\w`])[\d.]*\d[\w.]*                        # numbers
    """,
    re.VERBOSE | re.DOTALL,
)
SETTING = re.compile(r"\s*set\b", re.IGNORECASE)
UNREADABLE = re.compile(r"\[(PARSE_|INVALID_)|ParseException")
ERROR = re.compile(r"\[([A-Z][A-Z_.]+)\]")

log = structlog.get_logger()


class AuditLog:
    """Writes the endpoint's notes to the table every `WRITE_SECONDS`."""

    def __init__(self, spark: SparkSession, settings: LakeSettings) -> None:
        self._lake = Lake(settings)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        table = self._lake.table(STATEMENTS)
        table.create()
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {STATEMENTS.full_name} "
            f"USING delta LOCATION {literal(table.path)}"
        )

    def start(self, server: Any) -> None:
        """Write the notes of the running server, in a thread, until `stop`."""
        self._thread = threading.Thread(
            target=self._run, args=(server,), name="sql-audit", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Write what is left, after the server has stopped."""
        self._stopped.set()
        if self._thread:
            self._thread.join()

    def _run(self, server: Any) -> None:
        waiting: list[dict[str, Any]] = []
        while not self._stopped.wait(WRITE_SECONDS):
            waiting = self._write([*waiting, *map(record, server.endedStatements())])
        self._write([*waiting, *map(record, server.endedStatements())])

    def _write(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Append rows. Returns those to try again if they could not be written."""
        if not rows:
            return []
        days = self._lake.settings.sql_audit_days
        try:
            append_record(self._lake.table(STATEMENTS), rows, "begun_at", days)
        except Exception as error:  # noqa: BLE001 - otherwise the thread, and so the audit, would end
            log.warning("audit_not_written", statements=len(rows), reason=str(error))
            return rows[-MOST_WAITING:]
        return []


def record(note: str) -> dict[str, Any]:
    """The row of a note of `Audit.java`, without values."""
    read = json.loads(note)
    message = read["message"]
    refused = message is not None and "AccessDenied" in message
    error = ERROR.search(message) if message and not refused else None
    return {
        "begun_at": dt.datetime.fromtimestamp(read["begun_ms"] / 1000, dt.timezone.utc),
        "user": read["user"],
        "role": read["role"],
        "address": read["address"],
        "statement": without_values(
            read["statement"], is_sql=not (message and UNREADABLE.search(message))
        ),
        "outcome": "refused" if refused else "failed" if message else "done",
        "error": error[1] if error else None,
        "rows": read["rows"],
        "seconds": read["took_ms"] / 1000,
    }


def without_values(statement: str, *, is_sql: bool = True) -> str:
    """A statement with `?` for each value. Of what is not SQL, only the first word is kept."""
    if not is_sql:
        return re.match(r"\s*([A-Za-z]*)", statement)[1] + " ?"  # type: ignore[index]
    if SETTING.match(statement) and "=" in statement:
        statement = f"{statement.partition('=')[0]}= ?"
    return " ".join(VALUE.sub(_hidden, statement).split())[:LONGEST]


def _hidden(found: re.Match[str]) -> str:
    return found["name"] or "?"
