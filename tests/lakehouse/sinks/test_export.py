"""Tests that a PostgreSQL has the rows of a Delta table, whatever happens to either of them."""

import datetime as dt
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from exported import VARIABLE, Exported
from live_shop import kept, until
from postgres_server import PASSWORD, PostgresServer
from structlog.testing import capture_logs

from lake.streams.checkpoint import claim
from lake.streams.given_up import given_up
from lake.tables.lake import Lake
from lakehouse.sinks.export import Exporter, export_sinks
from lakehouse.sinks.postgres import writer
from lakehouse.sinks.postgres.database import DatabaseError
from pulsar_spark.errors import CheckpointError, LakehouseError, SettingsError

Make = Callable[..., Exported]
UTC = dt.timezone.utc
SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string(), "n": pa.int64()})


@pytest.fixture
def make(postgres: PostgresServer, tmp_path: Path) -> Make:
    def make_it(**options: Any) -> Exported:
        return Exported(tmp_path, postgres.create_database(), **options)

    return make_it


def rows(*given: tuple[int | None, str | None] | tuple[int | None, str | None, int]) -> pa.Table:
    whole = [each if len(each) == 3 else (*each, 0) for each in given]
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, e, strict=True)) for e in whole], SCHEMA)


def test_inserts_updates_and_deletes_arrive(make: Make) -> None:
    sink = make()
    sink.write(rows((1, "a"), (2, "b"), (3, None), (4, "")))
    sink.export()
    sink.assert_equal()
    sink.merge(rows((1, "A"), (5, "e\n\\.\n\t\\N\r'\"")))
    sink.delta.delete("id = 2")
    sink.delta.update(updates={"id": "33"}, predicate="id = 3")  # the key itself
    sink.export()
    sink.assert_equal()
    assert sink.actual().keys() == {1, 4, 5, 33}
    with capture_logs() as logs:
        sink.export()
    assert logs == []  # nothing to do


