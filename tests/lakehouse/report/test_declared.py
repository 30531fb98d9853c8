"""Tests the parts of the report that exposures declare. `test_report.py` has those of the shop."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from gold.dbt.manifest import Manifest
from lake.settings.settings import load_settings
from lake.tables.lake import Lake
from lakehouse.report.blocks import Block, Figure, Notice, Table
from lakehouse.report.declared import Declared
from lakehouse.report.snapshot import Snapshot
from pulsar_spark.errors import SettingsError

ROWS = {"site": ["north", "south"], "total": [3, 4], "share": [0.25, 0.75], "is_new": [True, None]}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    found = Lake(load_settings(home=tmp_path))
    path = Path(found.settings.table_path("silver", "sums"))
    path.mkdir(parents=True)
    write_deltalake(path, pa.table(ROWS))
    return found


def declared(folder: Path, **metas: Any) -> Declared:
    exposures = {
        f"exposure.x.{name}": {
            "name": name,
            "label": None,
            "original_file_path": "models/_report.yml",
            "config": {"meta": meta},
        }
        for name, meta in metas.items()
    }
    (folder / "manifest.json").write_text(json.dumps({"exposures": exposures}))
    return Declared(Manifest(folder))


def blocks(lake: Lake, found: Declared) -> list[Block]:
    return [block for section in found.sections(Snapshot(lake)) for block in section.blocks]


def test_parts_are_grouped_by_their_section(lake: Lake, tmp_path: Path) -> None:
    bars = {"show": "bars", "sql": "select site, total from silver.sums order by 2 desc"}
    found = declared(
        tmp_path,
        by_site={"report": {**bars, "section": "All of it"}},
        other={"report": {**bars, "section": "Other"}},
        again={"report": {**bars, "section": "All of it"}},
        whole={"report": {"show": "number", "sql": "select sum(total) from silver.sums"}},
        nothing={},
        printed={"demo": "select 1"},
    )
    sections = found.sections(Snapshot(lake))
    assert [(each.name, each.title) for each in sections] == [
        ("all-of-it", "All of it"),
        ("other", "Other"),
    ]
    assert [getattr(block, "name", "") for block in sections[0].blocks] == ["by-site", "again"]
    [figure, *_] = sections[0].blocks
    assert isinstance(figure, Figure)
    assert figure.title == "by site"
    [values] = figure.spec["datasets"].values()
    assert values == [{"name": "south", "value": 4.0}, {"name": "north", "value": 3.0}]
    assert [(tile.name, tile.value) for tile in found.tiles(Snapshot(lake))] == [("whole", 7)]
    assert found.queries == {"printed": "select 1"}


def test_columns_are_written_by_their_types_or_as_declared(lake: Lake, tmp_path: Path) -> None:
    sql = "select site, total, share, is_new from silver.sums order by 1"
    given = {"section": "S", "show": "table", "sql": sql, "columns": {"share": "percent"}}
    [table] = blocks(lake, declared(tmp_path, sums={"report": given}))
    assert isinstance(table, Table)
    assert table.columns == {
        "site": "text",
        "total": "number",
        "share": "percent",
        "is_new": "flag",
    }
    assert table.rows == [("north", 3, 0.25, True), ("south", 4, 0.75, None)]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"show": "table", "sql": "select 1 as a", "columns": {"b": "text"}}, "names b, which the"),
        ({"show": "bars", "sql": "select total from silver.sums"}, "bars need two columns"),
        ({"show": "bars", "sql": "select 1, 2 where false"}, "no data yet"),
        ({"show": "table", "sql": "selec 1"}, "the query is refused"),
        ({"show": "over_time", "sql": "select 1 as b"}, "the query is refused"),
    ],
)
def test_a_part_that_cannot_be_drawn_says_why(
    lake: Lake, tmp_path: Path, given: dict[str, Any], says: str
) -> None:
    [notice] = blocks(lake, declared(tmp_path, sums={"report": {**given, "section": "S"}}))
    assert isinstance(notice, Notice)
    assert notice.text.startswith("sums: ")
    assert says in notice.text


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"show": "number"}, "meta.report.sql: Field required"),
        ({"show": "pie", "sql": "select 1"}, "meta.report.show: Input should be 'number', 'bars'"),
        ({"show": "number", "sql": "select 1", "colour": "red"}, "meta.report.colour: unknown key"),
        ({"show": "bars", "sql": "select 1"}, "'bars' needs a 'section'"),
        ("select 1", "meta.report: Input should be a valid dictionary"),
    ],
)
def test_a_wrong_declaration_is_refused_with_its_place(
    tmp_path: Path, given: object, says: str
) -> None:
    with pytest.raises(SettingsError) as error:
        declared(tmp_path, sums={"report": given})
    assert str(error.value).startswith("models/_report.yml: exposure 'sums': meta.report")
    assert says in str(error.value)
