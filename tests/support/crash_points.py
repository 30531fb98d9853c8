"""Simulates a kill at each durable write of a command, without killing it.

A killed process leaves the files as they are at that moment. So the command runs once,
undisturbed, and the lake's folder is copied before each of its writes. The copy includes the
broker's subscriptions if the command moves them. Each copy is a lake as a kill leaves it: no
`finally` has run, and no lock is held. The same command then runs on each copy
(`Recording.points`).

Each kind of write is intercepted at its source: Python's by audit hooks, those of delta-rs and
Arrow at their functions, Spark's in Hadoop's file system, and calls that change the broker at the
admin client. A write made in any other way is detected as well, because the folder has changed
without a report (`Recording.unseen`).
"""

import contextlib
import os
import random
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable
from deltalake.table import TableAlterer, TableMerger, TableOptimizer
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from lake.settings.settings import LakeSettings
from lake.tables import storage
from lake.tables.java_source import classes_folder
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.offsets import Position

POINTS = os.environ.get("TEST_CRASH_POINTS", "1")
ALL = POINTS == "all"
SAMPLE = None if ALL else int(POINTS)
SEED = 23
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
PATHS = {  # audit event: (argument with a path, argument with its folder's descriptor), ...
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.truncate": ((0, None),),
    "os.utime": ((0, 3),),
    "os.chmod": ((0, 2),),
}
PACKAGES = (
    *(
        "deltalake",
        "pulsar_spark",
        "lake",
        "bronze",
        "silver",
        "gold",
        "lakehouse",
        "shop",
        "tests",
    ),
)
DELTA_RS = (
    "restore",
    "vacuum",
    "create_checkpoint",
    "create_write_transaction",
    "update",
    "delete",
)
ARROW = ("delete_file", "delete_dir", "copy_file", "move", "open_output_stream")
OF_DATA = (".parquet", ".bin", ".crc")  # not read before a commit refers to them

DRAFT_OF_SPARK = re.compile(r"/\.[^/]+\.[0-9a-f]{8}-[0-9a-f-]{27}\.tmp$")

Stat = tuple[int, int, int]
Subscriptions = Mapping[str, Mapping[str, Position]]


@dataclass(frozen=True)
class Point:
    """A lake as a kill leaves it.

    before: the first write that was not made. subscriptions: the broker's, by partition.
    """

    number: int
    before: str
    home: Path
    subscriptions: Subscriptions


class BrokerSide:
    """The subscriptions of a lake's topics, which are what a command changes on the broker."""

    def __init__(self, settings: LakeSettings, topics: list[str]) -> None:
        self._connection = settings.connection
        with PulsarAdmin(self._connection) as admin:
            names = map(settings.full_topic, topics)
            self._partitions = [each for name in names for each in admin.partitions(name)]

    def subscriptions(self) -> Subscriptions:
        with PulsarAdmin(self._connection) as admin:
            return {each: self._ours(admin.state(each).cursors) for each in self._partitions}

    @staticmethod
    def _ours(cursors: Mapping[str, Position]) -> dict[str, Position]:
        """Filter out the broker's own cursors, such as that of deduplication."""
        return {name: at for name, at in cursors.items() if name.startswith("lakehouse-")}

    def put_back(self, before: Subscriptions) -> None:
        with PulsarAdmin(self._connection) as admin:
            for partition, now in self.subscriptions().items():
                wanted = before[partition]
                for name in now.keys() - wanted.keys():
                    admin.delete_subscription(partition, name)
                for name, position in wanted.items():
                    if now.get(name) != position:
                        if name in now:
                            admin.delete_subscription(partition, name)
                        admin.create_subscription(partition, name, position)