NOW = dt.datetime.fromisoformat("2026-03-29T01:30:00.123456")
PLACE = pa.struct({"lat": pa.decimal128(9, 6), "seen": pa.timestamp("us", "UTC"), "x": pa.string()})
KINDS: dict[str, tuple[pa.DataType, str, list[Any]]] = {
    "flag": (pa.bool_(), "boolean", [True, False]),
    "tiny": (pa.int8(), "smallint", [-128, 127]),
    "small": (pa.int16(), "smallint", [-32768, 32767]),
    "whole": (pa.int32(), "integer", [-(2**31), 2**31 - 1]),
    "big": (pa.int64(), "bigint", [-(2**63), 2**63 - 1]),
    "single": (pa.float32(), "real", [0.5, -math.inf]),
    "double": (pa.float64(), "double precision", [0.1, math.inf, 5e-324, -0.0]),
    "money": (pa.decimal128(38, 9), "numeric(38,9)", [Decimal("-12345678901234567890.123456789")]),
    "text": (pa.string(), "text", ["", "ü\U0001f600", "\\N", "a\tb\r\n\\.\n\"'", "NULL"]),
    "bytes": (pa.binary(), "bytea", [b"", b"\x00\xff\\x"]),
    "day": (pa.date32(), "date", [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "instant": (
        pa.timestamp("us", "UTC"),
        "timestamp with time zone",
        [NOW.replace(tzinfo=UTC), dt.datetime(1, 1, 1, tzinfo=UTC)],
    ),
    "local": (pa.timestamp("us"), "timestamp without time zone", [NOW]),
    "texts": (pa.list_(pa.string()), "text[]", [[], ['a"b\\', None, "", "NULL", "{,}"]]),
    "numbers": (pa.list_(pa.int64()), "bigint[]", [[1, None, -3]]),
    "instants": (
        pa.list_(pa.timestamp("us", "UTC")),
        "timestamp with time zone[]",
        [[NOW.replace(tzinfo=UTC)]],
    ),
    "blobs": (pa.list_(pa.binary()), "bytea[]", [[b"\x00", b'"']]),
    "place": (PLACE, "jsonb", [{"lat": Decimal("1.500000"), "seen": NOW, "x": 'ü"\\'}]),
    "tags": (pa.map_(pa.string(), pa.int64()), "jsonb", [[("a", 1), ("b", None)]]),
    "grid": (pa.list_(pa.list_(pa.float64())), "jsonb", [[[1.5], [], None, [math.inf]]]),
}
AS_JSON = {
    "place": {"lat": 1.5, "seen": "2026-03-29T01:30:00.123456+00:00", "x": 'ü"\\'},
    "tags": {"a": 1, "b": None},
    "grid": [[1.5], [], None, ["Infinity"]],
}


def test_each_type_has_its_like_and_each_value_is_the_same(make: Make) -> None:
    """One row for each value, in which all other columns are NULL."""
    sink = make()
    found = [{"id": 0}]
    for name, (_, _, values) in KINDS.items():
        found += [{"id": len(found) + n, name: value} for n, value in enumerate(values)]
    schema = pa.schema({"id": pa.int64(), **{name: kind for name, (kind, _, _) in KINDS.items()}})
    sink.write(pa.Table.from_pylist(found, schema))
    sink.export()
    types = sink.query(
        "SELECT attname, format_type(atttypid, atttypmod) AS kind FROM pg_attribute "
        "WHERE attrelid = 'public.target'::regclass AND attnum > 0"
    )
    told = {row["attname"]: row["kind"] for row in types}
    assert told == {"id": "bigint", **{name: kind for name, (_, kind, _) in KINDS.items()}}
    actual = sink.actual()
    for row in found:
        here = {name: value for name, value in actual[row["id"]].items() if value is not None}
        wanted = {name: AS_JSON.get(name, value) for name, value in row.items()}
        assert here == wanted
        exact = [name for name in wanted if name not in AS_JSON]  # -0.0, and digits of decimals
        assert [str(here[name]) for name in exact] == [str(wanted[name]) for name in exact]
    assert sink.refused() == []
    nan = pa.table({"id": pa.array([0], pa.int64()), "double": [math.nan]})
    sink.merge(pa.Table.from_pylist([{**nan.to_pylist()[0], "numbers": []}], schema))
    sink.export()
    assert math.isnan(sink.actual()[0]["double"])
    assert sink.actual()[0]["numbers"] == []


TARGET = """
CREATE TABLE parents (name text PRIMARY KEY);
INSERT INTO parents VALUES ('a'), ('b'), ('c');
CREATE TABLE target (
  id bigint PRIMARY KEY,
  name varchar(3) REFERENCES parents,
  n integer NOT NULL UNIQUE CHECK (n >= 0),
  made_at timestamptz DEFAULT now()
);
CREATE TABLE children (id bigint REFERENCES target);
"""
NARROW = pa.schema({"id": pa.int64(), "name": pa.string(), "n": pa.int32()})


def narrow(*given: tuple[int | None, str | None, int | None]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(NARROW.names, e, strict=True)) for e in given], NARROW)


def seen(sink: Exported) -> dict[int, tuple[str | None, int]]:
    return {key: (row["name"], row["n"]) for key, row in sink.actual().items()}


@pytest.mark.parametrize("at_first", [True, False], ids=["first copy", "changes"])
def test_a_refused_row_goes_to_the_dead_letters_and_the_others_go_on(
    make: Make, at_first: bool
) -> None:
    sink = make()
    sink.query(TARGET)
    sink.write(narrow((0, "a", 1000)))
    if not at_first:
        sink.export()
    bad = {
        1: ("long", 1),  # varchar(3)
        2: ("b", -1),  # CHECK
        3: ("x", 3),  # no such parent
        4: ("a\0", 4),
        5: ("b", None),  # NOT NULL
        6: ("c", 7),  # UNIQUE, with the row 7
        None: ("a", 8),
    }
    good = {key: ("a", key) for key in range(7, 500)}
    sink.write(narrow(*((key, *value) for key, value in {**good, **bad}.items())))
    with capture_logs() as logs:
        sink.export()
    found = {row["key"]: row for row in sink.refused()}
    assert (
        seen(sink).items() >= {**{k: v for k, v in good.items() if k != 7}, 0: ("a", 1000)}.items()
    )
    either = [{"[6]"}, {"[7]"}]  # which of two equal values is refused depends on their order
    assert found.keys() - {"[6]", "[7]"} == {f"[{key or 'null'}]" for key in bad} - {"[6]"}
    assert found.keys() & {"[6]", "[7]"} in either
    assert found["[1]"]["state"] == "22001"
    assert found["[2]"]["state"] == "23514"
    assert found["[3]"]["state"] == "23503"
    assert "NUL" in found["[4]"]["reason"]
    assert found["[4]"]["row"] == {"id": 4, "name": "a\0", "n": 4}
    [said] = [each for each in logs if "refused" in each["event"]]
    assert said["rows"] == len(found)
    assert "long" not in str(logs)
    # Later rows that fit, and a parent that comes later, clear the dead letters.
    sink.merge(narrow((1, "b", 1), (2, "b", 2), (4, "c", 4)))
    sink.delta.delete("id IS NULL OR id IN (5, 6)")
    sink.query("INSERT INTO parents VALUES ('x')")
    sink.export()
    sink.export()  # a start tries refused rows again
    assert sink.refused() == []
    wanted = {key: (row["name"], row["n"]) for key, row in sink.expected().items()}
    assert seen(sink) == wanted


