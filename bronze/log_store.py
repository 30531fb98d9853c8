"""How Spark commits to tables in a bucket: by a class of ours, `S3LogStore.java`."""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bronze.java_source import compile_source
from bronze.settings import LakeSettings
from bronze.storage import in_bucket

NAME = "S3LogStore"


def log_store_options(settings: LakeSettings) -> dict[str, str]:
    """What a session must be started with; nothing for a folder."""
    return {"spark.delta.logStore.s3.impl": f"lakehouse.{NAME}"} if in_bucket(settings) else {}


def add_log_store(spark: SparkSession, settings: LakeSettings, classes: Path) -> None:
    """Let a session that has just started have the class, if tables lie in a bucket.

    Args:
        spark: the session.
        settings: the lake.
        classes: a folder of the driver's machine for what is compiled, on its class path or not.
    """
    if not in_bucket(settings):
        return
    jvm: Any = spark._jvm  # noqa: SLF001 - Python has no other way
    compile_source(jvm, "bronze", NAME, classes)
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    if loader.getResource(f"lakehouse/{NAME}.class") is None:
        loader.addURL(jvm.java.io.File(str(classes)).toURI().toURL())
