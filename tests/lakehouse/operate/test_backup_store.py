"""Tests that a backup is valid however its writer was killed, and that damage is noticed."""

import contextlib
import datetime as dt
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from lake.tables.storage import local_file
from lakehouse.operate.backup_store import LAYOUT, Backup, BackupStore, Stored, size_of
from pulsar_spark.errors import LakehouseError, SettingsError

WHEN = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)


class Killed(BaseException):
    pass


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    for name, content in {"a": "one", "b": "two", "c": "one", "empty": ""}.items():
        (folder / name).write_text(content)
    return folder


def backed_up(store: BackupStore, source: Path) -> tuple[Backup, int]:
    """Back up all files of a folder, and a text; returns the list and the number of new objects."""
    with store.alone():
        former = store.read()
        known = former.files if former else {}
        files, new = {}, 0
        for file in sorted(source.iterdir()):
            files[file.name], is_new = store.put(local_file(file), known.get(file.name))
            new += is_new
        files["text"], is_new = store.put_text("three")
        backup = Backup(
            silver_batch=len(files),
            versions={},
            places={},
            layout=LAYOUT,
            release="1",
            id=store.id,
            lake="l",
            readers={},
            partitions=[],
            created_at=WHEN,
            files=files,
            embedded_broker=False,
            moved={},
            secrets={},
            variables=[],
        )
        store.write(backup)
    return backup, new + is_new


def restored(store: BackupStore, folder: Path) -> dict[str, str]:
    backup = store.read()
    assert backup is not None
    for name, stored in backup.files.items():
        store.copy(name, stored, folder / name)
    return {file.name: file.read_text() for file in folder.iterdir()}


def content(source: Path) -> dict[str, str]:
    return {**{file.name: file.read_text() for file in source.iterdir()}, "text": "three"}


def objects(store: BackupStore) -> list[Path]:
    return [file for file in (store.folder / "objects").rglob("*") if file.is_file()]


def test_only_new_content_is_copied_and_old_content_goes(source: Path, tmp_path: Path) -> None:
    store = BackupStore(tmp_path / "backup")
    first, new = backed_up(store, source)
    assert new == 4, "equal content is stored once"
    assert size_of(first.files) == len("onetwothree")
    assert restored(store, tmp_path / "1") == content(source)
    assert (tmp_path / "1" / "a").stat().st_mtime_ns == (source / "a").stat().st_mtime_ns
    assert backed_up(store, source)[1] == 0
    (source / "b").write_text("four")
    (source / "d").write_text("five")
    assert backed_up(store, source)[1] == 2
    assert restored(store, tmp_path / "2") == content(source)
    assert len(objects(store)) == 5, "the former content of b is deleted"


def test_a_change_of_the_same_size_is_noticed_by_its_time(source: Path, tmp_path: Path) -> None:
    store = BackupStore(tmp_path / "backup")
    backed_up(store, source)
    (source / "a").write_text("ONE")
    backed_up(store, source)
    assert restored(store, tmp_path / "out")["a"] == "ONE"


def test_everything_in_a_backup_is_private(source: Path, tmp_path: Path) -> None:
    store = BackupStore(tmp_path / "backup")
    os.umask(0o022)
    backed_up(store, source)
    for place in store.folder.rglob("*"):
        mode = stat.S_IMODE(place.stat().st_mode)
        assert not mode & 0o077 or place.name == ".lock", f"{place} has mode {mode:o}"


def kills(monkeypatch: pytest.MonkeyPatch, at: int) -> Callable[[], int]:
    """Stop the process before its n-th change of the disk; returns the number of changes."""
    count = 0
    for module, name in ((os, "replace"), (Path, "unlink"), (os, "fsync"), (os, "open")):
        monkeypatch.setattr(module, name, counted(getattr(module, name), lambda: step()))

    def step() -> None:
        nonlocal count
        count += 1
        if count > at:  # a dead process writes nothing more, in no `finally` either
            raise Killed

    return lambda: count


def counted(real: Callable[..., object], step: Callable[[], None]) -> Callable[..., object]:
    def call(*args: object, **more: object) -> object:
        step()
        return real(*args, **more)

    return call


