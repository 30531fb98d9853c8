"""Tests what is added to the plans of an unfinished batch before its query starts."""

import json
from pathlib import Path

import pytest

from lake.settings.settings import load_settings
from lake.streams.checkpoint import Checkpoint, claim
from lake.streams.restart import ASKED_FOR, PARTITIONS, complete_plans

NAMED = 'orders:{"ledger":1}\nusers:-'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """A checkpoint that has planned the batches 1 to 3, and finished the first two."""
    found = claim(load_settings(home=tmp_path), "silver")
    for log, batches in (("offsets", "123"), ("commits", "12")):
        folder = Path(found.path) / log
        folder.mkdir()
        for batch in batches:
            (folder / batch).write_text(f'v1\n{{"conf":{{"spark.x":"{batch}"}}}}\n{NAMED}')
    return found


def plan(checkpoint: Checkpoint, batch: int) -> tuple[dict[str, str], str]:
    version, metadata, rest = (
        (Path(checkpoint.path) / "offsets" / str(batch)).read_text().split("\n", 2)
    )
    assert version == "v1"
    conf: dict[str, str] = json.loads(metadata)["conf"]
    return conf, rest


def test_the_plans_of_the_unfinished_batch_and_the_one_before_get_the_number(
    checkpoint: Checkpoint,
) -> None:
    checksum = Path(checkpoint.path) / "offsets" / ".3.crc"
    checksum.write_text("of the old content")
    for _ in range(2):
        complete_plans(checkpoint)
        assert plan(checkpoint, 1) == ({"spark.x": "1"}, NAMED)
        assert plan(checkpoint, 2) == ({"spark.x": "2", ASKED_FOR: PARTITIONS}, NAMED)
        assert plan(checkpoint, 3) == ({"spark.x": "3", ASKED_FOR: PARTITIONS}, NAMED)
    assert not checksum.exists()


def test_nothing_changes_if_all_batches_are_finished(checkpoint: Checkpoint) -> None:
    (Path(checkpoint.path) / "commits" / "3").touch()
    complete_plans(checkpoint)
    assert plan(checkpoint, 3) == ({"spark.x": "3"}, NAMED)


def test_the_first_batch_may_be_unfinished(checkpoint: Checkpoint) -> None:
    for name in ("commits/1", "commits/2", "offsets/2", "offsets/3"):
        (Path(checkpoint.path) / name).unlink()
    complete_plans(checkpoint)
    assert plan(checkpoint, 1)[0] == {"spark.x": "1", ASKED_FOR: PARTITIONS}