def test_a_delete_that_is_refused_is_a_dead_letter_until_it_can_be_done(make: Make) -> None:
    sink = make()
    sink.query(TARGET)
    sink.write(narrow((1, "a", 1), (2, "a", 2)))
    sink.export()
    sink.query("INSERT INTO children VALUES (1)")
    sink.delta.delete("id IN (1, 2)")
    sink.export()
    assert seen(sink) == {1: ("a", 1)}
    [letter] = sink.refused()
    assert (letter["key"], letter["kind"], letter["state"]) == ("[1]", "delete", "23503")
    sink.export()  # the full diff of a start is refused the same way
    assert len(sink.refused()) == 1
    sink.query("DELETE FROM children")
    sink.export()
    assert seen(sink) == {}
    assert sink.refused() == []


def test_a_key_that_does_not_identify_a_row_is_refused(make: Make) -> None:
    sink = make()
    sink.write(rows((1, "a"), (2, "b"), (1, "c"), (None, "d"), (None, "e")))
    with pytest.raises(SettingsError, match=r"copy\.key: several rows of gold\.source .*\(id\)"):
        sink.export()
    sink.delta.delete("name = 'c'")
    sink.export()
    assert {row["id"] for row in sink.query("SELECT id FROM public.target")} == {1, 2}


def test_a_unique_value_may_move_from_row_to_row(make: Make) -> None:
    sink = make()
    sink.query(TARGET)
    sink.write(narrow((1, "a", 1), (2, "a", 2), (3, "a", 3)))
    sink.export()
    sink.merge(narrow((3, "a", 4), (2, "a", 3), (1, "a", 2), (0, "a", 1)))
    sink.export()
    assert seen(sink) == {0: ("a", 1), 1: ("a", 2), 2: ("a", 3), 3: ("a", 4)}
    shutil.rmtree(sink.path)  # so that all rows are compared
    sink.write(narrow((9, "a", 1), (2, "a", 5), (3, "a", 3)))
    sink.export()
    assert seen(sink) == {9: ("a", 1), 2: ("a", 5), 3: ("a", 3)}
    assert sink.refused() == []


