"""The Hive metastore, if one is set: a catalog that sessions and engines share.

Spark's own Hive asks it, within the driver: the database of a metastore by JDBC, or its service.
The password is given to Hive in memory and taken back when it is connected, as what is given to
Spark as configuration is seen in the arguments of its process, and by SQL.
"""

import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from lake.settings.secret_files import secret_text
from lake.settings.settings import LakeSettings
from lake.tables.storage import in_bucket
from lakehouse.runtime.jars import Progress, fetch_jars
from lakehouse.runtime.java import prepare_spark
from pulsar_spark.errors import LakehouseError, SettingsError
from pulsar_spark.log_masking import hide, redact

PASSWORD = "javax.jdo.option.ConnectionPassword"  # noqa: S105 - its name  # pragma: allowlist secret
CLASS_PATH = "spark.driver.extraClassPath"
DRIVER = "org.postgresql.Driver"
NO_TABLE = "42P01"  # of PostgreSQL: undefined_table
# As Hive has them: names of tables and generated ids depend on it.
HIVE_NAMES = {
    "datanucleus.identifierFactory": "datanucleus1",
    "datanucleus.rdbms.useLegacyNativeValueStrategy": "true",
    "datanucleus.plugin.pluginRegistryBundleCheck": "LOG",
}
MAY_NOTE_VERSION = {
    "hive.metastore.schema.verification": "false",
    "hive.metastore.schema.verification.record.version": "true",
}


class MetastoreError(LakehouseError):
    """The metastore does not answer, or is not one that Spark's Hive knows."""


def jar_groups(settings: LakeSettings) -> tuple[str, ...]:
    """Sections of the lock that a session needs."""
    driver = ("postgresql",) if _is_postgresql(settings) else ()
    return ("spark", *driver, *(("s3",) if in_bucket(settings) else ()))


def catalog_implementation(settings: LakeSettings) -> str:
    """As Spark names it."""
    return "hive" if settings.metastore else "in-memory"


def connect(spark: SparkSession, settings: LakeSettings) -> None:
    """Let the catalog of a session be the metastore of the settings, if they name one.

    Raises:
        SettingsError: the file of the password is not in order.
        MetastoreError: it does not answer, or is not one that Spark's Hive knows.
    """
    if settings.metastore is None:
        return
    if _is_postgresql(settings):
        _require_schema(spark._jvm, settings)  # noqa: SLF001 - Python has no other way
    hadoop = spark._jsparkSession.sparkContext().hadoopConfiguration()  # noqa: SLF001
    for name, value in properties(settings).items():
        hadoop.set(name, value)
    try:
        spark.sql("SHOW DATABASES").collect()  # Hive connects, and keeps what it was told
    except (PySparkException, Py4JJavaError) as error:
        raise _failure(settings, error) from None
    finally:
        hadoop.unset(PASSWORD)


def properties(settings: LakeSettings) -> dict[str, str]:
    """What Hive is told: where the metastore is, and how to log in there."""
    if not _is_postgresql(settings):
        return {"hive.metastore.uris": settings.metastore or ""}
    return {
        "javax.jdo.option.ConnectionURL": settings.metastore or "",
        "javax.jdo.option.ConnectionDriverName": DRIVER,
        "javax.jdo.option.ConnectionUserName": settings.metastore_user,
        PASSWORD: _password(settings),
        # Made table by table, as they are asked for, they would wait for each other's locks.
        "datanucleus.schema.autoCreateAll": "false",
        "hive.metastore.schema.verification": "true",
    }


def create(jvm: Any, settings: LakeSettings) -> str:
    """Make the tables, all at once; those that are there stay.

    Returns:
        The version of the schema.

    Raises:
        MetastoreError: the database does not answer, or has tables of another version.
    """
    given = properties(settings)
    version = _version_of_hive(jvm)
    is_new = not _has_tables(jvm, settings)
    try:
        _create_tables(jvm, given)
        if is_new:
            configuration = jvm.org.apache.hadoop.hive.conf.HiveConf()
            for name, value in {**given, **MAY_NOTE_VERSION}.items():
                configuration.set(name, value)
            store = jvm.org.apache.hadoop.hive.metastore.ObjectStore()
            store.setConf(configuration)
            store.setMetaStoreSchemaVersion(version, "Made by lakehouse metastore init")
            store.shutdown()
    except Py4JJavaError as error:
        raise _failure(settings, error) from None
    return version


