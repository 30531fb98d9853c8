"""Tests that our Java classes are compiled with what ships with Spark."""

from pathlib import Path

from pyspark.sql import SparkSession

from lake.tables.java_source import compile_source
from lake.tables.storage import LOG_STORE


def test_a_class_of_a_package_is_compiled_to_where_java_finds_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    package, _, name = LOG_STORE.partition(".")
    classes = tmp_path / "classes"
    compile_source(spark._jvm, "lake.tables", name, classes)  # noqa: SLF001 - Python has no other way
    compiled = classes / package / f"{name}.class"
    assert compiled.read_bytes()[:4] == bytes.fromhex("cafebabe")