def test_a_table_that_refuses_all_rows_is_not_filled_with_dead_letters(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MOST_REFUSED", 20)
    sink = make()
    sink.query(TARGET)
    sink.write(narrow(*((n, "a", -1 - n) for n in range(21))))
    with pytest.raises(SettingsError, match="refuses more than 20 rows .* 23514.*Correct the"):
        sink.export()
    assert sink.query("SELECT * FROM lakehouse_refused") == []


def replaced(sink: Exported) -> None:
    shutil.rmtree(sink.path)
    sink.write(rows((2, "B"), (9, "i")))


def overwritten(sink: Exported) -> None:
    sink.write(rows((2, "B"), (9, "i")), mode="overwrite")


def restored(sink: Exported) -> None:
    sink.merge(rows((2, "B"), (9, "i")))
    sink.export()
    sink.delta.restore(0)


def vacuumed(sink: Exported) -> None:
    sink.merge(rows((2, "B"), (9, "i")))
    sink.delta.optimize.compact()
    options: dict[str, Any] = {"enforce_retention_duration": False, "dry_run": False, "full": True}
    sink.delta.vacuum(0, **options)
    assert not [*Path(sink.path, "_change_data").glob("*.parquet")]


def log_cleaned(sink: Exported) -> None:
    for name in ("B", "C"):
        sink.merge(rows((2, name), (9, "i")))
    sink.delta.create_checkpoint()
    for version in (0, 1):
        Path(sink.path, "_delta_log", f"{version:020d}.json").unlink()


def from_a_backup(sink: Exported) -> None:
    """The same id and the same number of versions, but another history."""
    copy = Path(f"{sink.path}-copy")
    shutil.copytree(sink.path, copy)
    sink.merge(rows((2, "lost"), (8, "lost")))
    sink.export()
    shutil.rmtree(sink.path)
    shutil.copytree(copy, sink.path)
    sink.merge(rows((2, "B"), (9, "i")))


def with_another_column(sink: Exported) -> None:
    more = rows((2, "B"), (9, "i")).append_column("more", pa.array([None, "m"]))
    sink.write(more, mode="overwrite", schema_mode="overwrite")
    sink.query("ALTER TABLE target ADD COLUMN more text")


@pytest.mark.parametrize(
    "change",
    [
        *(replaced, overwritten, restored, vacuumed, log_cleaned, from_a_backup),
        with_another_column,
    ],
)
def test_a_gap_in_the_feed_or_another_table_leads_to_the_same_rows(
    make: Make, change: Callable[[Exported], None]
) -> None:
    sink = make()
    sink.write(rows((1, "a"), (2, "b"), (3, "c")))
    sink.export()
    change(sink)
    sink.export()
    sink.assert_equal()
    sink.merge(rows((1, "again"), (10, "j")))
    sink.export()
    sink.assert_equal()


class Interrupted(Exception):
    """The process has been killed, as far as the database can tell."""


class Points:
    """Counts what is sent to the database, and lets the connection end at one point."""

    def __init__(self, at: int, end: Callable[[Any], None]) -> None:
        self.count, self._at, self._end = 0, at, end
        self._wait = psycopg.Connection.wait

    def __call__(self, connection: Any, *arguments: Any, **options: Any) -> Any:
        self.count += 1
        if self.count == self._at:
            self._end(connection)
        return self._wait(connection, *arguments, **options)


def vanish(connection: Any) -> None:
    """End like a process that is killed: the server sees that the connection is closed."""
    connection.pgconn.finish()
    raise Interrupted


def shown_version(sink: Exported) -> int | None:
    if not sink.query("SELECT to_regclass('lakehouse_positions') AS t")[0]["t"]:
        return None
    found = sink.query("SELECT version FROM lakehouse_positions")
    return found[0]["version"] if found else None


@pytest.mark.parametrize(
    ("when", "side", "step"),
    [
        ("first copy", "client", 3),
        ("changes", "server", 3),
        *(
            pytest.param(when, side, 1, marks=pytest.mark.nightly)
            for when in ("first copy", "changes")
            for side in ("client", "server")
        ),
    ],
)
def test_whenever_either_side_is_killed_the_database_shows_one_version(
    make: Make, monkeypatch: pytest.MonkeyPatch, side: str, when: str, step: int
) -> None:
    """At each point where something is sent, or at each third one."""
    sink = make(where="n <> 9 OR n IS NULL")
    sink.query(TARGET)
    sink.write(narrow((1, "a", 1), (2, "b", 2), (3, "x", 3), (6, "a", 9), (7, "b", 9)))
    versions = {None: {}, 0: {1: ("a", 1), 2: ("b", 2)}}
    [declared] = sink.lake.topics.export.values()

    def run(at: int) -> int:
        """Export with an end at one point, and return the number of points."""
        points = Points(at, vanish if side == "client" else cut)
        with monkeypatch.context() as patch:
            patch.setattr(psycopg.Connection, "wait", lambda *a, **o: points(*a, **o))
            exporter = Exporter(sink.lake, declared)
            try:
                while exporter.export():
                    pass
            except (Interrupted, DatabaseError):
                pass
            finally:
                exporter.close()
        return points.count

    def cut(connection: Any) -> None:
        pid = connection.info.backend_pid
        os.kill(pid, signal.SIGTERM)
        until(lambda: not alive(pid), "the end of the server process")

    def alive(pid: int) -> bool:
        return Path(f"/proc/{pid}").exists()

    if when == "changes":
        run(0)
        sink.merge(narrow((1, "c", 7), (4, "long", 4), (5, "a", 5), (6, "b", 6), (7, "c", 9)))
        sink.merge(narrow((2, "a", 9)))  # no longer meets the condition; 6 begins to
        versions[sink.delta.version()] = {1: ("c", 7), 5: ("a", 5), 6: ("b", 6)}
    at, newest = 0, sink.delta.version()
    while shown_version(sink) != newest:
        at += step
        run(at)
        assert seen(sink) == versions[shown_version(sink)], f"killed at {at}"
    assert at > 10  # the kills before the last one have rolled everything back
    run(0)
    assert seen(sink) == versions[sink.delta.version()]
    letters = {row["key"] for row in sink.refused()}
    assert letters == ({"[3]", "[4]"} if when == "changes" else {"[3]"})


SCRIPT = """
import os, signal, sys
from pathlib import Path
import psycopg
from exported import Exported

sink = Exported(Path(sys.argv[1]), os.environ["{variable}"])
at, count, wait = int(sys.argv[2]), 0, psycopg.Connection.wait

def counted(*arguments, **options):
    global count
    count += 1
    if count == at:
        os.kill(os.getpid(), signal.SIGKILL)
    return wait(*arguments, **options)

psycopg.Connection.wait = counted
sink.export()
""".replace("{variable}", VARIABLE)


def test_a_killed_process_can_be_started_again(make: Make, tmp_path: Path) -> None:
    """The real `kill -9`, at a few points; the test above takes all of them."""
    sink = make()
    sink.write(rows(*((n, f"n{n}") for n in range(1000))))
    paths = os.pathsep.join(
        str(Path(__file__).parents[3] / each) for each in ("tests/support", "tests/oracles", ".")
    )
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    for at in (25, 0):
        command = [sys.executable, str(script), str(tmp_path), str(at)]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, check=False
        )
        assert done.returncode == (-signal.SIGKILL if at else 0), done.stderr.decode()
        assert PASSWORD not in (done.stdout + done.stderr).decode()
    sink.assert_equal()


