"""Tests the training of Java's ahead-of-time caches, and that it is never in the way."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock
from live_shop import until

from lake.settings.settings import LakeSettings, load_settings
from lake.tables.java_source import classes_folder
from lakehouse.runtime.aot import cache_folder
from lakehouse.warm_up import WarmUpError, wanted_caches, warm_up, warm_up_later

START = """
import json, sys
from lake.settings.settings import load_settings
from lakehouse.runtime.session import build_session

spark = build_session(load_settings(), "test")
java = spark._jvm.java.lang.management.ManagementFactory
given = [str(each) for each in java.getRuntimeMXBean().getInputArguments()]
print(json.dumps([given, spark.range(3).count()]))
spark.stop()
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LakeSettings:
    """Settings of a cache that has the usual jars, but no ahead-of-time caches."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "jars").symlink_to(load_settings().cache_dir / "jars")
    return load_settings(home=tmp_path / "home", cache=cache, warm_up=True, java_options="")


def test_a_java_without_caches_is_refused_with_a_remedy(
    settings: LakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'openjdk version \"21.0.8\"' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    with pytest.raises(WarmUpError, match="no ahead-of-time caches. Unset JAVA_HOME"):
        warm_up(settings)
    warm_up_later(settings)
    assert not cache_folder(settings).exists()


def test_two_processes_do_not_train_at_once(settings: LakeSettings) -> None:
    cache_folder(settings).mkdir(parents=True)
    with (
        FileLock(cache_folder(settings) / "training.lock"),
        pytest.raises(WarmUpError, match="Another process is training"),
    ):
        warm_up(settings)


@pytest.mark.nightly
def test_a_training_that_fails_says_why_and_leaves_nothing(
    settings: LakeSettings,
) -> None:
    short = settings.model_copy(update={"driver_memory": "1m"})  # less than Java needs
    with pytest.raises(WarmUpError, match="The training failed: .* works without the caches"):
        warm_up(short)
    left = [file.name for file in cache_folder(settings).iterdir() if file.suffix == ".aot"]
    assert left == []


def test_the_first_demo_or_up_starts_the_training_once(
    settings: LakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of the name `nice` notes what would be started."""
    program, noted = tmp_path / "bin" / "nice", tmp_path / "noted"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {noted}.part; mv {noted}.part {noted}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    warm_up_later(settings.model_copy(update={"warm_up": False}))
    away = {"pulsar_url": "pulsar://broker.example:6650"}
    warm_up_later(settings.model_copy(update=away))  # it would have to fetch a broker
    assert not (settings.home_dir / "logs").exists()
    warm_up_later(settings)
    until(noted.exists, "the training to start")
    lines = noted.read_text().splitlines()
    assert lines[:5] == ["-n", "19", sys.executable, "-m", "lakehouse.warm_up"]
    assert lines[5] == "--train"
    assert json.loads(lines[6])["cache"] == str(settings.cache)
    noted.unlink()
    cache_folder(settings).mkdir(parents=True)
    for file in wanted_caches(settings):
        file.with_suffix(".tried").touch()
    (settings.home_dir / "logs" / "warm-up.log").unlink()
    warm_up_later(settings)
    assert not (settings.home_dir / "logs" / "warm-up.log").exists()


def started(settings: LakeSettings, **variables: str) -> tuple[list[str], int, str]:
    """Start Spark in a process of its own; return Java's arguments, a count, and stderr."""
    own = {"LAKEHOUSE_HOME": str(settings.home), "LAKEHOUSE_CACHE": str(settings.cache)}
    plain = {name: value for name, value in os.environ.items() if name[:10] != "LAKEHOUSE_"}
    ran = subprocess.run(
        [sys.executable, "-c", START],
        env={**plain, **own, "PYTHONPATH": ":".join(sys.path), **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    [line] = ran.stdout.splitlines()
    given, count = json.loads(line)
    return given, count, ran.stderr


@pytest.mark.jvm
@pytest.mark.nightly
def test_a_broken_cache_is_passed_over_without_a_word(settings: LakeSettings) -> None:
    cache_folder(settings).mkdir(parents=True)
    [spark, _] = wanted_caches(settings)
    spark.write_bytes(b"no cache" * 1000)
    given, count, said = started(settings)
    assert f"-XX:AOTCache={spark}" in given
    assert (count, said) == (3, "")


@pytest.mark.jvm
@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_trained_caches_are_used_by_the_next_start(settings: LakeSettings, tmp_path: Path) -> None:
    killed = cache_folder(settings) / "training-killed"
    (killed / "home").mkdir(parents=True)
    assert warm_up(settings) == wanted_caches(settings)
    assert all(file.stat().st_size > 20 << 20 for file in wanted_caches(settings))
    assert not [file for file in cache_folder(settings).iterdir() if file.is_dir()]
    compiled = classes_folder(settings) / "lakehouse" / "Other.class"
    compiled.parent.mkdir(parents=True)
    compiled.touch()  # by an earlier start
    more = {
        "LAKEHOUSE_SQL_AUTHENTICATION": "password",
        **{"LAKEHOUSE_LAKE": "s3://bucket/lake", "LAKEHOUSE_S3_ENDPOINT": "http://127.0.0.1:9"},
    }
    for variables in ({}, more):
        log = tmp_path / f"classes-{len(variables)}.log"
        variables["JAVA_TOOL_OPTIONS"] = f"-Xlog:class+load:file={log}"
        given, count, _ = started(settings, **variables)
        assert f"-XX:AOTCache={wanted_caches(settings)[0]}" in given
        assert count == 3
        assert log.read_text().count("source: shared objects file") > 5_000
