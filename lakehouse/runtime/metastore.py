"""The Hive metastore, if one is set: a catalog shared by sessions and engines.

The Hive client within the Spark driver connects either to the metastore's database by JDBC or to
its Thrift service. The password is given to Hive in memory and removed once Hive is connected,
because Spark's own configuration is visible in the arguments of its process and through SQL.
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
NO_TABLE = "42P01"  # PostgreSQL's SQLSTATE for undefined_table
# Hive's own values. The names of tables and the generated ids depend on them.
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
    """The metastore does not answer, or has a version that Spark's Hive client does not support."""


def jar_groups(settings: LakeSettings) -> tuple[str, ...]:
    """The sections of `jars.lock` that a session needs."""
    driver = ("postgresql",) if _is_postgresql(settings) else ()
    return ("spark", *driver, *(("s3",) if in_bucket(settings) else ()))


def catalog_implementation(settings: LakeSettings) -> str:
    """The value for `spark.sql.catalogImplementation`."""
    return "hive" if settings.metastore else "in-memory"


def connect(spark: SparkSession, settings: LakeSettings) -> None:
    """Connect a session's catalog to the metastore, if one is set.

    Raises:
        SettingsError: the password file is missing or may be read by others.
        MetastoreError: the metastore does not answer, or has an unsupported version.
    """
    if settings.metastore is None:
        return
    if _is_postgresql(settings):
        _require_schema(spark._jvm, settings)  # noqa: SLF001 - Python has no other way
    hadoop = spark._jsparkSession.sparkContext().hadoopConfiguration()  # noqa: SLF001
    for name, value in properties(settings).items():
        hadoop.set(name, value)
    try:
        spark.sql("SHOW DATABASES").collect()  # Hive connects, and keeps its configuration
    except (PySparkException, Py4JJavaError) as error:
        raise _failure(settings, error) from None
    finally:
        hadoop.unset(PASSWORD)


def properties(settings: LakeSettings) -> dict[str, str]:
    """Hive's configuration for the metastore: its address and, for a database, the login."""
    if not _is_postgresql(settings):
        return {"hive.metastore.uris": settings.metastore or ""}
    return {
        "javax.jdo.option.ConnectionURL": settings.metastore or "",
        "javax.jdo.option.ConnectionDriverName": DRIVER,
        "javax.jdo.option.ConnectionUserName": settings.metastore_user,
        PASSWORD: _password(settings),
        # Tables created one by one on first use would wait for each other's locks.
        "datanucleus.schema.autoCreateAll": "false",
        "hive.metastore.schema.verification": "true",
    }


def create(jvm: Any, settings: LakeSettings) -> str:
    """Create all tables of the metastore at once. Existing tables are left as they are.

    Called by `lakehouse metastore init`, with the JVM of `metastore_java`.

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
    """The Hive classes that are stored as tables, from the `package.jdo` that Hive ships."""
    [jar] = (Path(pyspark.__file__).parent / "jars").glob("hive-metastore-*.jar")
    with zipfile.ZipFile(jar) as files:
        root = ElementTree.fromstring(files.read("package.jdo"))  # noqa: S314 - PySpark's own file
    for package in root.iter("package"):
        for each in package.iter("class"):
            yield f"{package.get('name')}.{each.get('name')}"


@contextmanager
def metastore_java(settings: LakeSettings, progress: Progress | None = None) -> Iterator[Any]:
    """Run a JVM with Spark's Hive and the PostgreSQL driver while the block runs.

    Raises:
        SettingsError: LAKEHOUSE_METASTORE is not a PostgreSQL database.
        JarError: the driver could not be fetched.
    """
    if not _is_postgresql(settings):
        message = (
            f"LAKEHOUSE_METASTORE ({settings.metastore or 'not set'}) does not name a PostgreSQL "
            "database in which to create tables. Set it to jdbc:postgresql://HOST/DATABASE."
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
            f"The database {settings.metastore} does not have the tables of a Hive metastore yet. "
            "Create them with `lakehouse metastore init`, or correct LAKEHOUSE_METASTORE."
        )
        raise MetastoreError(message)


def _has_tables(jvm: Any, settings: LakeSettings) -> bool:
    """Whether the database has the tables of a metastore.

    Raises:
        MetastoreError: the tables are of another version, or the database does not answer.
    """
    found, version = _schema_version(jvm, settings), _version_of_hive(jvm)
    if found not in (None, version):
        message = (
            f"The metastore {settings.metastore} has tables of version {found}, but Spark's Hive "
            f"needs version {version}. Use the service of that Hive instead: "
            "LAKEHOUSE_METASTORE=thrift://HOST:9083."
        )
        raise MetastoreError(message)
    return found is not None


def _version_of_hive(jvm: Any) -> str:
    return str(jvm.org.apache.hadoop.hive.metastore.MetaStoreSchemaInfo.getHiveSchemaVersion())


def _schema_version(jvm: Any, settings: LakeSettings) -> str | None:
    """The version of the tables in the database, or None if there are none.

    Asked over JDBC before Hive connects, because Hive would retry for a long time and log a stack
    trace each time.
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
