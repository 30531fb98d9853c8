"""Tests which sinks a command runs, and what is refused before anything is started."""

from pathlib import Path

import pytest
from topic import GOOD, declared

from lake.settings.settings import load_settings
from lake.tables.lake import Lake
from lake.topics.topic_file import TopicFile
from lakehouse.sinks.running import check_sinks, chosen, run_sinks
from lakehouse.sinks.running import declared as declared_sinks
from pulsar_spark.errors import SettingsError

SINKS = """
[publish.out]
from = "silver.users"
key = ["id"]
[export.copy]
from = "silver.users"
table = "public.users"
key = ["id"]
url_env = "NO_SUCH_VARIABLE"
[export.out]
from = "silver.users"
table = "public.others"
key = ["id"]
url_file = "no-such-file"
"""


@pytest.fixture
def topics(tmp_path: Path) -> TopicFile:
    return declared(tmp_path, GOOD + SINKS)


def test_a_name_chooses_all_sinks_that_have_it(topics: TopicFile) -> None:
    def names(*wanted: str) -> list[list[str]]:
        return [[sink.name for sink in part] for part in chosen(topics, wanted)]

    assert names() == [["out"], ["copy", "out"]]
    assert names("out") == [["out"], ["out"]]
    assert names("copy") == [[], ["copy"]]


def test_unknown_sinks_and_a_file_without_sinks_are_refused(
    topics: TopicFile, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match="no sink 'other'. It has out, copy"):
        chosen(topics, ["other"])
    with pytest.raises(SettingsError, match="declares no sinks"):
        chosen(declared(tmp_path, GOOD))
    assert declared_sinks(Lake(load_settings(), declared(tmp_path, GOOD))) == ([], [])


def test_an_address_that_cannot_be_read_is_refused_before_anything_starts(
    topics: TopicFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(load_settings(), topics)
    with pytest.raises(SettingsError, match=r"export\.copy\.url_env: .*NO_SUCH_VARIABLE is not"):
        check_sinks(lake, declared_sinks(lake))
    monkeypatch.setenv("NO_SUCH_VARIABLE", "postgresql://host/db")
    with pytest.raises(SettingsError, match=r"export\.out\.url_file: the file no-such-file does"):
        check_sinks(lake, declared_sinks(lake))


def test_sinks_to_databases_need_no_spark(
    topics: TopicFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_SUCH_VARIABLE", "postgresql://host/db")
    lake = Lake(load_settings(), topics)
    streams = run_sinks(None, lake, chosen(topics, ["copy"]))
    assert [stream.name for stream in streams] == ["export.copy"]
