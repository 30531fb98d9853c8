"""Tests the jar lock, and that only locked jars are used."""

import hashlib
import re
from pathlib import Path

import pytest

from lake.settings.settings import load_settings
from lakehouse.runtime.jars import (
    COMPLETE,
    Jar,
    JarError,
    fetch_jars,
    jar_folder,
    place_verified,
    read_lock,
)


@pytest.mark.parametrize(("group", "least"), [("spark", 2), ("pulsar", 300)])
def test_the_lock_pins_each_jar_to_a_version_and_a_checksum(group: str, least: int) -> None:
    jars = read_lock(group)
    assert len(jars) >= least
    assert len({jar.file_name for jar in jars}) == len(jars)
    for jar in jars:
        assert re.fullmatch(r"[0-9a-f]{64}", jar.sha256), jar
        assert "SNAPSHOT" not in jar.version


def test_the_lock_has_the_versions_that_were_tested_together() -> None:
    versions = {
        jar.artifact: jar.version for group in ("spark", "pulsar") for jar in read_lock(group)
    }
    assert versions["delta-spark_4.2_2.13"] == "4.4.0"
    assert versions["pulsar-broker"] == "4.2.4"


def test_a_file_that_differs_from_the_lock_is_refused_and_deleted(tmp_path: Path) -> None:
    fetched = tmp_path / "fetched"
    fetched.write_bytes(b"something else")
    jar = Jar("org.example", "thing", "1.0", None, hashlib.sha256(b"the thing").hexdigest())
    with pytest.raises(JarError, match=r"thing-1\.0\.jar has the SHA-256 .*LAKEHOUSE_IVY_SETTINGS"):
        place_verified(jar, fetched, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_matches_the_lock_gets_its_maven_name(tmp_path: Path) -> None:
    fetched = tmp_path / "fetched"
    fetched.write_bytes(b"the thing")
    digest = hashlib.sha256(b"the thing").hexdigest()
    place_verified(Jar("org.example", "thing", "1.0", "linux", digest), fetched, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["thing-1.0-linux.jar"]


def test_a_complete_folder_is_reused_and_another_lock_has_another_folder(tmp_path: Path) -> None:
    settings = load_settings(cache=tmp_path)
    jars = read_lock("spark")
    folder = jar_folder(settings, "spark", jars)
    folder.mkdir(parents=True)
    (folder / COMPLETE).touch()
    assert fetch_jars(settings, "spark") == folder
    assert jar_folder(settings, "spark", jars[:1]) != folder