def test_a_database_that_restarts_while_rows_are_written_misses_none(
    make: Make, postgres: PostgresServer
) -> None:
    """The stream waits for the table, and goes on by itself after each restart."""
    sink = make()
    quick = sink.settings.model_copy(update={"restarts": 50, "restart_delay": 0.1})
    sink.lake = Lake(quick, sink.lake.topics)
    rng = random.Random(1)
    with kept(export_sinks(sink.lake, list(sink.lake.topics.export.values()))):
        sink.write(rows(*((n, f"n{n}") for n in range(20_000))))
        for turn in range(4):
            for _ in range(5):
                sink.merge(rows(*((key, f"t{turn}") for key in rng.sample(range(25_000), 500))))
            sink.delta.delete(f"id % 100 = {turn}")
            postgres.stop("immediate" if turn % 2 else "fast")
            sink.merge(rows((30_000 + turn, "while it was down")))
            postgres.start()
        until(lambda: shown_version(sink) == sink.delta.version(), "the newest version")
    sink.assert_equal()


def test_two_processes_do_not_export_the_same_sink(make: Make) -> None:
    sink = make()
    sink.write(rows((1, "a")))
    held = claim(sink.settings, "export.copy")
    with pytest.raises(CheckpointError, match=r"export\.copy already runs in another process"):
        sink.export()
    held.release()
    sink.export()
    sink.assert_equal()


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("id bigint PRIMARY KEY, name text", "has no column 'n'.*ADD COLUMN \"n\" bigint"),
        ("id bigint PRIMARY KEY, name text, n integer", "'n' of public.target is integer, which"),
        ("id bigint, name text, n bigint", "no unique index on exactly the key .*INDEX ON public"),
        ("id bigint, name text, n bigint, UNIQUE (id, n)", "no unique index on exactly the key"),
        ("id text PRIMARY KEY, name text, n bigint", "'id' of public.target is text, which"),
        ("id bigint PRIMARY KEY, name char(9), n bigint", "'name' of .* is character.9., which"),
        (
            "id bigint PRIMARY KEY, name text, n bigint, at timestamptz NOT NULL",
            "'at' of public.target is NOT NULL without a default",
        ),
        (
            "id bigint PRIMARY KEY, name text, n bigint GENERATED ALWAYS AS (id) STORED",
            "the database itself gives the column 'n'",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused_by_the_name_of_the_column(
    make: Make, table: str, says: str
) -> None:
    sink = make()
    sink.query(f"CREATE TABLE target ({table})")
    sink.write(rows((1, "a")))
    with pytest.raises(SettingsError, match=rf"export\.copy: .*{says}"):
        sink.export()
    stopped = given_up(sink.settings, "export.copy")
    assert stopped is not None
    assert "export.copy" in stopped.reason


def test_a_table_with_rows_of_others_and_what_is_no_table_are_refused(make: Make) -> None:
    sink = make()
    sink.write(rows((1, "a")))
    sink.query("CREATE TABLE target (id bigint PRIMARY KEY, name text, n bigint)")
    sink.query("INSERT INTO target VALUES (5, 'theirs', 1)")
    with pytest.raises(SettingsError, match="holds rows that no sink has written.*TRUNCATE"):
        sink.export()
    assert len(sink.query("SELECT * FROM target")) == 1
    sink.query("DROP TABLE target; CREATE VIEW target AS SELECT 1 AS id")
    with pytest.raises(SettingsError, match="public.target is not a table"):
        sink.export()


def test_columns_and_keys_that_the_lake_lacks_are_refused(make: Make, tmp_path: Path) -> None:
    sink = make(key=["nr"])
    sink.write(rows((1, "a")))
    with pytest.raises(SettingsError, match=r"export\.copy\.key: .*no column 'nr'.*id, name, n"):
        sink.export()


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("", "SINK_OF_THE_TESTS is not set"),
        (f"host=db pass={PASSWORD}", "does not hold the address of a database"),
        (f"postgresql://127.0.0.1:1/db?password={PASSWORD}", "no connection to 127.0.0.1:1/db"),
        (f"host=127.0.0.1 port={{port}} user=keeper password={PASSWORD}x", "password auth"),
        (f"{PASSWORD}", "does not hold the address"),
    ],
    ids=["none", "unknown key", "no server", "wrong password", "no address"],
)
def test_no_error_contains_the_password(
    make: Make,
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    says: str,
) -> None:
    sink = make()
    sink.write(rows((1, "a")))
    monkeypatch.setenv(VARIABLE, address.replace("{port}", str(postgres.port)))
    with capture_logs() as logs, pytest.raises(LakehouseError, match=says) as caught:
        sink.export()
    assert PASSWORD not in f"{caught.value}{caught.value.__cause__!r}{logs}"


