"""Tests how the application that a topic file names is loaded, and what needs one."""

import csv
import sys
from pathlib import Path

import pytest

from lake.settings.settings import SHOP_TOPICS
from lake.topics.topic_file import TopicFile, load_topics
from lakehouse.application import NEEDED, load_application, require_application
from pulsar_spark.errors import SettingsError
from shop import application as shop

BANK = Path(__file__).parents[2] / "examples" / "bank" / "topics.toml"


def naming(module: str, folder: Path) -> TopicFile:
    """Return the bank's topics with an application."""
    file = folder / "topics.toml"
    file.write_text(f'application = "{module}"\n{BANK.read_text()}')
    return load_topics(file)


def test_the_shop_is_the_application_of_its_topic_file() -> None:
    assert load_application(load_topics(SHOP_TOPICS)) is shop


def test_a_topic_file_need_not_name_an_application() -> None:
    bank = load_topics(BANK)
    assert load_application(bank) is None
    with pytest.raises(SettingsError, match="lakehouse demo needs an application") as refused:
        require_application(bank, "lakehouse demo")
    assert "name a module in yours" in str(refused.value)


def test_a_module_that_does_not_exist_is_refused_by_name(tmp_path: Path) -> None:
    topics = naming("no_such_bank", tmp_path)
    with pytest.raises(SettingsError, match="application no_such_bank of the topic file") as no:
        load_application(topics)
    assert "Correct 'application' in the topic file" in str(no.value)


def test_a_module_that_lacks_a_part_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="json is no application, because it lacks generate"):
        load_application(naming("json", tmp_path))


def test_a_domain_of_ones_own_brings_its_own_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"def {name}(*given): return given" for name in NEEDED]
    (tmp_path / "own_bank.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    found = require_application(naming("own_bank", tmp_path), "lakehouse demo")
    assert found.generate(tmp_path, 1.0, 7) == (tmp_path, 1.0, 7)
    del sys.modules["own_bank"]


def test_the_shop_counts_the_rows_it_writes(tmp_path: Path) -> None:
    counts = shop.generate(tmp_path, 0.002, 3)
    for what, name in (("users", "users"), ("items", "items"), ("order lines", "orders")):
        with (tmp_path / f"{name}.csv").open() as rows:
            assert counts[what] == len(list(csv.DictReader(rows))) > 0
