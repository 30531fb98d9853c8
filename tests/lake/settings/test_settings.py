"""Tests the precedence of settings, and that errors name the invalid setting."""

from pathlib import Path

import pytest

from lake.settings.settings import load_settings
from pulsar_spark.errors import SettingsError

SECRET = "of the tests, and of no use elsewhere"  # noqa: S105  # pragma: allowlist secret


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    # The default ports are free, whatever projects the user of this machine has.
    monkeypatch.setenv("LAKEHOUSE_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_the_command_line_overrides_the_environment_which_overrides_the_file(
    empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_settings().sql_port == 10_000
    (empty_folder / "lakehouse.toml").write_text("sql_port = 1\ntrigger = '5 seconds'\n")
    assert load_settings().sql_port == 1
    monkeypatch.setenv("LAKEHOUSE_SQL_PORT", "2")
    assert load_settings().sql_port == 2
    assert load_settings(sql_port=3).sql_port == 3
    assert load_settings(sql_port=None).sql_port == 2
    assert load_settings().trigger == "5 seconds"


def test_the_lake_is_below_home_unless_it_is_set(empty_folder: Path) -> None:
    assert load_settings().lake_dir == empty_folder / ".lakehouse" / "lake"
    assert load_settings(lake=empty_folder / "x").lake_dir == empty_folder / "x"


def test_an_unknown_name_in_the_file_is_refused(empty_folder: Path) -> None:
    (empty_folder / "lakehouse.toml").write_text("sqlport = 1\n")
    with pytest.raises(SettingsError, match="'sqlport'"):
        load_settings()


def test_a_file_that_is_not_toml_is_refused(empty_folder: Path) -> None:
    (empty_folder / "lakehouse.toml").write_text("sql_port 1\n")
    with pytest.raises(SettingsError, match="lakehouse.toml"):
        load_settings()


def test_an_invalid_value_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_SQL_PORT", "70000")
    with pytest.raises(SettingsError, match="Setting 'sql_port'.*LAKEHOUSE_SQL_PORT"):
        load_settings()


@pytest.mark.parametrize("name", ["home", "lake"])
@pytest.mark.parametrize(
    "address",
    ["s3a://bucket/lake", "gs://bucket", "hdfs://host:8020/lake", "s3://bucket/..", "s3://b'x/y"],
)
def test_an_address_of_an_unsupported_store_is_refused(name: str, address: str) -> None:
    known = "a folder or s3://BUCKET/PREFIX" if name == "lake" else "a folder"
    refusal = rf"Setting '{name}'.* is an address that is not supported: name {known}, see docs"
    with pytest.raises(SettingsError, match=refusal):
        load_settings(**{name: address})


def test_tables_may_be_in_a_bucket_but_checkpoints_may_not(
    empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOUSE_LAKE", "s3://bucket/some/prefix/")
    settings = load_settings()
    assert settings.table_path("bronze", "orders") == "s3://bucket/some/prefix/bronze/orders"
    folder = empty_folder / ".lakehouse" / "lake"
    assert settings.checkpoint_path("silver") == str(folder / "_checkpoints" / "silver")
    (empty_folder / "lakehouse.toml").write_text("accept_data_loss = true\n")
    assert load_settings().accept_data_loss
    assert load_settings(lake=empty_folder).accept_data_loss


def test_the_pseudonym_secret_is_neither_a_plain_setting_nor_guessable(
    empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_settings().pseudonyms is None
    (empty_folder / "lakehouse.toml").write_text(f"pseudonym_secret = '{SECRET}'\n")
    with pytest.raises(SettingsError, match="named by pseudonym_secret_file") as refused:
        load_settings()
    assert SECRET not in str(refused.value)
    (empty_folder / "lakehouse.toml").unlink()
    monkeypatch.setenv("LAKEHOUSE_PSEUDONYM_SECRET", SECRET)
    settings = load_settings()
    assert SECRET not in repr(settings)
    assert settings.pseudonyms is not None
    assert settings.pseudonyms.read() == SECRET.encode()
    assert SECRET not in repr(settings.pseudonyms)
    file = empty_folder / "secret"
    file.write_text("too short\n")
    with pytest.raises(SettingsError, match="set one of them"):
        _ = load_settings(pseudonym_secret_file=file).pseudonyms
    monkeypatch.delenv("LAKEHOUSE_PSEUDONYM_SECRET")
    short = load_settings(pseudonym_secret_file=file).pseudonyms
    assert short is not None
    with pytest.raises(SettingsError, match="fewer than 16 characters, so it can be guessed"):
        short.read()
    file.unlink()
    with pytest.raises(SettingsError, match="cannot be read from"):
        short.read()