def test_a_backup_that_is_killed_at_any_write_leaves_the_former_one(
    source: Path, tmp_path: Path
) -> None:
    base = BackupStore(tmp_path / "base")
    backed_up(base, source)
    old = content(source)
    (source / "b").write_text("four")
    (source / "d").write_text("five")
    new = content(source)
    outcomes = set()
    for at, folder in killed_copies(base.folder, tmp_path, lambda s: backed_up(s, source)):
        store = BackupStore(folder)
        found = restored(store, tmp_path / f"killed-{at}")
        assert found in (old, new), f"killed before write {at}"
        outcomes.add(found == new)
        backed_up(store, source)
        assert restored(store, tmp_path / f"again-{at}") == new
        listed = store.read()
        assert listed is not None
        named = {stored.sha256 for stored in listed.files.values()}
        assert {file.name for file in objects(store)} == named
    assert outcomes == {True, False}


def test_a_first_backup_that_is_killed_is_no_backup(source: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for at, folder in killed_copies(empty, tmp_path, lambda s: backed_up(s, source)):
        store = BackupStore(folder)
        if store.read() is None:
            backed_up(store, source)
        assert restored(store, tmp_path / f"again-{at}") == content(source)


def killed_copies(
    base: Path, tmp_path: Path, run: Callable[[BackupStore], object]
) -> Iterator[tuple[int, Path]]:
    for at in range(1000):
        folder = tmp_path / f"copy-{base.name}-{at}"
        shutil.copytree(base, folder)
        with pytest.MonkeyPatch.context() as patch:
            count = kills(patch, at)
            with contextlib.suppress(Killed):
                run(BackupStore(folder))
            ended = count() <= at
        yield at, folder
        if ended:
            assert at > 20
            return
    pytest.fail("it never ends")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda file: file.unlink(), "is missing"),
        (lambda file: file.write_text("oNe"), "is damaged"),
        (lambda file: file.write_text(""), "is damaged"),
    ],
)
def test_missing_and_damaged_content_is_named(
    source: Path, tmp_path: Path, damage: Callable[[Path], None], said: str
) -> None:
    store = BackupStore(tmp_path / "backup")
    backup, _ = backed_up(store, source)
    stored = backup.files["a"]
    damage(store.folder / "objects" / stored.sha256[:2] / stored.sha256)
    with pytest.raises(LakehouseError, match=f"the content of a {said}.*Restore from another"):
        store.copy("a", stored, tmp_path / "a")
    with pytest.raises(LakehouseError, match=said):
        store.text("a", stored)


def test_content_of_another_size_is_stored_again(source: Path, tmp_path: Path) -> None:
    store = BackupStore(tmp_path / "backup")
    backup, _ = backed_up(store, source)
    stored = backup.files["b"]
    (store.folder / "objects" / stored.sha256[:2] / stored.sha256).write_text("")
    assert backed_up(store, source)[1] == 1
    assert restored(store, tmp_path / "out") == content(source)


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "cat.jpg").touch()
    with (
        pytest.raises(SettingsError, match=r"holds other files, such as cat.jpg"),
        BackupStore(folder).alone(),
    ):
        pass
    with (
        pytest.raises(SettingsError, match="is a file, so no backup can be made there"),
        BackupStore(folder / "cat.jpg").alone(),
    ):
        pass
    assert [file.name for file in folder.iterdir()] == ["cat.jpg"]


def test_two_backups_into_one_folder_do_not_mix(tmp_path: Path) -> None:
    store = BackupStore(tmp_path)
    with (
        FileLock(tmp_path / ".lock"),
        pytest.raises(SettingsError, match="Another process is writing a backup"),
        store.alone(),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty or torn"),
        ("{", "is empty or torn"),
        ("{}", "is not the list of a backup"),
        (json.dumps({"layout": 99, "release": "7.3.0"}), r"written by release 7.3.0 in a layout"),
    ],
)
def test_a_damaged_or_newer_list_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "backup.json").write_text(text)
    with pytest.raises(LakehouseError, match=said):
        BackupStore(tmp_path).read()


def test_stored_sizes_count_equal_content_once() -> None:
    same = Stored(sha256="a", size=3)
    assert size_of({"x": same, "y": same, "z": Stored(sha256="b", size=4)}) == 7