@dataclass
class Recording:
    """The writes of a command to a folder.

    Args:
        home: the folder to watch, the `home` of the settings.
        copies: the folder for the copies of the lake.
        sample: the number of points to keep, None for all.
        broker: the broker whose subscriptions belong to a point.
        apart: folders in `home` that are not part of the lake, such as logs.
    """

    home: Path
    copies: Path
    sample: int | None
    broker: BrokerSide | None = None
    apart: tuple[str, ...] = ("spark", "logs")
    count: int = 0
    points: list[Point] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._random = random.Random(SEED)
        self._told: set[str] = set()
        self._below: set[str] = set()
        self._broker: Subscriptions = {}
        self._before = self._last = self._files()
        self._seen = {*self._last}

    def tell(self, what: str, *paths: str, tree: bool = False, creates: bool = False) -> None:
        """Record a write before it happens: to files, or anywhere below folders (`tree`)."""
        ours = [path for path in paths if self._is_ours(path)]
        if not ours:
            return
        with self._lock, _unwatched():
            (self._below if tree else self._told).update(ours)
            if all(path.endswith(OF_DATA) for path in ours) and what == "create":
                return
            short = [os.path.relpath(path, self.home) for path in ours]
            self._look(f"{what} {' '.join(short)}")
            if creates:
                self._keep(f"write to {short[0]}, which is empty", emptied=short[0])

    def tell_broker(self, what: str) -> None:
        """Record a change on the broker before it happens."""
        with self._lock, _unwatched():
            self._look(what)

    def end(self) -> None:
        with self._lock, _unwatched():
            self._look("the end")

    @property
    def unseen(self) -> list[str]:
        """The files that changed without a recorded write."""
        paths = {*self._seen, *self._before, *self._last}
        changed = {path for path in paths if self._before.get(path) != self._last.get(path)}
        changed |= self._seen - self._before.keys()
        return sorted(path for path in changed if not self._is_told(path))

    def _is_told(self, path: str) -> bool:
        folders = map(str, Path(path).parents)
        return path in self._told or path in self._below or not self._below.isdisjoint(folders)

    def _is_ours(self, path: str) -> bool:
        home = f"{self.home}/"
        return path.startswith(home) and path[len(home) :].split("/")[0] not in self.apart

    def _look(self, before: str) -> None:
        broker = self.broker.subscriptions() if self.broker else {}  # first: it must not be ahead
        files = self._files()
        self._seen |= files.keys()
        is_same = _read_by_others(files) == _read_by_others(self._last) and broker == self._broker
        self._last, self._broker = files, broker
        if not (is_same and self.count):
            self._keep(before)

    def _keep(self, before: str, emptied: str | None = None) -> None:
        """Add a point; every point so far is equally likely to be in the sample."""
        self.count += 1
        if self.sample is not None and len(self.points) >= self.sample:
            place = self._random.randrange(self.count)
            if place >= self.sample:
                return
            shutil.rmtree(self.points.pop(place).home)
        copy = self.copies / f"point-{self.count}"
        self._copy(copy)
        if emptied:
            file = copy / emptied
            file.parent.mkdir(parents=True, exist_ok=True)
            file.unlink(missing_ok=True)
            file.touch()
        self.points.append(Point(self.count, before, copy, self._broker))

    def _files(self) -> dict[str, Stat]:
        found = {}
        for folder, folders, names in os.walk(self.home):
            if Path(folder) == self.home:
                folders[:] = [each for each in folders if each not in self.apart]
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    stat = os.stat(f"{folder}/{name}")
                    found[f"{folder}/{name}"] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        return found

    def _copy(self, target: Path) -> None:
        for folder, folders, names in os.walk(self.home):
            if Path(folder) == self.home:
                folders[:] = [each for each in folders if each not in self.apart]
            copy = target / os.path.relpath(folder, self.home)
            copy.mkdir(parents=True, exist_ok=True)
            is_link = "/_delta_log" in folder
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    if name.endswith(".parquet") or (is_link and name.endswith(".json")):
                        os.link(f"{folder}/{name}", copy / name)
                    else:
                        shutil.copy2(f"{folder}/{name}", copy / name)


def _read_by_others(files: dict[str, Stat]) -> dict[str, Stat]:
    """Return the files that the next process may read although no log refers to them."""
    return {
        path: stat
        for path, stat in files.items()
        if not path.endswith(OF_DATA) and not DRAFT_OF_SPARK.search(path)
    }


_recording: Recording | None = None
_thread = threading.local()


@contextlib.contextmanager
def _unwatched() -> Iterator[None]:
    """Ignore this thread's writes: they are the harness's own, or are recorded already."""
    before = getattr(_thread, "is_unwatched", False)
    _thread.is_unwatched = True
    try:
        yield
    finally:
        _thread.is_unwatched = before


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _recording is None or getattr(_thread, "is_unwatched", False):
        return
    if event == "open":
        path, _, flags = arguments
        if isinstance(path, str | bytes | os.PathLike) and flags & WRITING:
            whole = _absolute(path)
            is_new = bool(flags & os.O_TRUNC) or not os.path.exists(whole)
            is_plain = not os.path.basename(whole).startswith(".")
            _recording.tell("open", whole, creates=is_new and is_plain)
    elif event in PATHS:
        paths = (_path(arguments, *where) for where in PATHS[event])
        _recording.tell(event, *paths, tree=event == "os.rename")  # which may be a folder


def _path(arguments: tuple[Any, ...], name: int, folder: int | None) -> str:
    opened = -1 if folder is None or folder >= len(arguments) else arguments[folder]
    where = None if opened in (-1, None) else os.readlink(f"/proc/self/fd/{opened}")
    return _absolute(arguments[name], where)


def _absolute(path: Any, folder: str | None = None) -> str:
    if isinstance(path, int):
        return os.readlink(f"/proc/self/fd/{path}")
    text = os.fsdecode(path)
    return os.path.normpath(os.path.join(folder or os.getcwd(), text))


sys.addaudithook(_audit)  # for the life of the process: audit hooks cannot be removed


