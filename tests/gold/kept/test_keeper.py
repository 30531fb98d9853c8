"""Tests that kept tables hold what their query gives, after each of many changes, in real Spark."""

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from random_models import ROW, TABLES, Row, changes, models

from gold.kept.keeper import Keeper, KeptError
from lake.kept.query import Unkept, read_query

FEED = "tblproperties (delta.enableChangeDataFeed = true)"
TOTALS = "with p as (select * from db.t1 where b > 0) select a, sum(b) as s from p group by a"
JOINED = "select x.a, x.b, y.c from db.t1 as x left join db.t2 as y on x.b = y.b where x.a >= 0"
SHARES = "select a, count(*) over () as n from db.t1 where a is not null group by a"


class Lab:
    """Three source tables, and models that are kept over them."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.rows: dict[str, list[Row]] = {}
        self.begin: dict[str, int] = {}
        self._folder: dict[str, str] = {}
        for name in TABLES:
            self.fill(name, [])

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.spark.sql(sql).collect()]

    def fill(self, name: str, rows: list[Row]) -> None:
        self.query(f"create or replace table {name} (a int, b int, c int) using delta {FEED}")
        if name not in self._folder:
            detail = self.spark.sql(f"describe detail {name}").collect()[0]
            self._folder[name] = detail["location"].removeprefix("file:")
        self.rows[name] = []
        self.insert(name, rows)

    def insert(self, name: str, rows: list[Row]) -> None:
        if rows:
            values = ", ".join(f"({', '.join(map(shown, row))})" for row in rows)
            self.query(f"insert into {name} values {values}")
            self.rows[name] += rows

    def delete(self, name: str, row: Row) -> None:
        """Delete all rows that are equal to one."""
        same = " and ".join(f"{c} <=> {shown(v)}" for c, v in zip("abc", row, strict=True))
        self.query(f"delete from {name} where {same}")
        self.rows[name] = [each for each in self.rows[name] if each != row]

    def build(self, model: str, sql: str) -> None:
        self.query(f"create or replace table db.{model} using delta {FEED} as {sql}")
        self.mark()

    def mark(self) -> None:
        """Note the versions of the sources, as a publication does."""
        self.begin = {name: self.version(name) for name in TABLES}

    def version(self, name: str) -> int:
        return DeltaTable(self._folder[name]).version()

    def keep(
        self,
        model: str,
        sql: str,
        key: list[str],
        *,
        until: dt.datetime | None = None,
        **meta: Any,
    ) -> str:
        """Keep a model. The sources are not marked if it waits."""
        node = {"name": model, "config": {"unique_key": key, "meta": meta}}
        sources = {
            name: {
                "table": name,
                "begin": self.begin[name],
                "end": self.version(name),
                "columns": "*",
            }
            for name in TABLES
        }
        done = Keeper(self.query).keep(f"db.{model}", node, sql, sources, "build-1", until)
        if until is None:
            self.mark()
        return done

    def last_write(self, model: str) -> str:
        [newest, *_] = self.spark.sql(f"describe history db.{model}").collect()
        return str(newest["operation"])

    def assert_equal(self, model: str, sql: str) -> None:
        kept = Counter(map(repr, self.query(f"select * from db.{model}")))
        wanted = Counter(map(repr, self.query(sql)))
        assert kept == wanted, f"{kept - wanted} or {wanted - kept}\n{sql}"


def shown(value: int | None) -> str:
    return "null" if value is None else str(value)


@pytest.fixture
def lab(spark: SparkSession) -> Iterator[Lab]:
    spark.sql("create database if not exists db")
    yield Lab(spark)
    spark.sql("drop database db cascade")


def test_a_model_that_waits_is_as_it_was_and_then_follows_all_changes(lab: Lab) -> None:
    lab.insert("db.t1", [(1, 5, 0), (2, 7, 0)])
    lab.build("m", TOTALS)
    before = Counter(lab.query("select * from db.m"))
    until = dt.datetime(2030, 1, 2, 3, 4, 5, tzinfo=dt.timezone.utc)
    assert lab.keep("m", TOTALS, ["a"], until=until) == "UNCHANGED"
    for row in ((2, 1, 0), (3, 4, 0)):
        lab.insert("db.t1", [row])
        said = lab.keep("m", TOTALS, ["a"], until=until)
        assert said == "WAITS (until 2030-01-02 03:04:05 UTC)"
    assert Counter(lab.query("select * from db.m")) == before
    assert lab.keep("m", TOTALS, ["a"]) == "KEPT (2 rows)"
    assert Counter(lab.query("select * from db.m")) == Counter([(1, 5), (2, 8), (3, 4)])


def test_a_model_does_not_wait_if_a_model_that_it_reads_is_built_from_scratch(lab: Lab) -> None:
    lab.insert("db.t1", [(1, 5, 0)])
    lab.build("m", TOTALS)
    node = {"name": "m", "config": {"unique_key": ["a"], "meta": {}}}
    keeper = Keeper(lab.query)
    keeper.note_whole("db.t1", {**node, "config": {"unique_key": ["a"]}})
    versions = {"begin": 1, "published": 1, "end": None}
    sources = {"db.t1": {"table": "db.t1", "columns": "*", **versions}}
    until = dt.datetime(2030, 1, 1, tzinfo=dt.timezone.utc)
    said = keeper.keep("db.m", node, TOTALS, sources, "build-1", until)
    assert said == "WHOLE (0 rows)"


def test_a_model_follows_inserts_updates_deletes_and_moves(lab: Lab) -> None:
    lab.insert("db.t1", [(1, 5, 0), (2, 7, 0), (2, -1, 0)])
    lab.build("m", TOTALS)
    assert lab.keep("m", TOTALS, ["a"]) == "UNCHANGED"
    lab.insert("db.t1", [(2, 1, 0), (3, 4, 0)])
    assert lab.keep("m", TOTALS, ["a"]) == "KEPT (2 rows)"
    assert Counter(lab.query("select * from db.m")) == Counter([(1, 5), (2, 8), (3, 4)])
    lab.query("update db.t1 set a = 1 where a = 3")
    assert lab.keep("m", TOTALS, ["a"]) == "KEPT (2 rows)"
    lab.delete("db.t1", (2, 7, 0))
    lab.query("update db.t1 set c = 9")  # a column that the model does not use
    assert lab.keep("m", TOTALS, ["a"]) == "KEPT (1 rows)"
    lab.assert_equal("m", TOTALS)
    assert Counter(lab.query("select * from db.m")) == Counter([(1, 9), (2, 1)])
    lab.query("update db.t1 set c = 8")
    assert lab.keep("m", TOTALS, ["a"]) == "UNCHANGED"


def test_many_keys_and_rows_are_written_by_spark(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gold.kept.keeper.MOST_KEYS", 2)
    monkeypatch.setattr("gold.kept.keeper.MOST_ROWS", 1)
    lab.insert("db.t1", [(n, n, 0) for n in (*range(9), *range(40, 60))])
    lab.insert("db.t2", [(0, n, n) for n in range(5)])
    lab.build("m", JOINED)
    lab.build("w", SHARES)
    lab.insert("db.t1", [(n, 3, 0) for n in range(20, 25)])
    lab.query("delete from db.t2 where b in (2, 4)")
    lab.query("update db.t1 set b = 1 where a = 8")
    begin = dict(lab.begin)
    assert lab.keep("m", JOINED, ["a"]) == "KEPT (many rows)"
    lab.begin = begin
    assert lab.keep("w", SHARES, ["a"]) == "WHOLE (many rows)"
    lab.assert_equal("m", JOINED)
    lab.assert_equal("w", SHARES)
    assert lab.last_write("m") == "MERGE"

    lab.query("update db.t1 set b = 4 where a < 50")  # most keys: it is cheaper to compute all rows
    begin = dict(lab.begin)
    assert lab.keep("m", JOINED, ["a"]) == "KEPT (many rows)"
    lab.assert_equal("m", JOINED)
    assert lab.last_write("m") == "WRITE"
    lab.begin = begin
    lab.keep("w", SHARES, ["a"])

    monkeypatch.undo()  # a table that was overwritten is overwritten again
    lab.insert("db.t1", [(30, 3, 0)])
    assert lab.keep("w", SHARES, ["a"]) == "WHOLE (many rows)"
    lab.assert_equal("w", SHARES)
    wrong = SHARES.replace("group by a", "group by a, b")
    lab.insert("db.t1", [(30, 4, 0)])
    with pytest.raises(KeptError, match=r"db.w comes more than once: .*'a': 30"):
        lab.keep("w", wrong, ["a"])


def test_constraints_are_enforced_by_each_way_to_write(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.insert("db.t1", [(1, 5, 0), (2, 7, 0)])
    lab.build("m", TOTALS)
    lab.build("w", SHARES)
    keeper = Keeper(lab.query)
    wanted = {"small": "`s` is null or (`s` <= 9)", "known": "`a` is not null"}
    keeper.constrain("db.m", {"old": "`s` > 0"})
    keeper.constrain("db.m", wanted)
    keeper.constrain("db.w", {"few": "`n` < 5"})
    for name, sql in wanted.items():
        assert Keeper(lab.query).enforces("db.m", name, sql)
    assert not Keeper(lab.query).enforces("db.m", "old", "`s` > 0")
    assert not Keeper(lab.query).enforces("db.m", "small", "`s` is null or (`s` <= 8)")
    lab.insert("db.t1", [(3, 9, 0)])
    assert lab.keep("m", TOTALS, ["a"]) == "KEPT (1 rows)"

    begin = dict(lab.begin)
    lab.insert("db.t1", [(4, 10, 0), (1, 5, 0)])  # a row to insert and one to update
    for most in (10_000, 0):  # by delta-rs, and by Spark
        monkeypatch.setattr("gold.kept.keeper.MOST_KEYS", most)
        with pytest.raises(Exception, match=r"CHECK constraint small .*s <= 9"):
            lab.keep("m", TOTALS, ["a"])
    assert Counter(lab.query("select * from db.m")) == Counter([(1, 5), (2, 7), (3, 9)])
    lab.begin = begin
    lab.insert("db.t1", [(5, 1, 0)])
    with pytest.raises(Exception, match="CHECK constraint few"):
        lab.keep("w", SHARES, ["a"])
    with pytest.raises(Exception, match=r"violate the new CHECK constraint \(`s` < 0\)"):
        keeper.constrain("db.m", {"no": "`s` < 0"})


def test_the_key_of_a_new_table_is_checked(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.insert("db.t1", [(1, 5, 0), (1, 7, 0), (2, None, 0)])
    lab.build("m", "select * from db.t1")
    for most in (10, 0):  # by Arrow, and by Spark
        monkeypatch.setattr("gold.kept.table.MOST_KEYS", most)
        for key, says in (
            (["a"], "comes more than once: .*'a': 1"),
            (["A", "b"], "is NULL: .*'a': 2"),
            (["a", "x"], "name `x` cannot be resolved"),
        ):
            node = {"name": "m", "config": {"unique_key": key}}
            with pytest.raises(Exception, match=says):
                Keeper(lab.query).note_whole("db.m", node)
    lab.delete("db.t1", (2, None, 0))
    lab.build("m", "select * from db.t1")
    Keeper(lab.query).note_whole("db.m", {"name": "m", "config": {"unique_key": ["a", "b"]}})


INSTANT = "timestamp_seconds(b * 1800)"
IN_WINDOWS = {
    "tumbling": f"""select window.start as at, a, sum(c) as s from db.t1
        group by window({INSTANT}, '1 hour'), a""",
    "sliding": f"""select window({INSTANT}, '2 hours', '1 hour').end as at, count(*) as n
        from db.t1 group by window({INSTANT}, '2 hours', '1 hour')""",
    "below": f"""with w as (select a, window({INSTANT}, '1 hour').start as at, c from db.t1)
        select w.at, max(w.c + y.c) as s from w join db.t2 as y on w.a = y.a group by w.at""",
}


@pytest.mark.nightly
def test_windows_of_time_are_keys(lab: Lab) -> None:
    keys = {name: ["at", "a"] if name == "tumbling" else ["at"] for name in IN_WINDOWS}
    lab.insert("db.t1", [(1, 0, 1), (1, 1, 2), (2, 2, 3), (2, None, 4)])
    lab.insert("db.t2", [(1, 0, 7), (2, 0, 8)])
    for name, sql in IN_WINDOWS.items():
        lab.build(name, sql)
    for changes_of_rows in (
        (
            "insert into db.t1 values (1, 1, 5), (3, 9, 6), (1, null, 1)",
            "update db.t1 set b = 3 where b = 0",  # to another hour
        ),
        ("update db.t1 set b = 2 where b is null", "update db.t2 set c = 1 where a = 2"),
    ):
        for change in changes_of_rows:
            lab.query(change)
        begin = dict(lab.begin)
        for name, sql in IN_WINDOWS.items():
            lab.begin = dict(begin)
            assert lab.keep(name, sql, keys[name]).startswith(("KEPT", "UNCHANGED")), name
            lab.assert_equal(name, sql)


NUMBERED = "select b, a, row_number() over (partition by a order by b) as n from db.t1"


@pytest.mark.parametrize("most", [0, 100])
def test_a_column_that_is_no_key_can_be_the_scope(
    lab: Lab, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gold.kept.keeper.MOST_ROWS", most)
    lab.insert("db.t1", [(1, 10, 0), (1, 11, 0), (2, 20, 0), (3, 30, 0)])
    lab.build("m", NUMBERED)
    lab.query("update db.t1 set a = 2 where b = 10")  # moves, and renumbers both
    assert lab.keep("m", NUMBERED, ["b"]).startswith("KEPT")
    lab.assert_equal("m", NUMBERED)
    lab.insert("db.t1", [(2, 30, 0)])  # a key of a row with another scope
    with pytest.raises(KeptError, match=r"db.m comes more than once: .*'b': '?30"):
        lab.keep("m", NUMBERED, ["b"])


def test_a_model_that_cannot_be_kept_is_computed_whole_or_refused(lab: Lab) -> None:
    lab.insert("db.t1", [(1, 1, 1)])
    lab.build("w", SHARES)
    lab.insert("db.t1", [(2, 1, 1)])
    with pytest.raises(KeptError, match=r"db.w is strict, .*does not partition by .*line 1"):
        lab.keep("w", SHARES, ["a"], strict=True)
    assert lab.keep("w", SHARES, ["a"]) == "WHOLE (2 rows)"
    lab.assert_equal("w", SHARES)
    with pytest.raises(KeptError, match="needs a unique_key"):
        lab.keep("w", SHARES, [])


def test_all_types_and_odd_names_and_times_in_any_zone(lab: Lab, spark: SparkSession) -> None:
    made = (
        "select a, date_add(date'1960-01-01', a) as `the-day`, cast(a * 0.1 as double) as `select`,"
        " timestamp_micros(a * 1000001 - 5) as At, concat('\\'\u00fc\\\\', a) as `S-1`, b"
        " from db.t1"
    )
    key = ["at", "THE-DAY", "S-1"]
    lab.insert("db.t1", [(n, n, n) for n in range(5)])
    lab.build("m", made)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        lab.query("update db.t1 set b = 7 where a = 2")
        lab.insert("db.t1", [(9, 1, 1)])
        lab.query("delete from db.t1 where a = 3")
        assert lab.keep("m", made, key) == "KEPT (3 rows)"
        lab.assert_equal("m", made)
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    wide = "select a, array(b) as l, struct(c) as s from db.t1"
    lab.build("w", wide)
    lab.query("update db.t1 set c = 8 where a = 2")
    assert lab.keep("w", wide, ["a"]) == "KEPT (many rows)"
    lab.assert_equal("w", wide)
    lab.build("x", "select a, map('k', c) as m from db.t1")
    with pytest.raises(KeptError, match="its column m is a map<string,int>"):
        Keeper(lab.query).note_whole("db.x", {"name": "x", "config": {"unique_key": "a"}})


@pytest.mark.parametrize(
    ("row", "reason"), [((7, 2, 0), "comes more than once"), ((None, 2, 0), "is NULL")]
)
@pytest.mark.parametrize("most", [100, pytest.param(0, marks=pytest.mark.nightly)])
def test_a_wrong_key_fails_with_its_rows_and_changes_nothing(
    lab: Lab, row: Row, reason: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gold.kept.keeper.MOST_ROWS", most)
    sql = "select a, b from db.t1"
    lab.insert("db.t1", [(7, 1, 0)])
    lab.build("m", sql)
    lab.insert("db.t1", [row])
    with pytest.raises(KeptError, match=rf"The unique_key \(a\) of db.m {reason}: .*'b': '?2"):
        lab.keep("m", sql, ["a"])
    assert lab.query("select * from db.m") == [(7, 1)]


def compare(lab: Lab, data: st.DataObject, steps: int) -> None:
    text, key = data.draw(models())
    text += " where " + " and ".join(f"{name} is not null" for name in key)
    try:
        read_query(text, TABLES)
    except Unkept:
        return
    for name in TABLES:
        lab.fill(name, data.draw(st.lists(ROW, max_size=5, unique=True)))
    lab.build("m", text)
    try:
        Keeper(lab.query).note_whole("db.m", {"name": "m", "config": {"unique_key": key}})
    except KeptError:  # a random key may come twice
        return
    for _ in range(steps):
        for table, feed in data.draw(
            changes({n: list(rows) for n, rows in lab.rows.items()})
        ).items():
            for kind, row in feed:
                if kind in ("insert", "update_postimage"):
                    lab.insert(table, [row])
                else:
                    lab.delete(table, row)
        try:
            lab.keep("m", text, key)
        except KeptError:
            return
        lab.assert_equal("m", text)


@pytest.mark.nightly
@pytest.mark.timeout(5400)
@settings(
    max_examples=100,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_random_models_follow_random_histories(spark: SparkSession, data: st.DataObject) -> None:
    spark.sql("create database if not exists db")
    try:
        compare(Lab(spark), data, 4)
    finally:
        spark.sql("drop database db cascade")
