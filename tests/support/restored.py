"""Compares a lake that was restored with the lake that was backed up."""

import pyarrow as pa

from lake.settings.settings import LakeSettings
from lake.tables.lake import Lake
from lake.tables.storage import open_table
from lakehouse.operate.moment import Moment


def table_rows(settings: LakeSettings, table: str, version: int | None = None) -> list[str]:
    """Return the rows of a table as text, in an order of their own."""
    opened = open_table(settings, settings.table_path(*table.split(".")), version)
    return sorted(map(str, pa.table(opened.scan()).to_pylist()))


def assert_same(copy: LakeSettings, lake: LakeSettings, moment: Moment) -> None:
    """Each table of the copy is the version of the moment, and none is missing."""
    there = {
        table.full_name
        for layer in ("bronze", "silver", "gold")
        for table in Lake(copy).tables(layer).values()
    }
    assert there >= moment.versions.keys() > set()
    for table, version in moment.versions.items():
        assert open_table(copy, copy.table_path(*table.split("."))).version() == version
        assert table_rows(copy, table) == table_rows(lake, table, version), table
