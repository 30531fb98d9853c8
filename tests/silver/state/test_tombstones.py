"""Tests that old tombstones are collected, and that the deleted rows do not come back."""

import datetime as dt
import os
from pathlib import Path

import pytest
from messages import json_message, message
from model import Message, Position
from pyspark.sql import SparkSession
from silver_lake import PUBLISHED, SilverLake
from topic import declared

from lake.tables.lake import Lake
from silver.maintenance import Maintenance
from silver.state.tombstones import collect_tombstones

BY_POSITION = """
[topics.people]
kind = "changelog"
key = ["id"]
partitions = 2
tombstones_days = 1
[topics.people.fields]
id = "int"
name = "string"
"""
BY_SEQUENCE = """
[topics.people]
kind = "changelog"
key = ["id"]
sequence = ["lsn"]
delete = { field = "op", equals = "d" }
tombstones_days = 1
[topics.people.fields]
id = "int"
lsn = "int"
op = { type = "string", required = false }
name = { type = "string", required = false }
"""

TOWN = 'town = { type = "string", required = false }'


def person(entry: int, key: int, partition: int = 0) -> Message:
    sent = json_message("people", entry, id=key, name=f"n{entry}")
    return sent._replace(position=Position(1, entry, 0, partition))


def delete(entry: int, key: int) -> Message:
    return message("people", entry, key, None)


def people(lake: SilverLake) -> dict[int, int]:
    """Return the entry of each row that is not deleted, by key."""
    rows = lake.rows("people_state", "NOT is_deleted")
    return {row["id"]: row["position"].entry for row in rows}


def dead(lake: SilverLake) -> set[int]:
    rows = lake.rows("people_state", "is_deleted AND mark IS NULL")
    return {row["id"] for row in rows}


def refused(lake: SilverLake) -> set[int]:
    """Return the quarantined entries, and check that their key and payload are unchanged."""
    rows = lake.rows("quarantine")
    assert all("collected tombstone" in row["reason"] for row in rows)
    sent = lake.rows("people", layer="bronze")
    for row in rows:
        [message] = [each for each in sent if each["entry"] == row["position"].entry]
        assert (row["key"], row["payload"]) == (message["key"], message["payload"])
    return {row["position"].entry for row in rows}


def test_a_row_that_is_not_after_a_collected_tombstone_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = SilverLake(spark, tmp_path, declared(tmp_path, BY_POSITION))
    lake.put([person(3, 1), person(4, 2), delete(8, 2), delete(9, 3)])
    lake.refine()
    topic = lake.topics.topics["people"]
    too_early = PUBLISHED + dt.timedelta(hours=23)
    assert collect_tombstones(spark, Lake(lake.settings), topic, too_early) == 0
    assert dead(lake) == {2, 3}

    vacuumed = Path(lake.settings.checkpoint_path("silver")) / "lakehouse.vacuumed"
    os.utime(vacuumed, (0, 0))
    lake.put([person(10, 4)])
    lake.refine()
    assert dead(lake) == set(), "the daily maintenance collects the tombstones"
    assert people(lake) == {1: 3, 4: 10}

    lake.put([person(5, 2), person(2, 1), person(6, 1), person(7, 9, partition=1), delete(1, 7)])
    lake.refine()
    assert refused(lake) == {5}, "only the key whose tombstone was collected"
    assert people(lake) == {1: 6, 4: 10, 9: 7}
    assert dead(lake) == {7}, "a late delete cannot bring a row back"
    lake.put([person(11, 2), person(12, 8)])
    lake.refine()
    assert people(lake) == {1: 6, 2: 11, 4: 10, 8: 12, 9: 7}
    assert (lake.audited().total(), lake.audited("quarantined").total()) == (12, 1)

    later = PUBLISHED + dt.timedelta(days=2)
    assert collect_tombstones(spark, Lake(lake.settings), topic, later) == 1
    marks = lake.rows("people_state", "mark = 'collected'")
    assert [row["position"].entry for row in marks] == [9], "a mark never moves back"


