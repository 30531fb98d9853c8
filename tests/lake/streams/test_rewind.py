"""Tests that a checkpoint is moved to another place in its streams."""

import json
from pathlib import Path

import pytest
from deltalake import CommitProperties, Transaction, write_deltalake
from landed_lake import QUERY, landed_lake
from pyarrow import table

from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import claim, query_id
from lake.streams.rewind import Place, move
from lake.tables.lake import Lake
from lake.tables.spec import bronze_table
from pulsar_spark.errors import CheckpointError


@pytest.fixture
def landed(tmp_path: Path) -> LakeSettings:
    return landed_lake(tmp_path)


def files(settings: LakeSettings, log: str) -> dict[str, str]:
    folder = Path(settings.checkpoint_path(QUERY)) / log
    return {file.name: file.read_text() for file in folder.iterdir()}


def test_a_moved_query_has_the_place_and_new_ids(landed: LakeSettings) -> None:
    checkpoint = claim(landed, QUERY)
    before = query_id(checkpoint.path), checkpoint.app_id(bronze_table("o"))
    place = Place(7, 'v1\n{}\n{"a":5}')
    move(checkpoint, place)
    assert files(landed, "offsets") == {"6": place.offsets, "7": place.offsets}
    assert {*files(landed, "commits")} == {"6", "7"}
    after = query_id(checkpoint.path), checkpoint.app_id(bronze_table("o"))
    assert not {*before} & {*after}
    assert Place.newest(landed, QUERY) == place
    assert place.ends == {"0": {"a": 5}}


def test_a_query_that_is_moved_to_its_beginning_has_no_batches(landed: LakeSettings) -> None:
    checkpoint = claim(landed, QUERY)
    move(checkpoint, None)
    assert (files(landed, "offsets"), files(landed, "commits")) == ({}, {})
    assert Place.newest(landed, QUERY) is None
    assert Place.begun(Path(checkpoint.path)) is None


def test_the_place_of_a_table_is_that_of_the_last_batch_in_it(landed: LakeSettings) -> None:
    lake, spec = Lake(landed), bronze_table("o")
    assert Place.of_table(lake, spec, 0) == Place(3, "v1\n{}\n{}")
    later = CommitProperties(app_transactions=[Transaction("q", 4)])
    rows = table({"n": [1]})
    write_deltalake(lake.table(spec).path, rows, mode="append", commit_properties=later)
    with pytest.raises(CheckpointError, match="bronze.o after batch 4, because silver is too far"):
        Place.of_table(lake, spec, 1)
    move(claim(landed, QUERY), Place(2, 'v1\n{}\n{"a":0}'))
    assert Place.of_table(lake, spec, 1) == Place(2, 'v1\n{}\n{"a":0}'), "where it was moved"


def test_a_place_can_have_other_offsets() -> None:
    place = Place(3, 'v1\n{"x":1}\norders:{"a":1}\nusers:-').at({"users": '{"b":2}'})
    assert place.offsets == 'v1\n{"x":1}\nusers:{"b":2}'
    assert json.loads(json.dumps(place.ends)) == {"users": {"b": 2}}
