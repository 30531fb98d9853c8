"""Tests that docs/reference is what `make reference` writes, and that it is complete."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pulsar_spark import options, sink

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "reference"
ROW = re.compile(r"^\| `(?P<name>[^`]+)` \| (?P<rest>.*) \|$", re.MULTILINE)
EXAMPLES = [ROOT / "shop" / "topics.toml", *sorted((ROOT / "examples").glob("*/topics.toml"))]


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    """The pages that the script would write."""
    place = ROOT / "docs" / "write_reference.py"
    spec = importlib.util.spec_from_file_location("write_reference", place)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: module.with_note(page()) for name, page in module.PAGES.items()}


def rows(page: str) -> dict[str, str]:
    return {row["name"]: row["rest"] for row in ROW.finditer((PAGES / page).read_text())}


@pytest.mark.parametrize("name", ["commands.md", "settings.md", "topic-file.md", "pulsar-spark.md"])
def test_the_pages_are_those_of_the_code(written: dict[str, str], name: str) -> None:
    assert (PAGES / name).read_text() == written[name], "run `make reference`"


def test_a_setting_has_its_type_default_and_meaning() -> None:
    found = rows("settings.md")
    assert found["LAKEHOUSE_SQL_PORT"] == (
        "integer, at least 1, at most 65535 | `10000` | Port of the SQL endpoint (Thrift/JDBC)"
    )
    assert found["LAKEHOUSE_PULSAR_TOKEN"].startswith("secret |  | JWT for the broker")
    assert found["LAKEHOUSE_TOPICS"] == "path | the shop's topics | Topic file (TOML)"
    assert found["LAKEHOUSE_SQL_AUTHENTICATION"].startswith("`none`, `password`, `ldap` | `none`")


def test_each_option_of_the_source_and_the_sink_is_listed() -> None:
    found = {*re.findall(r"`(\w+)`", (PAGES / "pulsar-spark.md").read_text())}
    of_spark = {"checkpointLocation"}
    assert {*options.KNOWN, *sink.KNOWN} - of_spark <= found


def test_each_variable_that_the_docs_mention_is_listed() -> None:
    found = rows("settings.md")
    texts = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    named = {
        name
        for text in texts
        for name in re.findall(r"LAKEHOUSE_[A-Z0-9]+(?:_[A-Z0-9]+)*\b(?!_)", text.read_text())
    }
    assert len(named) > 30
    others = {  # which are no settings of ours
        *("LAKEHOUSE_DBT_SCHEMA", "LAKEHOUSE_DECLARED_TOPICS", "LAKEHOUSE_SQL"),
        "LAKEHOUSE_IMAGE",
    }
    assert named - others <= found.keys()


def test_each_key_of_the_examples_is_listed() -> None:
    """Tables by the headings of the page, against files that the product loads."""
    parts = re.split(r"^## ", (PAGES / "topic-file.md").read_text(), flags=re.MULTILINE)
    tables = {
        part.partition("\n")[0]: {row["name"] for row in ROW.finditer(part)} for part in parts
    }
    seen = set[str]()

    def check(title: str, table: object) -> None:
        assert isinstance(table, dict)
        assert table.keys() <= tables[title], title
        seen.add(title)

    for place in EXAMPLES:
        file = tomllib.loads(place.read_text())
        check("The file", file)
        for topic in file["topics"].values():
            check("Topic", topic)
            for name, title in (("fields", "Field"), ("lookups", "Lookup")):
                for each in topic.get(name, {}).values():
                    if not isinstance(each, str):
                        check(title, each)
        kinds = {"joins": "Join", "views": "View", "publish": "Sink to a topic"}
        for kind, title in kinds.items():
            for each in file.get(kind, {}).values():
                check(title, each)
    assert seen == {"The file", "Topic", "Field", "Lookup", "Join", "View", "Sink to a topic"}


@pytest.mark.parametrize(
    "command", ["up", "gold explain", "quarantine replay", "sql-user add"], ids=str.split
)
def test_the_options_of_a_command_are_those_of_its_help(command: str) -> None:
    text = (PAGES / "commands.md").read_text()
    part = re.split(rf"^#+ `lakehouse {command}`$", text, flags=re.MULTILINE)[1]
    listed = {*re.findall(r"^\* `(--[\w-]+)", re.split(r"^#", part, flags=re.MULTILINE)[0], re.M)}
    done = subprocess.run(
        [Path(sys.executable).with_name("lakehouse"), *command.split(), "--help"],
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert listed == {*re.findall(r"^\W*(--[\w-]+)", done.stdout, re.MULTILINE)}
    assert "--help" in listed
