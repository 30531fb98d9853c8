"""Tests what is read from the files of a dbt project."""

from pathlib import Path

import pytest

from gold.dbt.project import DbtProject
from lake.settings.settings import SHOP_DBT, LakeSettings, load_settings
from pulsar_spark.errors import SettingsError


def project(folder: Path, text: str = "name: x\nprofile: y\n") -> DbtProject:
    folder.mkdir(exist_ok=True)
    (folder / "dbt_project.yml").write_text(text)
    return DbtProject.of(load_settings(dbt_project=folder))


def test_a_folder_without_a_project_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="holds no dbt project.*LAKEHOUSE_DBT_PROJECT"):
        DbtProject.of(load_settings(dbt_project=tmp_path))
    with pytest.raises(SettingsError, match="dbt_project.yml is not valid YAML"):
        project(tmp_path, "name: [")
    with pytest.raises(SettingsError, match="declares nothing"):
        project(tmp_path, "")


def test_the_shop_is_the_project_by_default(settings: LakeSettings) -> None:
    found = DbtProject.of(settings)
    assert found.folder == SHOP_DBT
    assert found.environment == {"DBT_PROFILES_DIR": str(SHOP_DBT)}


def test_a_project_without_a_profile_gets_the_shipped_one(tmp_path: Path) -> None:
    found = project(tmp_path)
    assert found.environment == {"DBT_PROFILES_DIR": str(SHOP_DBT), "DBT_PROFILE": "lakehouse"}
    (tmp_path / "profiles.yml").touch()
    assert found.environment == {"DBT_PROFILES_DIR": str(tmp_path)}


def test_the_checksum_follows_what_decides_the_rows(tmp_path: Path) -> None:
    text = "name: x\nprofile: y\nmodel-paths: [sql]\n"
    found = project(tmp_path, text)
    seen = [found.checksum({})]
    for name in ("sql/a.sql", "macros/b.sql", "seeds/c.csv", "snapshots/d.sql"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("select 1")
        seen.append(found.checksum({}))
    (tmp_path / "dbt_packages" / "p").mkdir(parents=True)
    (tmp_path / "dbt_packages" / "p" / "e.sql").write_text("select 2")
    seen += [found.checksum({}), found.checksum({"silver.users_state": "mask"})]
    seen.append(project(tmp_path, f"{text}vars: {{x: 1}}\n").checksum({}))
    assert len({*seen}) == len(seen)

    found = project(tmp_path, text)
    before, tests = found.checksum({}), found.checksum_of_tests()
    for name in ("sql/a.yml", "models/unused.sql", "tests/t.sql"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("select 3")
    assert project(tmp_path, text).checksum({}) == before
    assert found.checksum_of_tests() != tests