@pytest.mark.nightly
def test_a_batch_that_is_run_again_finds_the_same_tombstones(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 6, if the tombstones expire between the two runs."""
    lake = SilverLake(spark, tmp_path, declared(tmp_path, BY_POSITION))
    lake.put([delete(8, 2)])
    lake.refine()
    lake.put([person(5, 2)])

    def die(*_: object) -> None:
        message = "killed here"
        raise RuntimeError(message)

    with monkeypatch.context() as patch:
        patch.setattr(Maintenance, "after", die)
        with pytest.raises(Exception, match="killed here"):
            lake.refine()
    os.utime(Path(lake.settings.checkpoint_path("silver")) / "lakehouse.vacuumed", (0, 0))
    lake.refine()
    assert (refused(lake), dead(lake)) == (set(), {2})

    lake.put([person(6, 2), person(9, 3)])
    os.utime(Path(lake.settings.checkpoint_path("silver")) / "lakehouse.vacuumed", (0, 0))
    lake.refine()
    assert (refused(lake), dead(lake), people(lake)) == ({6}, set(), {3: 9})


def test_with_a_sequence_a_new_key_that_is_not_after_the_mark_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = SilverLake(spark, tmp_path, declared(tmp_path, BY_SEQUENCE))
    lake.put(
        [
            json_message("people", 1, id=1, lsn=50, name="ada"),
            json_message("people", 2, id=2, lsn=60, op="d"),
        ]
    )
    lake.refine()
    topic = lake.topics.topics["people"]
    assert (
        collect_tombstones(spark, Lake(lake.settings), topic, PUBLISHED + dt.timedelta(days=2)) == 1
    )
    lake.put(
        [
            json_message("people", 3, id=2, lsn=40, name="late"),
            json_message("people", 4, id=3, lsn=59, name="unknown"),
            json_message("people", 5, id=1, lsn=55, name="known"),
            json_message("people", 6, id=4, lsn=61, name="new"),
            json_message("people", 7, id=2, lsn=30, op="d"),
        ]
    )
    lake.refine()
    assert refused(lake) == {3, 4, 7}
    assert people(lake) == {1: 5, 4: 6}


@pytest.mark.nightly
def test_no_partial_update_comes_back_from_before_a_collected_tombstone(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Not even a single field of a recreated key comes back; fields of other keys may be older."""
    text = BY_SEQUENCE.replace("tombstones_days = 1", 'tombstones_days = 1\nupdates = "partial"')
    lake = SilverLake(spark, tmp_path, declared(tmp_path, text + TOWN))
    lake.put(
        [
            json_message("people", 1, id=1, lsn=50, name="ada"),
            json_message("people", 2, id=2, lsn=55, name="gone", town="bath"),
            json_message("people", 3, id=2, lsn=60, op="d"),
        ]
    )
    lake.refine()
    topic = lake.topics.topics["people"]
    assert (
        collect_tombstones(spark, Lake(lake.settings), topic, PUBLISHED + dt.timedelta(days=2)) == 1
    )
    again = json_message("people", 4, id=2, lsn=70, name="back")
    late = json_message("people", 5, id=2, lsn=58, town="york")
    lake.put([again, late])
    lake.refine()
    assert refused(lake) == {5}
    lake.put(
        [
            json_message("people", 6, id=2, lsn=59, town="york"),
            json_message("people", 7, id=1, lsn=40, town="hull"),
            json_message("people", 8, id=2, lsn=65, town="wells"),
            json_message("people", 9, id=3, lsn=20, op="d"),
            again,
        ]
    )
    lake.refine()
    assert refused(lake) == {5, 6, 9}
    rows = lake.rows("people_state", "mark IS NULL")
    assert {row["id"]: (row["name"], row["town"]) for row in rows} == {
        1: ("ada", "hull"),
        2: ("back", "wells"),
    }