def histories(seed: int) -> Iterator[Callable[[Exported], None]]:
    """Yield random changes of a table, with few keys so that they meet."""
    rng = random.Random(seed)

    def some() -> pa.Table:
        keys = rng.sample(range(12), rng.randrange(1, 6))
        return rows(*((key, rng.choice("abc"), rng.randrange(3)) for key in keys))

    def fresh(sink: Exported) -> None:
        known = set(sink.delta.to_pyarrow_table()["id"].to_pylist())
        new = [row for row in some().to_pylist() if row["id"] not in known]
        sink.write(pa.Table.from_pylist(new, SCHEMA))

    def earlier(sink: Exported) -> None:
        if newest := sink.delta.version():
            sink.delta.restore(rng.randrange(newest))

    def compacted(sink: Exported) -> None:
        sink.delta.optimize.compact()

    kinds: list[Callable[[Exported], None]] = [
        fresh,
        lambda sink: sink.merge(some()),
        lambda sink: sink.delta.delete(f"id % {rng.randrange(2, 5)} = 0"),
        lambda sink: sink.delta.update(
            updates={"n": "n + 1"}, predicate=f"id > {rng.randrange(9)}"
        ),
        lambda sink: sink.write(some(), mode="overwrite"),
        earlier,
        compacted,
        replaced,
    ]
    while True:
        yield rng.choice(kinds)


