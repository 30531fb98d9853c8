"""The Spark session of the local runtime.

`conf/spark-defaults.conf` holds the configuration. Only what depends on the machine is set here.
"""

import os
import secrets
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from filelock import FileLock, Timeout
from pyspark.sql import SparkSession

from lake.settings.settings import LakeSettings
from lake.tables.java_source import classes_folder
from lake.tables.log_store import add_log_store
from lake.tables.storage import spark_options
from lakehouse.runtime.aot import aot_flags, cache_file
from lakehouse.runtime.jars import fetch_jars
from lakehouse.runtime.java import SPARK_CONF, prepare_spark
from lakehouse.runtime.metastore import CLASS_PATH, catalog_implementation, connect, jar_groups

CHECKPOINT_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
RAW_LOCAL_FILES = "org.apache.hadoop.fs.local.RawLocalFs"

SPARK_JARS = "spark"
LAST = "SPARK_DIST_CLASSPATH"  # what Spark puts at the end of its class path
DEFAULTS = str(SPARK_CONF / "spark-defaults.conf")
# Spark generates huge methods for a MERGE.
FLAGS = ("-XX:+UseParallelGC", "-XX:-UsePerfData", "-XX:-DontCompileHugeMethods")

_held: list[FileLock] = []  # held until the process ends


def build_session(settings: LakeSettings, name: str) -> SparkSession:
    """Start Spark for this process, on all cores, with Delta on its class path.

    Without a metastore the catalog is in memory. Tables are folders of the lake, which are
    registered in the catalog at the start (`gold/catalog.py`). Several processes can therefore open
    the same lake.

    Raises:
        SettingsError: JAVA_HOME is set, but not to a Java that Spark supports.
        JarError: a jar could not be fetched.
        MetastoreError: the configured metastore cannot be used.
    """
    prepare_spark(settings)
    # Its folder would be on the class path, where a cache of classes must not find a folder.
    os.environ.pop("SPARK_CONF_DIR")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {shlex.quote(DEFAULTS)} pyspark-shell"
    own = _own_scratch(settings)
    options = [
        f"-Djava.io.tmpdir={own}",
        f"-Dderby.stream.error.file={own}/derby.log",
        f"-Dlog4j2.configurationFile={SPARK_CONF / 'log4j2.properties'}",
        *aot_flags(spark_cache(settings)),
    ]
    quoted = " ".join(map(_option, options))
    java_options = f"{quoted} {' '.join(FLAGS)} {settings.java_options}"
    builder = (
        SparkSession.builder.master("local[*]")
        .appName(name)
        .config("spark.driver.memory", settings.driver_memory)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config(CLASS_PATH, f"{fetch_jars(settings, SPARK_JARS)}/*")
        .config(map={**spark_options(settings)})
        .config("spark.hadoop.fs.s3a.buffer.dir", str(own))
        .config("spark.driver.extraJavaOptions", java_options)
        # On one machine there is nothing to adapt, and it costs a tenth of a small batch's time.
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.local.dir", str(own))
        # Hadoop's default for local files starts a process, `readlink`, for each rename.
        .config("spark.sql.streaming.checkpointFileManagerClass", CHECKPOINT_FILES)
        .config("spark.hadoop.fs.AbstractFileSystem.file.impl", RAW_LOCAL_FILES)
        .config("spark.sql.warehouse.dir", str(settings.lake_dir))
        .config("spark.sql.artifact.isolation.enabled", "false")
        .config("spark.sql.catalogImplementation", catalog_implementation(settings))
        .config("spark.hadoop.hive.exec.scratchdir", str(own / "hive"))
        .config("spark.hadoop.hive.exec.local.scratchdir", str(own / "hive-local"))
        .config("spark.hadoop.hive.server2.logging.operation.enabled", "false")
        # The tasks of streams and owners go first.
        .config("spark.scheduler.mode", "FAIR")
        .config("spark.scheduler.allocation.file", str(SPARK_CONF / "fairscheduler.xml"))
    )
    with _class_path_end(settings):
        session = builder.getOrCreate()
    try:
        # First, because Spark copies Hive's settings when the catalog is first used.
        connect(session, settings)
        add_log_store(session, settings)
    except BaseException:
        session.stop()
        raise
    return session


def spark_cache(settings: LakeSettings) -> Path | None:
    """The ahead-of-time cache for these settings, as `cache_file`.

    Raises:
        JarError: a jar could not be fetched.
    """
    folders = [fetch_jars(settings, SPARK_JARS), Path(pyspark.__file__).with_name("jars")]
    return cache_file(settings, "spark", folders, [*FLAGS, settings.java_options])


@contextmanager
def _class_path_end(settings: LakeSettings) -> Iterator[None]:
    """Start Java with what only some sessions need at the end of its class path.

    These are the jars for a bucket and a metastore, and the folder of our compiled classes. Java
    uses a cache only if the class path begins with that of the training, and Spark puts
    `SPARK_DIST_CLASSPATH` behind its own jars.
    """
    before = os.environ.get(LAST)
    own = [before, *(f"{fetch_jars(settings, each)}/*" for each in jar_groups(settings)[1:])]
    if settings.sql_authentication != "none":
        classes = classes_folder(settings)
        classes.mkdir(parents=True, exist_ok=True)  # Java ignores folders that are missing
        own.append(str(classes))
    os.environ[LAST] = ":".join(filter(None, own))
    try:
        yield
    finally:
        del os.environ[LAST]
        if before is not None:
            os.environ[LAST] = before


def scratch(settings: LakeSettings) -> Path:
    """The folder that holds one folder of temporary files per process."""
    return settings.home_dir / "spark"


def delete_scratch_of_dead(settings: LakeSettings) -> None:
    """Delete the temporary files of killed processes, which may hold personal data.

    Called when a session starts, and by `lakehouse forget`. Spark deletes its own temporary files
    when it stops normally.
    """
    for file in scratch(settings).glob("*.lock"):
        lock = FileLock(file, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            continue
        shutil.rmtree(file.with_suffix(""), ignore_errors=True)
        file.unlink(missing_ok=True)
        lock.release()


def _own_scratch(settings: LakeSettings) -> Path:
    """Create a locked folder for the temporary files of this process."""
    scratch(settings).mkdir(parents=True, exist_ok=True)
    delete_scratch_of_dead(settings)
    folder = scratch(settings) / secrets.token_hex(4)
    lock = FileLock(folder.with_suffix(".lock"), timeout=0)
    lock.acquire()
    _held.append(lock)
    folder.mkdir()
    return folder


def _option(text: str) -> str:
    """Quote a Java option for Spark's list of options, because a path may contain spaces."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
