"""Tests that table operations are the same in a folder and in a bucket of a real S3 server."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import deltalake
import pyarrow as pa
import pyspark
import pytest
from s3_server import SECRET, S3Server

from bronze.upkeep import DAY, EVERY_BATCHES, MANY_SMALL_FILES, BronzeUpkeep
from lake.settings.settings import LakeSettings, load_settings
from lake.streams.checkpoint import claim
from lake.tables import storage
from lake.tables.lake import Lake
from lake.tables.spec import bronze_table
from lake.tables.storage import (
    delete,
    delete_file,
    files_below,
    is_table,
    is_there,
    link,
    newest_version,
    open_table,
    read_bytes,
    require_bucket,
    require_folder,
    spark_options,
    storage_options,
    tables_below,
    written_at,
)
from lakehouse.operate import doctor
from lakehouse.runtime.jars import read_lock
from lakehouse.runtime.metastore import jar_groups
from pulsar_spark.errors import SettingsError
from pulsar_spark.offsets import Position
from pulsar_spark.plan.data_loss import LossTable

DOCS = Path(__file__).parents[3] / "docs" / "deploying.md"
TABLE = bronze_table("orders")
ROW = pa.table({"entry": [1]}, pa.schema([pa.field("entry", pa.int64())]))


@pytest.fixture(params=["folder", "bucket"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> LakeSettings:
    if request.param == "folder":
        return load_settings(home=tmp_path)
    found: LakeSettings = request.getfixturevalue("bucket")
    return found


def append(lake: LakeSettings, place: str) -> None:
    deltalake.write_deltalake(
        place,
        ROW,
        mode="append",
        storage_options=storage_options(lake),
        commit_properties=deltalake.CommitProperties(max_commit_retries=200),  # some lose often
    )


def test_tables_are_found_read_linked_and_deleted(lake: LakeSettings) -> None:
    assert Lake(lake).tables("gold") == {}
    begun = time.time()
    for name in ("b", "a"):
        append(lake, lake.table_path("gold", name))
    append(lake, lake.table_path("gold", "a"))
    place = lake.table_path("gold", "a")
    other = f"{lake.tables}/gold/no_table/_delta_log/_staged_commits/file"
    [first, _] = open_table(lake, place).file_uris()
    link(lake, first, other)
    assert tables_below(lake, f"{lake.tables}/gold") == ["a", "b"]
    assert (is_table(lake, place), is_table(lake, f"{lake.tables}/gold/no_table")) == (True, False)
    assert (newest_version(lake, place), open_table(lake, place, 0).count()) == (1, 1)
    written = written_at(lake, other)
    assert written is not None
    assert begun - 60 < written < time.time() + 60
    assert written_at(lake, f"{other}s") is None
    delete(lake, place)
    delete(lake, place)
    assert (is_there(lake, place), is_there(lake, other)) == (False, True)
    assert list(Lake(lake).tables("gold")) == ["b"]


def test_small_files_are_compacted_and_old_ones_are_deleted(
    lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake.model_copy(update={"history_days": 0})
    table = Lake(lake).table(TABLE)
    path = table.path
    deltalake.DeltaTable.create(
        path,
        deltalake.Schema.from_arrow(ROW.schema),
        configuration={"delta.deletedFileRetentionDuration": "interval 0 days"},
        storage_options=storage_options(lake),
    )
    for _ in range(MANY_SMALL_FILES):
        append(lake, path)
    small = table.arrow.files_below(1 << 20)
    checkpoint = claim(lake, TABLE.full_name)
    upkeep = BronzeUpkeep(Lake(lake), table, checkpoint)
    upkeep.run(1)
    two_days_ago = time.time() - 2 * DAY
    os.utime(Path(checkpoint.path) / "lakehouse.vacuumed", (two_days_ago, two_days_ago))
    before = open_table(lake, path).file_uris()
    upkeep.run(EVERY_BATCHES)
    [after] = open_table(lake, path).file_uris()
    assert (small, table.arrow.count_rows()) == (MANY_SMALL_FILES, MANY_SMALL_FILES)
    assert not any(is_there(lake, file) for file in before)
    assert is_there(lake, after)


def test_accepted_losses_are_recorded(lake: LakeSettings) -> None:
    place = lake.table_path("bronze", "data_loss")
    table = LossTable(place, storage_options(lake) or {})
    for up_to in (None, Position(4, 2)):
        table.record("lakehouse-1", "orders-partition-0", (Position(3, 1), up_to), "it expired")
    rows = open_table(lake, place).to_pyarrow_table().to_pylist()
    assert sorted(str(row["up_to"]) for row in rows) == [str(Position(4, 2)), "None"]
    assert {row["behind"] for row in rows} == {str(Position(3, 1))}


def test_files_are_listed_read_and_deleted_one_by_one(lake: LakeSettings) -> None:
    place = lake.table_path("gold", "a table")
    append(lake, place)
    found = files_below(lake, place)
    [data] = [name for name in found if name.endswith(".parquet")]
    assert found.keys() - {data} == {f"_delta_log/{0:020}.json"}
    assert found[data] == len(read_bytes(lake, f"{place}/{data}")) > 0
    delete_file(lake, f"{place}/{data}")
    assert files_below(lake, place).keys() == found.keys() - {data}
    assert files_below(lake, f"{place}s") == {}


def test_concurrent_commits_all_succeed(bucket: LakeSettings) -> None:
    place = Lake(bucket).table(TABLE).path
    append(bucket, place)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: append(bucket, place), range(24)))
    assert newest_version(bucket, place) == 24
    assert open_table(bucket, place).to_pyarrow_table().num_rows == 25


def test_the_configuration_contains_no_credentials(bucket: LakeSettings, s3: S3Server) -> None:
    told = {**spark_options(bucket), **(storage_options(bucket) or {})}
    assert SECRET not in str(told) + repr(bucket)
    assert told["spark.hadoop.fs.s3a.endpoint"] == told["AWS_ENDPOINT_URL"] == s3.address


def test_a_missing_or_forbidden_bucket_is_reported(
    bucket: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_bucket(bucket)
    assert [each.state for each in doctor.bucket(bucket)] == ["ok"]
    absent = bucket.model_copy(update={"lake": "s3://absent/lake"})
    with pytest.raises(
        SettingsError, match=r"=s3://absent/lake.*the bucket does not exist\. Check LA"
    ):
        require_bucket(absent)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"wrong-{SECRET}")
    storage.s3_client.cache_clear()
    [found] = doctor.bucket(bucket)
    storage.s3_client.cache_clear()
    assert (found.state, SECRET in str(found)) == ("fail", False)
    assert "ACCESS_DENIED" in found.found or "SIGNATURE" in found.found.upper()


def test_the_server_and_region_are_found_where_aws_clients_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    amazon = load_settings(lake="s3://bucket")
    assert storage_options(amazon) == {"AWS_REGION": "us-east-1"}
    assert "spark.hadoop.fs.s3a.endpoint" not in spark_options(amazon)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://s3.example.org/")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert storage_options(load_settings(lake="s3://bucket")) == {
        "AWS_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL": "https://s3.example.org",
        "AWS_ALLOW_HTTP": "false",
    }
    assert storage_options(load_settings()) is None
    assert spark_options(load_settings()) == {}


def test_the_jars_for_s3_match_sparks_hadoop_and_are_fetched_only_if_needed() -> None:
    assert jar_groups(load_settings()) == ("spark",)
    assert jar_groups(load_settings(lake="s3://bucket")) == ("spark", "s3")
    [bundled] = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    versions = {jar.artifact: jar.version for jar in read_lock("s3")}
    assert f"hadoop-client-api-{versions['hadoop-aws']}" == bundled.stem
    assert "bundle" not in versions
    assert f"`org.apache.hadoop:hadoop-aws:{versions['hadoop-aws']}`" in DOCS.read_text()


def test_commands_that_do_not_support_a_bucket_are_refused_by_name(tmp_path: Path) -> None:
    require_folder(load_settings(home=tmp_path), "lakehouse demo", "of a reason")
    with pytest.raises(SettingsError, match=r"lakehouse demo does not support a lake on S3 yet: o"):
        require_folder(load_settings(lake="s3://bucket"), "lakehouse demo", "of a reason")
