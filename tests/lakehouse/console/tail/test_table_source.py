"""Tests what the live page reads of a table's versions."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from quiet_lake import QuietLake
from served_console import quiet_settings

from lake.tables.spec import CHANGE_FEED
from lakehouse.console.masking import HIDDEN, Masking
from lakehouse.console.tables import known_tables
from lakehouse.console.tail.table_source import MOST_VERSIONS, TableSource

NOW = dt.datetime.now(dt.timezone.utc)


@pytest.fixture
def quiet(tmp_path: Path) -> QuietLake:
    found = QuietLake(quiet_settings(tmp_path))
    found.keep("users", [{"id": 1, "first_name": "Ann"}], NOW)
    found.land("users", [b"{}"], NOW)
    return found


def source(quiet: QuietLake, table: str, *, shows_all: bool = False) -> TableSource:
    masking = Masking(quiet.lake.topics, shows_all=shows_all)
    return TableSource(known_tables(quiet.lake)[table], masking)


def test_changed_rows_come_version_by_version_with_personal_values_masked(
    quiet: QuietLake,
) -> None:
    path = quiet.settings.table_path("gold", "people")
    schema = pa.schema({"id": pa.int64(), "first_name": pa.string(), "city": pa.string()})

    def write(*rows: dict[str, object], **more: Any) -> None:
        table = pa.Table.from_pylist([*rows], schema)
        write_deltalake(path, table, mode="append", **more)

    write({"id": 1}, configuration=CHANGE_FEED)
    found = source(quiet, "gold.people")
    assert found.poll(10) == ([], "")
    write({"id": 2, "first_name": "Bo"})
    [one], _ = found.poll(10)
    assert (one.kind, one.place) == ("insert", "version 1")
    DeltaTable(path).update(new_values={"city": "Bern"}, predicate="id = 2")
    write({"id": 3})
    DeltaTable(path).delete("id = 3")
    lines, note = found.poll(10)
    kinds = [(each.kind, each.values["id"], each.place) for each in lines]
    assert (kinds, note) == (
        [
            ("update", 2, "version 2"),
            ("insert", 3, "version 3"),
            ("delete", 3, "version 4"),
        ],
        "",
    )
    assert found.poll(10) == ([], "")
    line = lines[0]
    assert line.at is not None
    assert abs(line.at - dt.datetime.now(dt.timezone.utc).timestamp()) < 60
    assert json.loads(line.text) == {"id": 2, "first_name": "***", "city": "Bern"}
    DeltaTable(path).alter.set_table_properties({"delta.enableChangeDataFeed": "false"})
    assert found.poll(10) == ([], "")
    DeltaTable(path).delete("id = 1")
    lines, note = found.poll(10)
    assert lines == []
    assert "Version 6 rewrites files" in note


def test_of_a_large_version_the_first_rows_are_read(quiet: QuietLake) -> None:
    found = source(quiet, "silver.users_state", shows_all=True)
    quiet.keep("users", [{"id": n, "first_name": f"A{n}"} for n in range(5000)], NOW)
    lines, note = found.poll(100)
    assert len(lines) == 100
    assert lines[0].values["first_name"].startswith("A")
    assert note == "Up to version 2, more rows were changed."


def test_a_table_that_is_too_fast_is_followed_at_its_end(quiet: QuietLake) -> None:
    found = source(quiet, "silver.users_state")
    for number in range(MOST_VERSIONS + 5):
        quiet.keep("users", [{"id": number}], NOW)
    lines, note = found.poll(100)
    assert [each.values["id"] for each in lines] == [*range(5, MOST_VERSIONS + 5)]
    assert "Older versions were skipped" in note


def test_messages_of_bronze_are_shown_as_messages(quiet: QuietLake) -> None:
    found = source(quiet, "bronze.users")
    payload = b'{"id": 5, "firstName": "Ann"}'
    quiet.land("users", [payload, b"<a>", b""], NOW, key="5")
    lines, _ = found.poll(10)
    texts = {each.text for each in lines}
    assert texts == {'{"id": 5, "firstName": "***"}', HIDDEN, ""}
    assert {each.key for each in lines} == {"5"}


def test_versions_that_only_move_rows_or_hide_them_by_vectors_are_not_guessed(
    quiet: QuietLake,
) -> None:
    found = source(quiet, "silver.users_state")
    path = quiet.lake.tables("silver")["users_state"].path
    quiet.keep("users", [{"id": 2}], NOW)
    assert len(found.poll(10)[0]) == 1
    DeltaTable(path).optimize.compact()
    assert found.poll(10) == ([], "")
    log = Path(path) / "_delta_log"
    entry = (log / "00000000000000000003.json").read_text().splitlines()
    add = next(json.loads(each)["add"] for each in entry if "add" in json.loads(each))
    vector = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    actions = [
        {"remove": {"path": add["path"], "dataChange": True, "deletionTimestamp": 0}},
        {"add": {**add, "dataChange": True, "deletionVector": vector}},
    ]
    (log / "00000000000000000004.json").write_text("\n".join(map(json.dumps, actions)))
    lines, note = found.poll(10)
    assert lines == []
    assert "Version 4 deletes rows by a vector" in note