class _FromJava:
    """Receives the writes that `WatchedFiles.java` reports."""

    def accept(self, text: str) -> None:
        what, _, path = text.partition(" ")
        if _recording is not None:
            _recording.tell(what, path, tree=what in ("delete", "rename"))

    class Java:
        implements = ("java.util.function.Consumer",)


class Watcher:
    """Reports all writes of this process and its Spark session during a recording."""

    def __init__(self, spark: SparkSession, settings: LakeSettings) -> None:
        self._spark = spark
        self._jvm: Any = spark._jvm  # noqa: SLF001 - Python has no other way
        ensure_callback_server_started(spark.sparkContext._gateway)  # noqa: SLF001 - as above
        self._files = self._compiled(classes_folder(settings))
        self._told = _FromJava()

    @contextlib.contextmanager
    def recording(self, recording: Recording) -> Iterator[None]:
        global _recording
        with pytest.MonkeyPatch.context() as patch, self._spark_watched():
            _watch_delta_rs(patch)
            _watch_arrow(patch)
            _watch_broker(patch)
            _recording = recording
            try:
                yield
                recording.end()
            finally:
                _recording = None

    @contextlib.contextmanager
    def _spark_watched(self) -> Iterator[None]:
        hadoop = self._spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - as above
        ours = {
            "fs.file.impl": "tests.WatchedFiles",
            "fs.file.impl.disable.cache": "true",
            "fs.AbstractFileSystem.file.impl": "tests.WatchedFiles$Context",
        }
        before = {name: hadoop.get(name) for name in ours}
        for name, value in ours.items():
            hadoop.set(name, value)
        self._forget_tables()
        self._files.watch(self._told)
        try:
            yield
        finally:
            self._files.watch(None)
            for name, known in before.items():
                hadoop.unset(name) if known is None else hadoop.set(name, known)
            self._forget_tables()

    def _forget_tables(self) -> None:
        """Clear Delta's cache, whose tables keep the file system of their first use."""
        self._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def _compiled(self, classes: Path) -> Any:
        source = Path(__file__).with_name("WatchedFiles.java").read_text()
        compiler = self._jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook("WatchedFiles.java", self._jvm.java.io.StringReader(source))
        for name, code in compiler.getBytecodes().items():
            file = classes.joinpath(*name.split(".")).with_suffix(".class")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(code)
        return self._jvm.tests.WatchedFiles


def _watch_delta_rs(patch: pytest.MonkeyPatch) -> None:
    def watched(function: Any, place_of: Callable[[Any], Any]) -> Any:
        def told(*given: Any, **named: Any) -> Any:
            if _recording is not None:
                place = place_of(given[0])
                uri = place.table_uri if isinstance(place, DeltaTable) else str(place)
                path = os.path.normpath(unquote(uri.removeprefix("file://")))
                _recording.tell(f"delta-rs: {function.__name__}", path, tree=True)
            return function(*given, **named)

        return told

    for name in DELTA_RS:
        patch.setattr(DeltaTable, name, watched(getattr(DeltaTable, name), lambda table: table))
    for owner, name in ((TableOptimizer, "compact"), (TableAlterer, "set_table_properties")):
        patch.setattr(owner, name, watched(getattr(owner, name), lambda each: each.table))

    def merged(merger: Any) -> Any:
        return merger._table.table_uri()  # noqa: SLF001 - a merge says nowhere else what it changes

    patch.setattr(TableMerger, "execute", watched(TableMerger.execute, merged))
    patch.setattr(DeltaTable, "create", staticmethod(watched(DeltaTable.create, lambda at: at)))
    for module in [*sys.modules.values()]:
        package = module.__name__.split(".")[0]
        name = "write_deltalake"
        if package in PACKAGES and hasattr(module, name):
            patch.setattr(module, name, watched(getattr(module, name), lambda at: at))


def _watch_arrow(patch: pytest.MonkeyPatch) -> None:
    open_files = storage._files  # noqa: SLF001 - the only place that makes Arrow's clients

    class Watched:
        def __init__(self, files: Any) -> None:
            self._files = files

        def __getattr__(self, name: str) -> Any:
            method = getattr(self._files, name)
            if name not in ARROW:
                return method

            def wrapped(*given: str, **named: Any) -> Any:
                if _recording is not None:
                    _recording.tell(f"arrow: {name}", *given, tree=True)
                return method(*given, **named)

            return wrapped

    def opened(settings: LakeSettings, place: storage.Place) -> tuple[Any, str]:
        files, path = open_files(settings, place)
        return Watched(files), path

    patch.setattr(storage, "_files", opened)


def _watch_broker(patch: pytest.MonkeyPatch) -> None:
    ask = PulsarAdmin._ask  # noqa: SLF001 - all that is asked of the broker

    def asked(admin: PulsarAdmin, method: str, path: str, **content: Any) -> Any:
        if method != "GET" and _recording is not None:
            _recording.tell_broker(f"{method} {path}")
        return ask(admin, method, path, **content)

    patch.setattr(PulsarAdmin, "_ask", asked)
