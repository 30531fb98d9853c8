"""Tests that a lake says which format it has, and that an older release refuses a newer one."""

import json
import multiprocessing
import shutil
import tarfile
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path

import pytest

from lake.settings.settings import LakeSettings, load_settings
from lake.tables import format as lake_format
from lake.tables.format import (
    FormatError,
    format_of,
    mark_format,
    release,
    require_known,
    require_known_format,
)
from lakehouse.operate import doctor

RELEASES = Path(__file__).parents[2] / "releases"
OWN = version("orders-lakehouse")
NEWER = {"format": 99, "release": "7.3.0"}


def write(settings: LakeSettings, content: str) -> Path:
    file = settings.lake_dir / "format.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    return file


def test_a_lake_is_marked_once_and_keeps_the_release_that_began_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(home=tmp_path)
    require_known_format(settings)
    assert format_of(settings) is None
    mark_format(settings)
    stored = json.loads((tmp_path / "lake" / "format.json").read_text())
    assert stored == {"format": 1, "release": OWN}
    monkeypatch.setattr(lake_format, "release", lambda: "later")
    mark_format(settings)
    assert format_of(settings) == (1, OWN)


def test_two_processes_mark_a_lake_at_the_same_time(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(mark_format, [settings] * 8))
    assert format_of(settings) == (1, OWN)
    assert {file.name for file in settings.lake_dir.iterdir()} == {
        "format.json",
        ".format.json.lock",
    }


def test_a_newer_lake_is_refused_with_both_releases_and_unchanged(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path)
    file = write(settings, json.dumps(NEWER))
    for refused in (require_known_format, mark_format):
        with pytest.raises(FormatError) as error:
            refused(settings)
        said = f"{error.value.what} {error.value.remedy}"
        for part in (
            str(settings.lake_dir),
            "format 99",
            "release 7.3.0",
            f"release {OWN}",
            "to 1",
        ):
            assert part in said, said
        assert "Install release 7.3.0 or a later one." in said
    assert json.loads(file.read_text()) == NEWER


@pytest.mark.parametrize("content", ["", "\0\0", "[]", "{}", '{"format": "x", "release": "1"}'])
def test_a_torn_note_is_refused_with_a_remedy(tmp_path: Path, content: str) -> None:
    settings = load_settings(home=tmp_path)
    file = write(settings, content)
    with pytest.raises(FormatError, match=r"does not say which format .* Delete the file if") as e:
        require_known_format(settings)
    assert str(file) in str(e.value)
    file.unlink()
    mark_format(settings)
    assert format_of(settings) == (1, OWN)


def test_a_kept_lake_without_a_note_is_format_1(tmp_path: Path) -> None:
    with tarfile.open(RELEASES / "0.1.0.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    for each in ("bronze", "silver"):
        settings = load_settings(home=tmp_path / each)
        (settings.lake_dir / "format.json").unlink(missing_ok=True)
        require_known_format(settings)
        mark_format(settings)
        assert format_of(settings) == (1, OWN)


def test_the_doctor_reports_the_format(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path)
    assert list(doctor.lake_format(settings)) == []
    mark_format(settings)
    [found] = doctor.lake_format(settings)
    assert (found.state, found.found) == ("ok", f"1, first written by release {OWN}")
    write(settings, json.dumps(NEWER))
    [found] = doctor.lake_format(settings)
    assert found.state == "fail"
    assert "format 99" in found.found
    assert "7.3.0" in found.remedy


def test_a_release_without_metadata_still_marks_its_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(_: str) -> str:
        raise lake_format.importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(lake_format.importlib.metadata, "version", absent)
    settings = load_settings(home=tmp_path)
    mark_format(settings)
    assert format_of(settings) == (1, "an unknown release")
    assert release() == "an unknown release"
    with pytest.raises(FormatError, match="This is an unknown release"):
        require_known(lake_format.LakeFormat(2, "9"), "The lake")


def test_the_format_of_a_lake_in_a_bucket(bucket: LakeSettings) -> None:
    require_known_format(bucket)
    mark_format(bucket)
    assert format_of(bucket) == (1, OWN)
    lake_format.write_text(bucket, lake_format.format_file(bucket), json.dumps(NEWER))
    shutil.rmtree(bucket.home_dir)
    with pytest.raises(FormatError, match="format 99"):
        require_known_format(bucket)
