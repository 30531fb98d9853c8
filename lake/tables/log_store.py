"""Lets Spark commit to tables in a bucket with our own class, `S3LogStore.java`."""

from typing import Any

from pyspark.sql import SparkSession

from lake.settings.settings import LakeSettings
from lake.tables.java_source import classes_folder, compile_source
from lake.tables.storage import LOG_STORE, in_bucket


def add_log_store(spark: SparkSession, settings: LakeSettings) -> None:
    """Give a new session the class that `spark_options` names. Does nothing without a bucket.

    Called right after the session has started.
    """
    if not in_bucket(settings):
        return
    jvm: Any = spark._jvm  # noqa: SLF001 - Python has no other way
    classes = classes_folder(settings)
    package, _, name = LOG_STORE.partition(".")
    compile_source(jvm, "lake.tables", name, classes)
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    if loader.getResource(f"{package}/{name}.class") is None:  # not on the class path yet
        loader.addURL(jvm.java.io.File(str(classes)).toURI().toURL())
