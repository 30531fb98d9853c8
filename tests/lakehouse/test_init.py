"""Tests the files of a new project. tests/e2e/test_projects.py runs it."""

from pathlib import Path

import pytest
import yaml

from lake.settings.settings import load_settings
from lake.topics.topic_file import load_topics
from lakehouse.init import console_of, dbt_name, examples, init
from lakehouse.messages.publish import files_to_publish
from pulsar_spark.errors import SettingsError


def test_a_project_has_settings_topics_data_and_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "deep" / "my-plant"
    files = init(folder)
    assert {str(file) for file in files} >= {
        *("lakehouse.toml", "topics.toml", "README.md", ".gitignore", "sample/readings.csv"),
        *("dbt/profiles.yml", "dbt/models/staging/_silver__sources.yml"),
    }
    assert {*files} == {p.relative_to(folder) for p in folder.rglob("*") if p.is_file()}
    assert [*folder.parent.iterdir()] == [folder], "nothing temporary is left"
    declared = yaml.safe_load((folder / "dbt" / "dbt_project.yml").read_text())
    assert declared["name"] == "my_plant"
    assert [*declared["models"]] == ["my_plant"]
    monkeypatch.chdir(folder)
    settings = load_settings()
    assert settings.dbt_project.resolve() == folder / "dbt"
    found = files_to_publish(load_topics(settings.topics), Path("sample"))
    assert [topic.name for topic, _ in found] == ["sensors", "readings"]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="is not empty, and `lakehouse init` overwrites"):
        init(tmp_path)
    with pytest.raises(SettingsError, match="is a file"):
        init(tmp_path / "file")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert init(empty)
    with pytest.raises(SettingsError, match="is not empty"):
        init(empty)


def test_an_unknown_example_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no example 'shp'. The examples are .*start"):
        init(tmp_path / "x", example="shp")
    assert [*tmp_path.iterdir()] == []


def test_an_existing_dbt_project_is_used_and_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dbt = tmp_path / 'their "dbt"'
    dbt.mkdir()
    with pytest.raises(SettingsError, match="holds no dbt project"):
        init(tmp_path / "x", dbt=dbt)
    (dbt / "dbt_project.yml").write_text("name: theirs\n")
    folder = tmp_path / "x"
    files = init(folder, dbt=dbt)
    assert not any(file.parts[0] == "dbt" for file in files)
    monkeypatch.chdir(folder)
    assert load_settings().dbt_project == dbt
    assert [*dbt.iterdir()] == [dbt / "dbt_project.yml"]


@pytest.mark.parametrize(
    ("name", "expected"), [("acme", "acme"), ("My Plant-2", "my_plant_2"), ("7up", "_7up")]
)
def test_names_of_folders_become_names_that_dbt_allows(name: str, expected: str) -> None:
    assert dbt_name(name) == expected


def test_each_example_is_a_project(tmp_path: Path) -> None:
    for name in examples():
        init(tmp_path / name, example=name)
        topics = load_topics(tmp_path / name / "topics.toml")
        assert files_to_publish(topics, tmp_path / name / "sample"), name


def test_the_address_of_the_console_is_known_before_the_project_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOUSE_CACHE", str(tmp_path / "cache"))
    init(tmp_path / "plant")
    before = Path.cwd()
    assert console_of(tmp_path / "plant") == "http://127.0.0.1:8090"
    with (tmp_path / "plant" / "lakehouse.toml").open("a") as settings:
        settings.write("console_port = 8123\n")
    assert console_of(tmp_path / "plant") == "http://127.0.0.1:8123"
    monkeypatch.setenv("LAKEHOUSE_CONSOLE_PORT", "no port")
    assert console_of(tmp_path / "plant") == "printed at the start"
    assert Path.cwd() == before
