"""Tests that settings and topics are read once, when a command first needs them."""

from pathlib import Path

import pytest

from lake.settings.settings import SHOP_TOPICS
from lakehouse.runtime.context import Context
from pulsar_spark.errors import SettingsError


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_global_options_win_and_each_run_begins_anew(tmp_path: Path) -> None:
    context = Context()
    context.begin(home=tmp_path / "one", topics=SHOP_TOPICS)
    assert context.settings.home_dir == tmp_path / "one"
    assert context.lake is context.lake
    assert [*context.topics.topics] == ["users", "items", "orders"]
    context.begin(home=tmp_path / "two")
    assert context.settings.home_dir == tmp_path / "two"


def test_an_error_comes_with_the_first_use_and_not_before(tmp_path: Path) -> None:
    context = Context()
    context.begin(topics=tmp_path / "none.toml")
    with pytest.raises(SettingsError, match="cannot read the topic file"):
        _ = context.settings