def _create_tables(jvm: Any, given: Mapping[str, str]) -> None:
    options = jvm.java.util.HashMap()
    factory = "org.datanucleus.api.jdo.JDOPersistenceManagerFactory"
    wanted = {"javax.jdo.PersistenceManagerFactoryClass": factory, **HIVE_NAMES, **given}
    for name, value in {**wanted, "datanucleus.schema.autoCreateAll": "true"}.items():
        if name.startswith(("javax.", "datanucleus.")):
            options.put(name, value)
    made = jvm.javax.jdo.JDOHelper.getPersistenceManagerFactory(options)
    try:
        classes = jvm.java.util.HashSet()
        for name in _persistent_classes():
            classes.add(name)
        store = made.getNucleusContext().getStoreManager()
        store.createSchemaForClasses(classes, jvm.java.util.Properties())
    finally:
        made.close()


def _persistent_classes() -> Iterator[str]:
    """The classes of Hive that are tables, by the description that Hive ships."""
    [jar] = (Path(pyspark.__file__).parent / "jars").glob("hive-metastore-*.jar")
    with zipfile.ZipFile(jar) as files:
        root = ElementTree.fromstring(files.read("package.jdo"))  # noqa: S314 - PySpark's own file
    for package in root.iter("package"):
        for each in package.iter("class"):
            yield f"{package.get('name')}.{each.get('name')}"


@contextmanager
def metastore_java(settings: LakeSettings, progress: Progress | None = None) -> Iterator[Any]:
    """A Java with Spark's Hive and the driver of PostgreSQL.

    Raises:
        SettingsError: the settings name no database of a metastore.
    """
    if not _is_postgresql(settings):
        message = (
            f"LAKEHOUSE_METASTORE ({settings.metastore or 'not set'}) names no PostgreSQL to make "
            "tables in; set it to jdbc:postgresql://HOST/DATABASE."
        )
        raise SettingsError(message)
    prepare_spark(settings)
    jars = fetch_jars(settings, "postgresql", progress)
    gateway = launch_gateway(SparkConf(loadDefaults=False).set(CLASS_PATH, f"{jars}/*"))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=30)


def _require_schema(jvm: Any, settings: LakeSettings) -> None:
    if not _has_tables(jvm, settings):
        message = (
            f"The database {settings.metastore} has no tables of a Hive metastore yet. Make them "
            "with `lakehouse metastore init`, or correct LAKEHOUSE_METASTORE."
        )
        raise MetastoreError(message)


def _has_tables(jvm: Any, settings: LakeSettings) -> bool:
    """Whether the tables of a metastore are there; those of another version are refused."""
    found, version = _schema_version(jvm, settings), _version_of_hive(jvm)
    if found not in (None, version):
        message = (
            f"The metastore {settings.metastore} has tables of version {found}, and Spark's Hive "
            f"reads those of {version}. Name the service of that Hive instead: "
            "LAKEHOUSE_METASTORE=thrift://HOST:9083."
        )
        raise MetastoreError(message)
    return found is not None


def _version_of_hive(jvm: Any) -> str:
    return str(jvm.org.apache.hadoop.hive.metastore.MetaStoreSchemaInfo.getHiveSchemaVersion())


def _schema_version(jvm: Any, settings: LakeSettings) -> str | None:
    """The version of the tables in the database; None if there are none.

    Asked before Hive is, which would try for long, and tell each time with a trace.
    """
    login = jvm.java.util.Properties()
    for name, value in (("user", settings.metastore_user), ("password", _password(settings))):
        login.setProperty(name, value)
    try:
        jvm.java.lang.Class.forName(DRIVER)
        connection = jvm.java.sql.DriverManager.getConnection(settings.metastore, login)
        try:
            rows = connection.createStatement().executeQuery(
                'SELECT "SCHEMA_VERSION" FROM "VERSION"'
            )
            return str(rows.getString(1)) if rows.next() else None
        finally:
            connection.close()
    except Py4JJavaError as error:
        java = error.java_exception
        if hasattr(java, "getSQLState") and str(java.getSQLState()) == NO_TABLE:
            return None
        raise _failure(settings, error) from None


def _failure(settings: LakeSettings, error: Exception) -> MetastoreError:
    causes = re.findall(r"^(?:: |Caused by: )?[\w.$]+(?:Exception|Error): (.+)$", str(error), re.M)
    why = redact(causes[-1] if causes else type(error).__name__).rstrip(".")
    message = (
        f"The metastore {settings.metastore} cannot be used: {why}. Check LAKEHOUSE_METASTORE, "
        "LAKEHOUSE_METASTORE_USER and LAKEHOUSE_METASTORE_PASSWORD_FILE."
    )
    return MetastoreError(message)


def _is_postgresql(settings: LakeSettings) -> bool:
    return (settings.metastore or "").startswith("jdbc:")


def _password(settings: LakeSettings) -> str:
    file = settings.metastore_password_file
    return hide(secret_text("LAKEHOUSE_METASTORE_PASSWORD_FILE", file)) if file else ""