CONDITION = "name = 'a' AND n < 2 OR coalesce(n, 0) = 2 AND NOT name IN ('a', 'b')"


@pytest.mark.parametrize("where", [None, CONDITION], ids=["all", "some"])
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(1, 40))]
)
def test_after_any_history_the_database_has_the_rows_of_the_lake(
    make: Make, seed: int, where: str | None
) -> None:
    sink = make(where=where)
    sink.write(rows((1, "a"), (2, "b")))
    rng = random.Random(-seed)
    changes = histories(seed)
    for _ in range(12):
        for _ in range(rng.randrange(1, 4)):
            next(changes)(sink)
        sink.export()
        sink.assert_equal()
    assert isinstance(sink.delta, DeltaTable)


def test_a_key_need_only_identify_the_rows_that_meet_the_condition(make: Make) -> None:
    """As in a table of versions, of which the current ones are exported."""
    sink = make(where="n = 0")
    sink.write(rows((1, "a", 7), (1, "b", 8), (1, "c", 0), (2, "d", 0), (3, "e", 9)))
    sink.export()
    sink.assert_equal()
    sink.delta.update(updates={"n": "7", "name": "'old'"}, predicate="id = 1 AND n = 0")
    sink.write(rows((1, "new", 0)))
    sink.delta.update(updates={"name": "'older'"}, predicate="n = 8")  # meets it never
    sink.delta.update(updates={"n": "0"}, predicate="id = 3")
    sink.delta.delete("id = 2")
    with capture_logs() as logs:
        sink.export()
    assert not [line for line in logs if line["event"] == "exporting all rows"]
    sink.assert_equal()
    assert {key: row["name"] for key, row in sink.actual().items()} == {1: "new", 3: "e"}


def test_another_condition_compares_all_rows(make: Make) -> None:
    sink = make(where="n < 5")
    sink.write(rows((1, "a", 1), (2, "b", 2), (3, "c", 9)))
    sink.export()
    sink = make_again(sink, "n > 1")
    sink.export()
    sink.assert_equal()
    assert sink.actual().keys() == {2, 3}


def make_again(sink: Exported, where: str) -> Exported:
    return Exported(sink.settings.home_dir.parent, sink.address, where=where)


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("m = 1", "export.copy.where: the condition on gold.source uses 'm'"),
        ("n", "the condition on gold.source has 'n' as a condition, which is a number"),
        ("n = 'a'", "compares a number with a text"),
        ("name.x = 1", "uses 'name.x', but 'name' has no members"),
    ],
)
def test_a_condition_that_does_not_fit_the_table_is_refused(
    make: Make, where: str, says: str
) -> None:
    sink = make(where=where)
    sink.write(rows((1, "a")))
    with pytest.raises(LakehouseError, match=re.escape(says)):
        sink.export()


def test_the_command_needs_no_java_and_says_why_it_fails(make: Make, tmp_path: Path) -> None:
    sink = make()
    sink.write(rows((1, "a"), (2, "b\0")))
    program = Path(sys.executable).with_name("lakehouse")
    place = ("--home", str(tmp_path / "home"), "--topics", str(tmp_path / "topics.toml"))

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [program, *place, *command],
            env={**os.environ, "JAVA_HOME": "/nowhere"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert PASSWORD not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    done = run("sinks", "copy", "--available-now")
    assert done.returncode == 0, done.stderr
    sink.assert_equal(without=[2])
    status = json.loads(run("status", "--format", "json").stdout)
    notes = {line["table"]: line["note"] for line in status}
    assert notes["export.copy"] == "up to date; 1 rows refused"
    unknown = run("sinks", "others")
    assert unknown.returncode == 2
    assert "no sink 'others'. It has copy." in unknown.stderr
    sink.query("ALTER TABLE target DROP COLUMN n")
    sink.merge(rows((3, "c")))
    refused = run("sinks", "--available-now")
    assert refused.returncode == 2
    assert "has no column 'n'. Add it (ALTER TABLE public.target" in refused.stderr
