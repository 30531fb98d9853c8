"""How Spark commits to tables in a bucket: by a class of ours, `S3LogStore.java`."""

from typing import Any

from pyspark.sql import SparkSession

from bronze.java_source import classes_folder, compile_source
from bronze.settings import LakeSettings
from bronze.storage import LOG_STORE, in_bucket


def add_log_store(spark: SparkSession, settings: LakeSettings) -> None:
    """Let a session that has just started have the class that `spark_options` names, if any."""
    if not in_bucket(settings):
        return
    jvm: Any = spark._jvm  # noqa: SLF001 - Python has no other way
    classes = classes_folder(settings)
    package, _, name = LOG_STORE.partition(".")
    compile_source(jvm, "bronze", name, classes)
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    if loader.getResource(f"{package}/{name}.class") is None:  # not on the class path, as ours is
        loader.addURL(jvm.java.io.File(str(classes)).toURI().toURL())
