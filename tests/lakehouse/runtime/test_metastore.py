"""Tests the catalog in a Hive metastore on a real PostgreSQL, which outlives the sessions."""

import json
import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import psycopg
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from postgres_server import PASSWORD, run, serving
from s3_server import BUCKET, S3Server

from lake.settings.settings import LakeSettings, load_settings
from lake.tables.storage import storage_options
from lakehouse.runtime.metastore import (
    MetastoreError,
    catalog_implementation,
    connect,
    create,
    jar_groups,
    metastore_java,
    properties,
)
from lakehouse.runtime.ports import free_port
from pulsar_spark.errors import SettingsError

REGISTER = """
import json
from lake.settings.settings import load_settings
from lake.tables.lake import Lake
from gold.catalog import register
from lakehouse.runtime.session import build_session

settings = load_settings()
spark = build_session(settings, "test")
register(spark, Lake(settings))
spark.sql("CREATE VIEW gold.names AS SELECT upper(name) AS name FROM bronze.people")
started = "SELECT java_method('java.lang.System', 'getProperty', 'sun.java.command')"
hadoop = spark._jsparkSession.sparkContext().hadoopConfiguration().iterator()
told = []
while hadoop.hasNext():
    told.append(hadoop.next().toString())
seen = [*spark.sql("SET -v").collect(), *spark.sparkContext.getConf().getAll(), *told]
print(json.dumps([str(seen), spark.sql(started).first()[0]]))
"""


class Postgresql(NamedTuple):
    port: int

    def rows(self, sql: str) -> list[str]:
        """Return the rows that a query finds, as texts."""
        address = f"postgresql://hive:{PASSWORD}@127.0.0.1:{self.port}/postgres"
        with psycopg.connect(address, autocommit=True) as connection:
            return ["|".join(map(str, row)) for row in connection.execute(sql).fetchall()]


@pytest.fixture
def postgresql() -> Iterator[Postgresql]:
    """A separate server, whose user `hive` has a password."""
    with serving("hive") as server:
        yield Postgresql(server.port)


def private(file: Path, content: str) -> Path:
    file.touch(mode=0o600)
    file.write_text(content)
    return file


