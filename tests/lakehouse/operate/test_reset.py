"""Tests that a reset removes the lake's objects from a bucket and no others."""

import pytest
from deltalake import write_deltalake
from pyarrow import table
from s3_server import S3Server

from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import claim
from lake.tables.lake import Lake
from lake.tables.storage import is_table, storage_options
from lake.topics.topic_file import load_topics
from lakehouse.operate.reset import reset, what_goes
from pulsar_spark.errors import CheckpointError


def test_a_reset_empties_the_layers_and_leaves_other_objects(
    bucket: LakeSettings, s3: S3Server
) -> None:
    places = [bucket.table_path(layer, "one") for layer in ("bronze", "silver", "gold")]
    for place in places:
        write_deltalake(place, table({"n": [1]}), storage_options=storage_options(bucket))
    neighbour = s3.folder / bucket.tables.rpartition("/")[2] / "of_others"
    neighbour.touch()
    topics = load_topics(bucket.topics)
    running = claim(bucket, "silver")
    with pytest.raises(CheckpointError, match="already runs in another process"):
        reset(Lake(bucket, topics))
    assert all(is_table(bucket, place) for place in places)
    running.release()
    layers = [place.removesuffix("/one") for place in places]
    assert what_goes(bucket) == [*layers, str(bucket.lake_dir)]
    reset(Lake(bucket, topics))
    assert what_goes(bucket) == []
    assert not any(is_table(bucket, place) for place in places)
    assert neighbour.exists()
