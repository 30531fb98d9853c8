"""The Spark session of the local runtime. Configuration is in `conf/spark-defaults.conf`; only
what depends on the machine is set here.
"""

import os
import sys

from pyspark.sql import SparkSession

from bronze.java_source import classes_folder
from bronze.log_store import add_log_store
from bronze.settings import LakeSettings
from bronze.storage import spark_options
from lakehouse.jars import fetch_jars
from lakehouse.java import TRUST_JARS, prepare_spark
from lakehouse.metastore import CLASS_PATH, catalog_implementation, connect, jar_groups

CHECKPOINT_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
RAW_LOCAL_FILES = "org.apache.hadoop.fs.local.RawLocalFs"


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
    scratch = settings.home_dir / "spark"
    classes = classes_folder(settings)
    classes.mkdir(parents=True, exist_ok=True)  # Java passes over one that is not there yet
    java_options = (
        f"-Djava.io.tmpdir={scratch} -Dderby.stream.error.file={scratch}/derby.log "
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
        .config("spark.hadoop.fs.s3a.buffer.dir", str(scratch))
        .config("spark.driver.extraJavaOptions", java_options)
        # On one machine it finds nothing to adapt, and costs a tenth of the time of small batches.
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.local.dir", str(scratch))
        # Hadoop's default for local files starts a process, `readlink`, for each rename.
        .config("spark.sql.streaming.checkpointFileManagerClass", CHECKPOINT_FILES)
        .config("spark.hadoop.fs.AbstractFileSystem.file.impl", RAW_LOCAL_FILES)
        .config("spark.sql.warehouse.dir", str(settings.lake_dir))
        .config("spark.sql.artifact.isolation.enabled", "false")
        .config("spark.sql.catalogImplementation", catalog_implementation(settings))
        .config("spark.hadoop.hive.exec.scratchdir", str(scratch / "hive"))
        .config("spark.hadoop.hive.exec.local.scratchdir", str(scratch / "hive-local"))
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
