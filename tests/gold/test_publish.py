"""Tests that marts take over their builds together, and that an unpublished build is undone.

The tables are real; only the statements for the SQL endpoint are recorded instead of run. The
endpoint runs them in the tests of the build.
"""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from gold.errors import GoldError
from gold.own import marked
from gold.publish import MANY_FILES, note_versions, publish, undo_unpublished
from gold.tables import BUILT, CUTS, GoldSnapshot, last_published
from lake.settings.settings import load_settings
from lake.tables.lake import Lake


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements for the endpoint."""
    found: list[str] = []
    monkeypatch.setattr("gold.publish.query_endpoint", lambda _, sql: found.append(sql))
    return found


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path, said: list[str]) -> Lake:
    found = Lake(load_settings(home=tmp_path / "it's"))
    found.table(CUTS).create()
    return found


def build(lake: Lake, name: str, *ids: int, by: str = "mine") -> None:
    path = lake.named(BUILT, name).path
    Path(path).mkdir(parents=True, exist_ok=True)
    rows, ours = pa.table({"id": list(ids)}), marked(by)
    write_deltalake(path, rows, mode="append", commit_properties=ours)


def release(lake: Lake, marts: Sequence[str], begun: dict[str, int] | None = None) -> GoldSnapshot:
    built = [*lake.tables(BUILT)]
    return publish(lake, marts, built, (7, {"silver.users_state": 4}), "p", ("mine", begun or {}))


def ids(lake: Lake, name: str, layer: str = "gold") -> list[int]:
    return sorted(DeltaTable(lake.named(layer, name).path).to_pyarrow_table()["id"].to_pylist())


def test_marts_show_what_was_built_and_others_stay_private(lake: Lake, said: list[str]) -> None:
    build(lake, "sales", 1, 2)
    build(lake, "int_lines", 9)
    assert last_published(lake) is None
    made = release(lake, ["sales"])
    assert ids(lake, "sales") == [1, 2]
    assert [*lake.tables("gold")] == ["cuts", "sales"]
    assert last_published(lake) == made
    assert (made.silver_batch, made.built_versions) == (7, {"sales": 0, "int_lines": 0})
    assert made.versions == {"sales": lake.named("gold", "sales").newest_version()}
    [create] = said
    assert create.startswith("CREATE TABLE IF NOT EXISTS `gold`.`sales` USING delta LOCATION '")
    assert "it\\'s" in create


def test_a_mart_that_is_no_longer_built_is_dropped(lake: Lake, said: list[str]) -> None:
    build(lake, "sales", 1)
    build(lake, "mails", 2)
    before = release(lake, ["sales", "mails"])
    build(lake, "sales", 3)
    begun = dict(before.built_versions)
    after = release(lake, ["sales"], begun)
    assert after.published_at > before.published_at
    assert said[-1] == "DROP TABLE IF EXISTS `gold`.`mails`"
    assert ids(lake, "sales") == [1, 3]
    assert "mails" not in lake.tables("gold")


def test_a_killed_publication_is_made_good_by_the_next(
    lake: Lake, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQL clients then find the new mart, and no longer the old one."""
    build(lake, "sales", 1)
    build(lake, "mails", 2)
    before = release(lake, ["sales", "mails"])
    build(lake, "calls", 3)
    begun = dict(before.built_versions)
    for statement in ("CREATE TABLE", "DROP TABLE"):

        def killed(_: object, sql: str, at: str = statement) -> None:
            if sql.startswith(at):
                raise KeyboardInterrupt
            said.append(sql)

        monkeypatch.setattr("gold.publish.query_endpoint", killed)
        with pytest.raises(KeyboardInterrupt):
            release(lake, ["sales", "calls"], begun)
    del said[:]
    monkeypatch.setattr("gold.publish.query_endpoint", lambda _, sql: said.append(sql))
    release(lake, ["sales", "calls"], begun)
    assert [" ".join(sql.split()[:2]) for sql in said] == ["CREATE TABLE", "DROP TABLE"]
    assert "`gold`.`calls`" in said[0]
    assert said[1] == "DROP TABLE IF EXISTS `gold`.`mails`"
    assert [*lake.tables("gold")] == ["calls", "cuts", "sales"]


def test_readers_of_an_unchanged_mart_see_no_new_version(lake: Lake) -> None:
    build(lake, "sales", 1)
    before = release(lake, ["sales"])
    after = release(lake, ["sales"], dict(before.built_versions))
    assert after.versions == before.versions


def test_a_build_that_something_else_has_changed_is_not_published(lake: Lake) -> None:
    build(lake, "sales", 1)
    before = release(lake, ["sales"])
    build(lake, "sales", 2, by="theirs")
    with pytest.raises(GoldError, match="gold_build.sales was changed"):
        release(lake, ["sales"], dict(before.built_versions))
    assert ids(lake, "sales") == [1]
    assert last_published(lake) == before


def test_a_failed_build_is_undone(lake: Lake) -> None:
    build(lake, "sales", 1)
    before = release(lake, ["sales"])
    build(lake, "sales", 2)
    build(lake, "new", 5)
    versions = undo_unpublished(lake, before)
    assert ids(lake, "sales", BUILT) == [1]
    assert versions == {"sales": lake.named(BUILT, "sales").newest_version()}
    assert undo_unpublished(lake, before)["sales"] > before.built_versions["sales"]
    assert ids(lake, "new", BUILT) == [5], "dbt replaces it"


def test_many_small_files_of_a_build_are_merged(lake: Lake) -> None:
    for number in range(MANY_FILES + 1):
        build(lake, "sales", number)
    release(lake, ["sales"])
    assert len(DeltaTable(lake.named("gold", "sales").path).file_uris()) == 1
    assert ids(lake, "sales") == [*range(MANY_FILES + 1)]


def test_rewritten_tables_are_noted_and_the_clock_may_go_back(lake: Lake) -> None:
    build(lake, "sales", 1)
    made = release(lake, ["sales"])
    ahead = {**vars(made), "published_at": made.published_at + dt.timedelta(days=1)}
    lake.table(CUTS).arrow.append([ahead])
    write_deltalake(lake.named("gold", "sales").path, pa.table({"id": [8]}), mode="overwrite")
    note_versions(lake)
    noted = last_published(lake)
    assert noted is not None
    assert noted.published_at > ahead["published_at"]
    assert noted.versions["sales"] == made.versions["sales"] + 1
    assert (noted.built_versions, noted.project) == (made.built_versions, "p")
