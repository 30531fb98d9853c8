"""The Spark session of the local runtime. Configuration is in `conf/spark-defaults.conf`; only
what depends on the machine is set here.
"""

import os
import secrets
import shutil
import sys
from pathlib import Path

from filelock import FileLock, Timeout
from pyspark.sql import SparkSession

from lake.settings.settings import LakeSettings
from lake.tables.java_source import classes_folder
from lake.tables.log_store import add_log_store
from lake.tables.storage import spark_options
from lakehouse.runtime.jars import fetch_jars
from lakehouse.runtime.java import TRUST_JARS, prepare_spark
from lakehouse.runtime.metastore import CLASS_PATH, catalog_implementation, connect, jar_groups

CHECKPOINT_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
RAW_LOCAL_FILES = "org.apache.hadoop.fs.local.RawLocalFs"

_held: list[FileLock] = []  # until the process ends


def build_session(settings: LakeSettings, name: str) -> SparkSession:
    """Start Spark in this process, on all cores, with Delta on its class path.

    The catalog lives in memory unless a metastore is set: tables are folders of the lake,
    registered at start (`gold/catalog.py`), so that several processes may open one lake.

    Raises:
        SettingsError: no Java that Spark runs on.
        JarError: Delta's jars cannot be had.
        MetastoreError: the metastore that is set cannot be used.
    """
    prepare_spark(settings)
    jars = [f"{fetch_jars(settings, each)}/*" for each in jar_groups(settings)]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    own = _own_scratch(settings)
    classes = classes_folder(settings)
    classes.mkdir(parents=True, exist_ok=True)  # Java passes over one that is not there yet
    java_options = (
        f"{_option(f'-Djava.io.tmpdir={own}')} "
        f"{_option(f'-Dderby.stream.error.file={own}/derby.log')} "
        f"-XX:+UseParallelGC -XX:-UsePerfData {' '.join(TRUST_JARS)} "
        "-XX:-DontCompileHugeMethods "  # as Spark makes for a MERGE
        f"{settings.java_options}"
    )
    session = (
        SparkSession.builder.master("local[*]")
        .appName(name)
        .config("spark.driver.memory", settings.driver_memory)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config(CLASS_PATH, ":".join([*jars, str(classes)]))
        .config(map={**spark_options(settings)})
        .config("spark.hadoop.fs.s3a.buffer.dir", str(own))
        .config("spark.driver.extraJavaOptions", java_options)
        # On one machine it finds nothing to adapt, and costs a tenth of the time of small batches.
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
        .getOrCreate()
    )
    try:
        connect(session, settings)  # first: Spark copies what Hive is told when anything asks it
        add_log_store(session, settings)
    except BaseException:
        session.stop()
        raise
    return session


def scratch(settings: LakeSettings) -> Path:
    """The folder with the folders for temporary files of each process."""
    return settings.home_dir / "spark"


def delete_scratch_of_dead(settings: LakeSettings) -> None:
    """Delete the temporary files of processes that were killed, as these may hold rows of people.

    Called when a session starts, and by `lakehouse forget`. Spark deletes its own when it stops.
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
    """A new folder for the temporary files of this process."""
    scratch(settings).mkdir(parents=True, exist_ok=True)
    delete_scratch_of_dead(settings)
    folder = scratch(settings) / secrets.token_hex(4)
    lock = FileLock(folder.with_suffix(".lock"), timeout=0)
    lock.acquire()
    _held.append(lock)
    folder.mkdir()
    return folder


def _option(text: str) -> str:
    """An option of Java as Spark reads it from a list of them; a folder's name may have blanks."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
