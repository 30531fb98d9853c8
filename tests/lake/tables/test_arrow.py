"""Tests reading and writing tables without Spark."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from lake.tables import arrow
from lake.tables.arrow import FEW_FILES, ArrowTable, NewRows

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC"))])
START = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
FEED = {"delta.enableChangeDataFeed": "true"}


def row(number: int | None, name: str | None = "a", at: int = 0) -> dict[str, object]:
    return {"id": number, "name": name, "at": START + dt.timedelta(hours=at)}


@pytest.fixture
def table(tmp_path: Path) -> ArrowTable:
    return ArrowTable(DeltaTable.create(tmp_path, SCHEMA, configuration=FEED))


def ids(found: pa.Table) -> list[int]:
    return sorted(found["id"].to_pylist(), key=lambda each: (each is not None, each))


def test_rows_are_found_by_values_that_need_quotes_and_by_null(table: ArrowTable) -> None:
    table.append([row(1, "o'brien"), row(2, None), row(3, 'a "b"'), row(None, "x")])
    names = pa.array(["o'brien", 'a "b"', "nobody"])
    found = table.find("name", names, ["id", "name"])
    assert found.column_names == ["name", "id"]
    assert ids(found) == [1, 3]
    assert ids(table.find("name", pa.array([None, "x"], pa.string()), ["id"])) == [None, 2]
    assert ids(table.find("id", pa.array([], pa.int64()), ["id"])) == []


def test_rows_are_found_by_dates_and_instants_to_the_microsecond(tmp_path: Path) -> None:
    kinds = {"id": pa.int64(), "day": pa.date32(), "at": pa.timestamp("us", "UTC")}
    begin, rows = dt.datetime(1969, 12, 31, 23, 59, 58, 999_500, dt.timezone.utc), []
    for number in range(6):
        at = begin + dt.timedelta(microseconds=300 * number)
        rows.append({"id": number, "day": dt.date(2026, 1, 1 + number % 3), "at": at})
    table = ArrowTable(DeltaTable.create(tmp_path, pa.schema(kinds)))
    for each in rows:
        table.append([each])
    for number, each in enumerate(rows):
        found = table.find("at", pa.array([each["at"]], kinds["at"]), ["id"])
        assert number in ids(found)
        found = table.find("day", pa.array([each["day"]], kinds["day"]), ["id"])
        assert ids(found) == [number % 3, number % 3 + 3]


def test_only_integers_and_strings_find_rows(table: ArrowTable) -> None:
    assert [table.finds_by(name) for name in SCHEMA.names] == [True, True, False]
    assert not table.lacks(pa.table({"at": [START]})), "nothing is certain"


def test_absent_keys_are_certain_unless_many_files_may_have_them(table: ArrowTable) -> None:
    table.append([row(1), row(9)])
    assert table.lacks(pa.table({"id": [2, 5]}))
    assert not table.lacks(pa.table({"id": [2, 9]}))
    assert table.lacks(pa.table({"id": [9], "name": ["other"]}))
    assert not table.lacks(pa.table({"id": [9], "name": ["a"]}))
    for _ in range(FEW_FILES):
        table.append([row(1), row(9)])
    assert not table.lacks(pa.table({"id": [5]})), "too many files to read"
    assert table.lacks(pa.table({"id": [10]})), "no file can have it"


def test_a_number_is_appended_once_for_each_app(table: ArrowTable) -> None:
    table.append_once([row(1)], "q", 3)
    table.append_once([row(2)], "q", 3)
    table.append_once([row(3)], "q", 2)
    table.append_once([row(4)], "other", 3)
    table.append_once([row(5)], "q", 4)
    assert ids(table.table(["id"])) == [1, 4, 5]


def test_changes_come_by_version_and_deletions_before_insertions(table: ArrowTable) -> None:
    table.append([row(1, "old"), row(2)])
    since = table.version + 1
    table.delete("id = 1", [row(1, "new")])
    table.append([row(0)])
    found = table.changes(since, ["id", "name"], 100, 1 << 20)
    assert found is not None
    assert [(x["id"], x["name"], x["_change_type"]) for x in found.to_pylist()] == [
        (1, "old", "delete"),
        (1, "new", "insert"),
        (0, "a", "insert"),
    ]
    assert table.changes(since, ["id"], 2, 1 << 20) is None, "too many rows"
    nothing = table.changes(since, [], 100, 1 << 20)
    assert nothing is not None
    assert nothing.num_rows == 3
    assert table.changes(since, ["id"], 100, 1) is None, "too many bytes"


def test_an_update_is_in_the_feed_with_the_row_as_it_was(tmp_path: Path, table: ArrowTable) -> None:
    table.append([row(1, "old"), row(2)])
    DeltaTable(tmp_path).update(predicate="id = 1", updates={"name": "'new'"})
    table.refresh()
    found = table.changes(table.version, ["name"], 100, 1 << 20, preimages=True)
    assert found is not None
    told = {(x["name"], x["_change_type"]) for x in found.to_pylist()}
    assert told == {("old", "update_preimage"), ("new", "update_postimage")}


def test_the_latest_row_is_that_with_the_latest_instant(table: ArrowTable) -> None:
    assert table.latest("at", ["id", "at"]) is None
    for number in (3, 8, 5):
        table.append([row(number, at=number), row(-number, at=-number)])
    found = table.latest("at", ["id", "at"])
    assert found is not None
    assert found["id"] == 8


def test_an_empty_table_is_read_as_one_without_rows(tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "at": pa.timestamp("us", "UTC")})
    DeltaTable.create(str(tmp_path / "empty"), schema)
    found = ArrowTable(DeltaTable(str(tmp_path / "empty"))).everything()
    assert (found.schema, found.num_rows) == (schema, 0)
    assert [column.num_chunks for column in found.columns] == [1, 1], "Spark needs a chunk"


def test_the_overlap_is_the_mean_number_of_files_that_may_have_a_value(table: ArrowTable) -> None:
    assert table.overlap("id") == 0
    for pair in ((0, 10), (20, 30), (5, 25)):
        table.append([row(number) for number in pair])
    assert table.overlap("id") == pytest.approx((2 + 2 + 3) / 3)
    assert table.overlap("absent") == 0


def test_small_files_are_merged_and_the_rows_stay(table: ArrowTable) -> None:
    for number in range(5):
        table.append([row(number)])
    assert table.files_below(1 << 20) == 5
    table.compact(1 << 20)
    assert (table.files_below(1 << 20), ids(table.table(["id"]))) == (1, [*range(5)])
    assert table.vacuum(7) == 0, "the old files are needed for a week"


def test_new_rows_are_read_once_and_all_again_if_any_is_gone(table: ArrowTable) -> None:
    reader = NewRows(["id", "at"], "at")
    table.append([row(1, at=1), row(2, at=2)])
    assert (ids(reader.read(table)[0]), reader.read(table)[1]) == ([1, 2], False)
    table.append([row(3, at=3)])
    found, is_all = reader.read(table)
    assert (ids(found), is_all) == ([3], False)
    table.delete("id = 1")
    found, is_all = reader.read(table)
    assert (ids(found), is_all) == ([2, 3], True)
    table.append([row(0, at=0)])  # before the rows that were read
    assert reader.read(table)[1]


def test_a_handle_moves_only_when_it_is_told_to(table: ArrowTable, tmp_path: Path) -> None:
    table.append([row(1)])
    write_deltalake(tmp_path, pa.Table.from_pylist([row(2)], SCHEMA), mode="append")
    assert table.count_rows() == 1
    table.refresh()
    assert (table.count_rows(), table.count("id > 1")) == (2, 1)
    assert table.column("id").to_pylist() in ([1, 2], [2, 1])
    assert sum(batch.num_rows for batch in table.batches(["name"])) == 2
    assert table.configuration("delta.enableChangeDataFeed") == "true"
    assert table.configuration("other") is None


KEYED = pa.schema(
    [
        ("town", pa.string()),
        ("until", pa.timestamp("us", "UTC")),
        ("seen", pa.list_(pa.map_(pa.string(), pa.int64()))),
        pa.field("batch", pa.int64(), nullable=False),
    ]
)
KEY = ["town", "until"]
keys = st.tuples(
    st.sampled_from([None, "a", "o'brien", 'b "c"']),
    st.sampled_from([None, START, row(0, at=1)["at"]]),
)


def keyed(rows: dict[tuple[object, ...], int]) -> pa.Table:
    found = [
        {"town": town, "until": until, "seen": [[("n", n)], None], "batch": n}
        for (town, until), n in rows.items()
    ]
    return pa.Table.from_pylist(found, KEYED)


@given(st.lists(st.tuples(st.dictionaries(keys, st.integers(0, 9)), st.sets(keys)), max_size=5))
def test_an_upsert_leaves_one_row_a_key_and_its_feed_tells_the_difference(
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[tuple[dict[tuple[object, ...], int], set[tuple[object, ...]]]],
) -> None:
    path = tmp_path_factory.mktemp("table")
    table = ArrowTable(DeltaTable.create(path, KEYED, configuration=FEED))
    known: dict[tuple[object, ...], int] = {}
    for rows, deleted in changes:
        gone = {key: known[key] for key in deleted - rows.keys() if key in known}
        if not rows and not gone:
            continue
        new = keyed(rows)
        assert table.rewrites_little(new, KEY)
        table.upsert(new, KEY, keyed(gone))
        before, known = known, {k: n for k, n in {**known, **rows}.items() if k not in gone}
        found = [((r["town"], r["until"]), r["batch"]) for r in table.rows(KEYED.names)]
        assert sorted(found, key=repr) == sorted(known.items(), key=repr)
        feed = table.changes(table.version, KEYED.names, 99, 1 << 20, preimages=True)
        assert feed is not None
        told = {kind: {} for kind in ("insert", "delete", "update_preimage", "update_postimage")}
        for r in feed.to_pylist():
            told[r["_change_type"]][r["town"], r["until"]] = r["batch"]
        updated = before.keys() & rows.keys()
        assert told == {
            "insert": {key: n for key, n in rows.items() if key not in before},
            "delete": gone,
            "update_preimage": {key: before[key] for key in updated},
            "update_postimage": {key: rows[key] for key in updated},
        }


def test_large_files_are_not_written_again_for_a_few_rows(
    table: ArrowTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.append([row(n) for n in range(100)])
    table.append([row(n, at=500) for n in range(200, 210)])
    files = sorted(DeltaTable(tmp_path).get_add_actions()["size_bytes"].to_pylist())
    monkeypatch.setattr(arrow, "MOST_WITHOUT_VECTORS", files[0])

    def is_little(*ids: int | None) -> bool:
        return table.rewrites_little(pa.table({"id": pa.array(ids, pa.int64())}), ["id"])

    assert is_little(150), "no file can have it"
    assert is_little(200, 203)
    assert not is_little(99)
    assert not is_little(99, 200), "both files"
    assert not is_little(None), "any file can have NULL"
    monkeypatch.setattr(arrow, "MOST_REWRITTEN", files[0] - 1)
    table.set_configuration("delta.enableDeletionVectors", "true")
    assert not is_little(200), "Spark would mark the row only"
    assert is_little(*range(200, 200 + files[0] // 8)), "the change itself is as large"
