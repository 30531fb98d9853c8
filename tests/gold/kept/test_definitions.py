"""Tests which changes of a model count as a new definition."""

from pathlib import Path
from typing import Any

import pytest

from gold.kept.definitions import FILE, Definitions, definition_of, forget_definitions
from pulsar_spark.errors import LakehouseError

SQL = "select 1 as x"


def model(**config: Any) -> dict[str, Any]:
    given = {"materialized": "kept", "unique_key": "x", "contract": {"enforced": True}, **config}
    columns = {"x": {"data_type": "int", "description": "?"}}
    return {"alias": "m", "config": given, "columns": columns, "compiled_code": SQL}


def test_what_decides_the_rows_is_part_of_the_definition() -> None:
    other = model()
    other["columns"]["x"]["data_type"] = "bigint"
    found = [
        definition_of(model(), SQL),
        definition_of(model(), "select 2 as x"),
        definition_of(model(unique_key=["x", "y"]), SQL),
        definition_of(model(**{"pre-hook": [{"sql": "select 1"}]}), SQL),
        definition_of(other, SQL),
    ]
    assert len({*found}) == len(found)


def test_what_does_not_is_not() -> None:
    other = model(meta={"strict": True}, tags=["x"], access="public", schema="marketing")
    other["columns"]["x"]["description"] = "Another"
    assert definition_of(other, f"\n{SQL}\n\n") == definition_of(model(), SQL)


def test_definitions_are_those_of_one_publication(tmp_path: Path) -> None:
    assert Definitions.read(tmp_path) is None
    not_run = {**model(), "alias": "n", "compiled_code": None}
    Definitions.of("2026-01-31", "a", [model(), not_run]).write(tmp_path)
    known = Definitions.read(tmp_path)
    assert known is not None
    assert (known.publication, known.everywhere, [*known.models]) == ("2026-01-31", "a", ["m"])
    assert known.has(model(), SQL)
    assert not known.has(model(), "select 2")
    assert not known.has(not_run, SQL)
    forget_definitions(tmp_path)
    assert Definitions.read(tmp_path) is None


def test_a_torn_file_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{")
    with pytest.raises(LakehouseError, match="Delete it; the next build of gold then rebuilds"):
        Definitions.read(tmp_path)
