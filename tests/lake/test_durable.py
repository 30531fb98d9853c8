"""Tests that small state files are complete after a kill or power cut, or refused with a remedy."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lake.durable import PRIVATE, delete_durably, move_durably, write_durably
from lake.settings.settings import LakeSettings, load_settings
from lake.streams.checkpoint import (
    IDENTITY,
    UNFINISHED,
    checkpoint_id,
    claim,
    query_id,
)
from lake.streams.consistency import disagreements
from lake.streams.given_up import GIVEN_UP, given_up
from lake.streams.rewind import BEGUN, Place
from lake.tables.lake import Lake
from lakehouse.operate.savepoints import savepoints
from lakehouse.runtime.broker import left_over_broker
from pulsar_spark.errors import CheckpointError, LakehouseError

ROOT = Path(__file__).resolve().parents[2]
QUERY = "bronze.orders"
TORN = ("", "\0\0\0", '{"checkpoint": "a')
# Files that may write without `write_durably`, and why.
BY_HAND = {
    "lake/tables/checksums.py": "Delta ignores a torn checksum, and there is one for each commit",
    "lake/tables/java_source.py": "compiled again at each start",
    "lake/tables/storage.py": "a copy of a data file that cannot be linked",
    "lakehouse/operate/project_files.py": "files of a project, copied again if a copy was killed",
    "lakehouse/operate/restore.py": "a whole lake, whose files are synced, gets its place",
    "lakehouse/init.py": "a new project, which is moved to its place when it is whole",
    "lakehouse/runtime/broker.py": "the broker's configuration, written at each start",
    "lakehouse/runtime/jars.py": "verified by SHA-256 whenever it is fetched",
    "lakehouse/sql/guard.py": "a key store of this process, in its private folder",
}


def folder_of(settings: LakeSettings) -> Path:
    folder = Path(settings.checkpoint_path(QUERY))
    folder.mkdir(parents=True)
    return folder


def test_the_content_is_synced_before_the_name_and_the_name_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, str]] = []
    sync, replace = os.fsync, os.replace

    def noted_sync(opened: int) -> None:
        path = Path(f"/proc/self/fd/{opened}").resolve()
        told.append(("sync", path.name if path != tmp_path else "the folder"))
        assert path == tmp_path or path.read_text() == "new", "synced before all was written"
        sync(opened)

    def noted_replace(source: Path, target: Path) -> None:
        told.append(("replace", target.name))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_replace)
    file = tmp_path / "state"
    write_durably(file, "new", mode=PRIVATE)
    [draft] = [name for what, name in told if what == "sync" and name != "the folder"]
    assert draft != "state"
    assert told == [("sync", draft), ("replace", "state"), ("sync", "the folder")]
    assert file.stat().st_mode & 0o777 == PRIVATE
    told.clear()
    delete_durably(file)
    assert told == [("sync", "the folder")]
    told.clear()
    (tmp_path / "made").write_text("new")
    move_durably(tmp_path / "made", file)
    assert told == [("sync", "made"), ("replace", "state"), ("sync", "the folder")]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "state"
    write_durably(file, "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            write_durably(file, "new")
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"state": "old"}
    (tmp_path / ".state.1234.tmp").write_text("of a writer that was killed")
    delete_durably(file)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", TORN)
@pytest.mark.parametrize(
    ("name", "read"),
    [
        (IDENTITY, lambda settings, _: claim(settings, QUERY)),
        (IDENTITY, lambda settings, _: checkpoint_id(settings, QUERY)),
        ("metadata", lambda _, folder: query_id(folder)),
        (BEGUN, lambda _, folder: Place.begun(folder)),
    ],
)
def test_a_torn_checkpoint_file_is_refused_with_a_remedy(
    tmp_path: Path,
    name: str,
    read: Callable[[LakeSettings, Path], object],
    content: str,
) -> None:
    settings = load_settings(home=tmp_path)
    folder = folder_of(settings)
    (folder / name).write_text(content)
    for _ in range(2):  # the first refusal must not hold the lock
        with pytest.raises(CheckpointError, match=rf"{name} is empty or torn.*lakehouse reset"):
            read(settings, folder)


@pytest.mark.parametrize("content", TORN)
def test_doctor_reports_a_torn_file_and_that_the_reason_in_a_torn_note_is_lost(
    tmp_path: Path, content: str
) -> None:
    settings = load_settings(home=tmp_path)
    folder = folder_of(settings)
    (folder / IDENTITY).write_text(content)
    (folder / GIVEN_UP).write_text(content)
    [(what, remedy)] = disagreements(Lake(settings), QUERY, [])
    assert what == f"{folder / IDENTITY} is empty or torn, perhaps by a power cut."
    assert "lakehouse reset" in remedy
    stopped = given_up(settings, QUERY)
    assert stopped is not None
    assert "The log says why" in stopped.reason


@pytest.mark.parametrize("content", ["", "\0\0"])
def test_a_torn_note_of_an_interrupted_command_keeps_streams_from_starting(
    tmp_path: Path, content: str
) -> None:
    settings = load_settings(home=tmp_path)
    note = folder_of(settings) / UNFINISHED
    note.write_text(content)
    with pytest.raises(CheckpointError, match="Run the last such command .*forget, replay"):
        claim(settings, QUERY)
    again = claim(settings, QUERY, "lakehouse forget")
    again.expect(None)
    again.release()
    claim(settings, QUERY).release()


@pytest.mark.parametrize("content", TORN)
def test_torn_files_beside_the_checkpoints_are_refused_with_a_remedy(
    tmp_path: Path, content: str
) -> None:
    settings = load_settings(home=tmp_path)
    for file, read, says in (
        (settings.lake_dir / "_savepoints" / "then.json", savepoints, "savepoint create then"),
        (settings.home_dir / "run" / "broker.json", left_over_broker, "delete the file"),
    ):
        file.parent.mkdir(parents=True)
        file.write_text(content)
        with pytest.raises(LakehouseError, match=rf"{file.name} is empty or torn.*{says}"):
            read(settings)


def test_no_other_code_writes_state_files() -> None:
    writes = re.compile(r"\.write_(text|bytes)\(|os\.(replace|rename)\(|draft\.(replace|rename)\(")
    found = set()
    for package in ("pulsar_spark", "lake", "bronze", "silver", "gold", "lakehouse", "shop"):
        for file in (ROOT / package).rglob("*.py"):
            if writes.search(file.read_text()):
                found.add(str(file.relative_to(ROOT)))
    assert found - {"lake/durable.py"} == BY_HAND.keys()
