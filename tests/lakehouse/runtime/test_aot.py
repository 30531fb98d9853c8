"""Tests which flags Java gets for its ahead-of-time caches, and when a cache is another one."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lake.settings.settings import LakeSettings, load_settings
from lakehouse.runtime import aot
from lakehouse.runtime.aot import TRUST_JARS, aot_flags, cache_file, delete_unused, train_into

NOW = time.time()
DAY = 86_400


@pytest.fixture
def settings(tmp_path: Path) -> LakeSettings:
    return load_settings(cache=tmp_path / "cache")


@pytest.fixture
def jars(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "spark.jar").write_bytes(b"classes")
    return [folder]


@pytest.fixture(autouse=True)
def no_training() -> Iterator[None]:
    yield
    aot._training.clear()  # noqa: SLF001 - the only way back


def use_java(folder: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a Java home that is only asked for its version, and let JAVA_HOME name it."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    (folder / "release").write_text(f'JAVA_VERSION="{version}"\n')
    monkeypatch.setenv("JAVA_HOME", str(folder))
    return folder


def test_a_java_before_25_has_no_cache(
    settings: LakeSettings, jars: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_java(tmp_path / "21", "21.0.8", monkeypatch)
    assert cache_file(settings, "spark", jars, []) is None
    assert aot_flags(None) == TRUST_JARS
    home = use_java(tmp_path / "25", "25.0.2", monkeypatch)
    assert cache_file(settings, "spark", jars, []) is not None
    (home / "release").unlink()  # as in a Java that some program has bundled
    assert cache_file(settings, "spark", jars, []) is None


def test_another_java_jar_or_flag_needs_another_cache(
    settings: LakeSettings, jars: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = use_java(tmp_path / "java", "25.0.2", monkeypatch)
    known = cache_file(settings, "spark", jars, ["-XX:+UseParallelGC"])
    assert cache_file(settings, "spark", jars, ["-XX:+UseParallelGC"]) == known
    found = [known, cache_file(settings, "broker", jars, ["-XX:+UseParallelGC"])]
    found.append(cache_file(settings, "spark", jars, ["-XX:+UseSerialGC"]))
    os.utime(jars[0] / "spark.jar", (1, 1))
    found.append(cache_file(settings, "spark", jars, ["-XX:+UseParallelGC"]))
    (home / "release").write_text('JAVA_VERSION="25.0.3"\n')
    found.append(cache_file(settings, "spark", jars, ["-XX:+UseParallelGC"]))
    assert len({*found}) == len(found) == 5


def test_a_cache_fits_the_copies_that_images_and_volumes_hold(
    settings: LakeSettings, jars: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_java(tmp_path / "java", "25.0.2", monkeypatch)
    known = cache_file(settings, "spark", jars, [])
    jar = jars[0] / "spark.jar"
    os.utime(jar, (int(jar.stat().st_mtime), int(jar.stat().st_mtime)))
    os.utime(jars[0], (1, 1))
    assert cache_file(settings, "spark", jars, []) == known


def test_a_cache_is_used_once_it_exists_and_made_while_training(tmp_path: Path) -> None:
    file = tmp_path / "spark-1.aot"
    assert aot_flags(file) == TRUST_JARS
    file.touch()
    os.utime(file, (NOW - 20 * DAY, NOW - 20 * DAY))
    assert aot_flags(file)[0] == f"-XX:AOTCache={file}"
    assert not {*TRUST_JARS} & {*aot_flags(file)}, "Java refuses a cache with these flags"
    assert file.stat().st_mtime >= NOW - DAY, "its last use is noted"
    train_into(tmp_path / "new")
    assert aot_flags(file)[0] == f"-XX:AOTCacheOutput={tmp_path / 'new' / file.name}"


def test_only_caches_that_nobody_uses_are_deleted(settings: LakeSettings) -> None:
    folder = aot.cache_folder(settings)
    delete_unused(settings)  # there is no folder yet
    folder.mkdir(parents=True)
    for name, days in (("spark-1.aot", 40), ("spark-2.aot", 20), ("notes.txt", 40)):
        (folder / name).touch()
        os.utime(folder / name, (NOW - days * DAY, NOW - days * DAY))
    delete_unused(settings)
    assert {file.name for file in folder.iterdir()} == {"spark-2.aot", "notes.txt"}
