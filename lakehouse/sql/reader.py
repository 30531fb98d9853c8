"""Runs statements with the rights of a reader in the Spark of this process, for the console.

Everyone who can open the console has the rights of a reader, even if the SQL endpoint asks for no
passwords, which makes all of its users owners. `ReaderQuery.java` opens sessions for this role
only. They need no login, so there is no secret. The endpoint offers them while it runs.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lake.settings.settings import LakeSettings
from lake.settings.sql import RoleSettings
from lake.tables.java_source import classes_folder, compile_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lake.topics.topic_file import TopicFile

CLASSES = ("Access", "PlanGuard", "Audit", "ReaderQuery")  # each after those that it names
MOST_ROWS = 1000
MOST_SECONDS = 60
PLACE = re.compile(r"line (\d+),? pos(?:ition)? (\d+)")
STOPPED = "The SQL endpoint has stopped."
DENIED = re.compile(r"^.*AccessDenied: ")


@dataclass(frozen=True)
class Answer:
    """The result of a statement.

    names, types: of the columns, with the types as Spark shows them.
    rows: the values as text; None for NULL.
    is_cut: whether there were more rows.
    longest: the length of the longest value in characters; longer ones have one more.
    """

    names: list[str]
    types: list[str]
    rows: list[list[str | None]]
    is_cut: bool
    longest: int

    @property
    def has_long(self) -> bool:
        """Whether a value was cut."""
        return any(len(cell or "") > self.longest for row in self.rows for cell in row)


@dataclass(frozen=True)
class Refusal:
    """Why a statement failed, and where in it, if Spark says so: line and column from 1."""

    why: str
    line: int | None = None
    column: int | None = None
    is_cancelled: bool = False


class Reader:
    """Runs statements of readers. Thread-safe.

    spark: the session of the process.
    settings: what readers may read, and their limits.
    server: the endpoint, if it asks for passwords; its audit then notes the statements.
    """

    def __init__(self, spark: SparkSession, settings: LakeSettings, server: Any = None) -> None:
        self._spark, self._settings, self._server = spark, settings, server
        self._lock = threading.Lock()
        self._made: Any = None
        self._running: set[str] = set()
        self._is_closed = False
        role = settings.sql_roles.get("reader", RoleSettings())
        self.most_rows = min(role.rows or MOST_ROWS, MOST_ROWS)
        self.most_seconds = min(role.seconds or MOST_SECONDS, MOST_SECONDS)

    def run(
        self, topics: TopicFile, personal: list[str], key: str, statement: str, address: str
    ) -> Answer | Refusal:
        """Run a statement and wait for its end.

        Args:
            topics: what the topic file declares as personal.
            personal: the columns that are masked in all tables.
            key: by which `cancel` knows the statement.
            statement: SQL.
            address: from where it came, for the audit.
        """
        from lakehouse.sql.access import policy  # loads Spark

        allowed = policy(self._settings, topics, personal)
        queries = self._queries()
        with self._lock:
            if self._is_closed:
                return Refusal(STOPPED)
            self._running.add(key)
        try:
            text = queries.run(allowed, key, statement, self.most_rows, address)
        finally:
            with self._lock:
                self._running.discard(key)
        said = json.loads(text)
        if "error" in said:
            return _refusal(said)
        return Answer(said["names"], said["types"], said["rows"], said["is_cut"], said["longest"])

    def cancel(self, key: str) -> None:
        """Cancel a statement that has not ended."""
        self._queries().cancel(key)

    def close(self) -> None:
        """Cancel what is running. Called before the endpoint stops."""
        with self._lock:
            self._is_closed, running = True, [*self._running]
        from py4j.protocol import Py4JError

        for key in running:
            with contextlib.suppress(Py4JError, OSError):  # Java has ended
                self.cancel(key)

    def _queries(self) -> Any:
        """The object that runs statements, which is made for the first one."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made

    def _make(self) -> Any:
        """Compile our classes, and load them.

        They have a class loader of their own, because an endpoint without passwords has no folder
        of ours on the class path. Otherwise it finds those of the endpoint, which are there.
        """
        jvm: Any = self._spark._jvm  # noqa: SLF001 - Python has no other way
        gateway: Any = self._spark.sparkContext._gateway  # noqa: SLF001
        folder = classes_folder(self._settings)
        folder.mkdir(parents=True, exist_ok=True)
        places = gateway.new_array(jvm.java.net.URL, 1)
        places[0] = jvm.java.io.File(str(folder.resolve())).toURI().toURL()
        spark_loader = self._spark._jsparkSession.getClass().getClassLoader()  # noqa: SLF001
        loader = jvm.java.net.URLClassLoader(places, spark_loader)
        for name in CLASSES if self._server is None else CLASSES[-1:]:
            compile_source(jvm, "lakehouse.sql", name, folder, loader)
        found = loader.loadClass("lakehouse.ReaderQuery").getDeclaredConstructor(
            gateway.new_array(jvm.java.lang.Class, 0)
        )
        queries = found.newInstance(gateway.new_array(jvm.java.lang.Object, 0))
        notes = None if self._server is None else self._server.audit()
        queries.prepare(self._spark._jsparkSession, notes)  # noqa: SLF001
        return queries


class Offer:
    """The reader of this process, while its SQL endpoint runs."""

    def __init__(self) -> None:
        self.reader: Reader | None = None

    @contextlib.contextmanager
    def of(self, reader: Reader) -> Iterator[None]:
        """Offer a reader during the block."""
        self.reader = reader
        try:
            yield
        finally:
            self.reader = None
            reader.close()


OFFER = Offer()  # of this process


def _refusal(said: dict[str, Any]) -> Refusal:
    why = DENIED.sub("", said["error"] or said["kind"]).strip()
    place = PLACE.search(why)
    line = column = None
    if place:
        line, column = (int(each) for each in place.groups())
        # Spark counts positions from 0, and from 1 where it says "position".
        column += "position" not in place[0]
    return Refusal(why, line, column, said["is_cancelled"])
