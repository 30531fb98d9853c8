"""Tests which files of a project a backup holds, and where a restore puts them."""

import datetime as dt
from pathlib import Path

import pytest

from lake.settings.settings import load_settings
from lake.tables.storage import local_file
from lakehouse.operate.backup_store import LAYOUT, Backup, BackupStore
from lakehouse.operate.project_files import (
    PREFIX,
    project_files,
    restore_project,
    secret_files,
    variables,
)
from pulsar_spark.errors import SettingsError

TOPICS = """
[functions.same]
python = "own.same:same"
[topics.t]
kind = "events"
key = ["id"]
fields = { id = "long", text = "string" }
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    files = {
        "lakehouse.toml": 'topics = "topics.toml"\n',
        "topics.toml": TOPICS,
        "own/same.py": "def same(value): return value",
        "own/other.py": "left out",
        "dbt/dbt_project.yml": "name: x",
        "dbt/models/a.sql": "select 1",
        "dbt/models/logs/b.sql": "select 2",
        "dbt/target/manifest.json": "left out",
        "dbt/logs/dbt.log": "left out",
        "notes.txt": "left out",
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def backed_up(tmp_path: Path, files: dict[str, Path]) -> tuple[BackupStore, Backup]:
    store = BackupStore(tmp_path / "backup")
    with store.alone():
        stored = {
            PREFIX + name: store.put(local_file(file), None)[0] for name, file in files.items()
        }
        backup = Backup(
            silver_batch=0,
            versions={},
            places={},
            layout=LAYOUT,
            release="1",
            id=store.id,
            lake="l",
            readers={},
            partitions=[],
            created_at=dt.datetime.now(dt.timezone.utc),
            files=stored,
            embedded_broker=False,
            moved={},
            secrets={},
            variables=[],
        )
        store.write(backup)
    return store, backup


def test_settings_topics_and_dbt_are_restored_into_an_empty_folder(
    project: Path, tmp_path: Path
) -> None:
    settings = load_settings(topics=project / "topics.toml", dbt_project=project / "dbt")
    files, moved = project_files(settings, project)
    wanted = {
        *("lakehouse.toml", "topics.toml", "own/same.py", "dbt/dbt_project.yml"),
        *("dbt/models/a.sql", "dbt/models/logs/b.sql"),
    }
    assert {*files} == wanted
    assert moved == {}
    store, backup = backed_up(tmp_path, files)
    target = tmp_path / "empty"
    target.mkdir()
    assert {*restore_project(store, backup, target)} == wanted
    there = {str(f.relative_to(target)): f.read_text() for f in target.rglob("*") if f.is_file()}
    assert there == {name: (project / name).read_text() for name in wanted}
    assert restore_project(store, backup, target) == [], "it is a project now"


def test_files_outside_the_project_get_a_place_within_it(project: Path, tmp_path: Path) -> None:
    own = tmp_path / "elsewhere"
    own.mkdir()
    settings = load_settings(topics=project / "topics.toml", dbt_project=project / "dbt")
    files, moved = project_files(settings, own)
    assert moved == {"topics": "topics/topics.toml", "dbt_project": "dbt_project/dbt"}
    assert {*files} == {
        "topics/topics.toml",
        "topics/own/same.py",
        "dbt_project/dbt/dbt_project.yml",
        "dbt_project/dbt/models/a.sql",
        "dbt_project/dbt/models/logs/b.sql",
    }


def test_what_every_installation_has_is_left_out(tmp_path: Path) -> None:
    assert project_files(load_settings(), tmp_path) == ({}, {})


def test_another_file_of_the_same_name_stops_the_restore(project: Path, tmp_path: Path) -> None:
    settings = load_settings(topics=project / "topics.toml", dbt_project=project / "dbt")
    store, backup = backed_up(tmp_path, project_files(settings, project)[0])
    target = tmp_path / "used"
    target.mkdir()
    (target / "topics.toml").write_text("mine")
    with pytest.raises(SettingsError, match=r"topics.toml exists already, and differs"):
        restore_project(store, backup, target)
    assert [file.name for file in target.iterdir()] == ["topics.toml"]


def test_an_interrupted_restore_of_the_project_goes_on(project: Path, tmp_path: Path) -> None:
    settings = load_settings(topics=project / "topics.toml", dbt_project=project / "dbt")
    store, backup = backed_up(tmp_path, project_files(settings, project)[0])
    target = tmp_path / "interrupted"
    target.mkdir()
    (target / "topics.toml").write_text(TOPICS)
    written = restore_project(store, backup, target)
    assert "topics.toml" not in written
    assert written[-1] == "lakehouse.toml" or (target / "lakehouse.toml").exists()


def test_secrets_are_named_and_not_read(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    settings = load_settings(
        pseudonym_secret_file=absent, pulsar_tls_key_file=absent, sql_users_file=absent
    )
    assert secret_files(settings) == {
        "pseudonym_secret_file": str(absent),
        "pulsar_tls_key_file": str(absent),
    }
    known = {"LAKEHOUSE_TRIGGER": "1 second", "LAKEHOUSE_PULSAR_TOKEN": "x", "PATH": "y"}
    assert variables(known) == ["LAKEHOUSE_PULSAR_TOKEN", "LAKEHOUSE_TRIGGER"]
