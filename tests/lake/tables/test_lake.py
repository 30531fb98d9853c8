"""Tests the handles of a lake and its tables, in a folder and in a bucket."""

import threading
import time

import pytest
from live_shop import until
from pyspark.sql import SparkSession

from lake.settings.settings import LakeSettings
from lake.tables.lake import Lake
from lake.tables.spec import TableSpec
from pulsar_spark.schema import Column

TABLE = TableSpec("silver", "some", "A table", (Column("id", "bigint", "the key"),))
OTHER = TableSpec("bronze", "other", "A table", TABLE.columns)


@pytest.fixture(params=["settings", "bucket"])
def place(spark: SparkSession, request: pytest.FixtureRequest) -> LakeSettings:
    """Settings of a lake that does not exist yet. A table's schema is made by Spark."""
    found: LakeSettings = request.getfixturevalue(request.param)
    return found


def fill(lake: Lake, *ids: int) -> None:
    """Create the table, with a commit for each id."""
    table = lake.table(TABLE)
    table.create()
    for number in ids:
        table.arrow.append([{"id": number}])


def ids(lake: Lake) -> list[int]:
    return sorted(lake.table(TABLE).arrow.column("id").to_pylist())


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5])
def test_a_handle_notices_that_its_table_was_deleted_and_created_anew(
    place: LakeSettings, count: int
) -> None:
    lake, elsewhere = Lake(place), Lake(place)
    fill(elsewhere, 1, 2)
    assert ids(lake) == [1, 2]
    elsewhere.named("silver", "some").delete()
    second = int(time.time())
    until(lambda: int(time.time()) > second, "the next second, because S3 counts in seconds")
    fill(elsewhere, *range(10, 10 + count))
    assert ids(lake) == [*range(10, 10 + count)]
    fill(elsewhere, 77)
    assert ids(lake) == [*range(10, 10 + count), 77]


def test_a_handle_stays_where_it_is_until_the_table_is_asked_for_again(place: LakeSettings) -> None:
    lake, elsewhere = Lake(place), Lake(place)
    fill(elsewhere, 1)
    opened = lake.table(TABLE).arrow
    fill(elsewhere, 2)
    assert (opened.version, opened.count_rows()) == (1, 1)
    assert lake.table(TABLE).arrow is opened
    assert (opened.version, opened.count_rows()) == (2, 2)
    assert lake.table(TABLE).arrow_at(1).count_rows() == 1


def test_threads_do_not_share_the_handles_of_tables(place: LakeSettings) -> None:
    lake = Lake(place)
    fill(lake, 1)
    found = [lake.table(TABLE)]
    thread = threading.Thread(target=lambda: found.append(lake.table(TABLE)))
    thread.start()
    thread.join()
    assert found[0] is lake.table(TABLE)
    assert found[1] is not found[0]


def test_a_second_lake_shares_some_tables_and_has_the_others_in_a_folder_of_the_first(
    place: LakeSettings,
) -> None:
    lake = Lake(place)
    side = lake.beside("_side", lambda table: table == OTHER)
    assert side.table(OTHER) is lake.table(OTHER)
    fill(lake, 1)
    fill(side, 2)
    assert (ids(lake), ids(side)) == ([1], [2])
    assert side.table(TABLE).path == f"{place.tables}/_side/silver/some"
    assert side.settings.checkpoints_dir.is_relative_to(place.lake_dir / "_side")
    assert [*side.tables("silver")] == [*lake.tables("silver")] == ["some"]
    side.table(TABLE).delete()
    assert (side.tables("silver"), ids(lake)) == ({}, [1])


def test_a_table_that_does_not_exist_can_be_asked_for(place: LakeSettings) -> None:
    table = Lake(place).table(TABLE)
    assert (table.exists(), table.full_name) == (False, "silver.some")
    fill(Lake(place), 1)
    assert (table.exists(), table.newest_version(), table.files().rows) == (True, 1, 1)