@pytest.fixture(params=["folder", "bucket"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Settings for the location of tables: a folder or a bucket."""
    if request.param == "folder":
        return {"lake": str(tmp_path / "lake")}
    server: S3Server = request.getfixturevalue("s3")
    return {"lake": f"s3://{BUCKET}/{uuid.uuid4().hex}", "s3_endpoint": server.address}


@pytest.mark.jvm
@pytest.mark.nightly
def test_tables_and_views_are_kept_for_other_sessions(
    postgresql: Postgresql, lake: dict[str, str], tmp_path: Path
) -> None:
    settings = load_settings(
        home=tmp_path / "home",
        **lake,
        metastore=f"jdbc:postgresql://127.0.0.1:{postgresql.port}/postgres",
        metastore_password_file=private(tmp_path / "password", PASSWORD),
    )
    table, options = settings.table_path("bronze", "people"), storage_options(settings)
    people = pa.table({"id": [1, 2], "name": ["Anna", "Bert"]})
    write_deltalake(table, people, storage_options=options)
    wrong = private(tmp_path / "wrong", "canary-of-another-kind")
    with metastore_java(settings) as jvm:
        with pytest.raises(MetastoreError) as refused:
            create(jvm, settings.model_copy(update={"metastore_password_file": wrong}))
        assert 'authentication failed for user "hive"' in str(refused.value)
        assert "LAKEHOUSE_METASTORE_PASSWORD_FILE" in str(refused.value)
        assert "canary" not in str(refused.value)
        assert "\n" not in str(refused.value)
        assert refused.value.__cause__ is None
        with pytest.raises(MetastoreError, match="`lakehouse metastore init`"):
            connect(SimpleNamespace(_jvm=jvm), settings)  # type: ignore[arg-type]
        assert create(jvm, settings) == "2.3.0"
        assert create(jvm, settings) == "2.3.0"  # an existing schema stays
    assert postgresql.rows('select "SCHEMA_VERSION" from "VERSION"') == ["2.3.0"]
    own = {
        **os.environ,
        "LAKEHOUSE_HOME": str(settings.home_dir),
        **{f"LAKEHOUSE_{name.upper()}": value for name, value in lake.items()},
        "LAKEHOUSE_SQL_PORT": str(free_port()),
        "LAKEHOUSE_METASTORE": str(settings.metastore),
        "LAKEHOUSE_METASTORE_PASSWORD_FILE": str(settings.metastore_password_file),
    }
    first = run(sys.executable, "-c", REGISTER, cwd=tmp_path, env=own)
    seen, started = json.loads(first.stdout.splitlines()[-1])
    assert f"127.0.0.1:{postgresql.port}" in seen  # its settings, but not the password
    assert "pyspark" in started
    kept = postgresql.rows(
        'select d."NAME", t."TBL_NAME", t."TBL_TYPE" from "TBLS" t join "DBS" d using ("DB_ID")'
    )
    assert {"bronze|people|EXTERNAL_TABLE", "gold|names|VIRTUAL_VIEW"} <= set(kept)
    more = pa.table({"id": [3], "name": ["Carl"]})
    write_deltalake(table, more, mode="append", storage_options=options)
    sql = "select array_sort(collect_list(name)) as names from gold.names"
    elsewhere = {**own, "LAKEHOUSE_HOME": str(tmp_path / "elsewhere")}
    lakehouse = Path(sys.executable).with_name("lakehouse")
    found = run(lakehouse, "sql", "--format", "json", sql, cwd=tmp_path, env=elsewhere)
    assert json.loads(found.stdout) == [{"names": ["ANNA", "BERT", "CARL"]}]
    assert "ERROR" not in first.stderr + found.stderr


@pytest.fixture
def settings(tmp_path: Path) -> LakeSettings:
    return load_settings(
        home=tmp_path,
        metastore="jdbc:postgresql://db.example.org/lake?sslmode=verify-full",
        metastore_user="keeper",
        metastore_password_file=private(tmp_path / "password", PASSWORD),
    )


def test_hive_is_configured_for_each_kind_of_metastore(settings: LakeSettings) -> None:
    told = properties(settings)
    option = "javax.jdo.option.Connection"
    assert told[f"{option}URL"] == "jdbc:postgresql://db.example.org/lake?sslmode=verify-full"
    assert (told[f"{option}UserName"], told[f"{option}Password"]) == ("keeper", PASSWORD)
    assert told["hive.metastore.schema.verification"] == "true"
    assert (catalog_implementation(settings), jar_groups(settings)) == (
        "hive",
        ("spark", "postgresql"),
    )
    service = settings.model_copy(update={"metastore": "thrift://hms.example.org:9083"})
    assert properties(service) == {"hive.metastore.uris": "thrift://hms.example.org:9083"}
    assert (catalog_implementation(service), jar_groups(service)) == ("hive", ("spark",))
    none = settings.model_copy(update={"metastore": None})
    assert (catalog_implementation(none), jar_groups(none)) == ("in-memory", ("spark",))


def test_the_schema_is_created_only_in_a_database(settings: LakeSettings) -> None:
    service = settings.model_copy(update={"metastore": "thrift://hms.example.org:9083"})
    with (
        pytest.raises(SettingsError, match="does not name a PostgreSQL database"),
        metastore_java(service),
    ):
        pass


@pytest.mark.parametrize(
    "unfit",
    [
        *("mysql", "derby", "thrift://host", "jdbc:mysql://h/d", "jdbc:postgresql://h/"),
        "jdbc:postgresql://hive:word@h/d",  # pragma: allowlist secret
        "jdbc:postgresql://h/d?user=hive&password=x",  # pragma: allowlist secret
    ],
)
def test_an_invalid_metastore_is_refused(unfit: str) -> None:
    with pytest.raises(SettingsError, match="'metastore'") as refused:
        load_settings(metastore=unfit)
    assert "word@" not in str(refused.value)
