"""Tests the code in the Markdown files, as far as it can be checked without running it.

Other tests run the tutorial (e2e/test_projects.py) and the recipes for readers
(e2e/test_reading_gold.py). The docs of keys and metrics have tests of their own.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pytest
import sqlglot
import typer
import yaml
from markdown_it import MarkdownIt
from pydantic import ValidationError

from lake.settings.settings import LakeSettings, load_settings
from lake.topics.topic import Topic
from lake.topics.topic_file import TopicFile
from lakehouse.cli import app

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
FILES = sorted(
    file
    for place in ("*.md", "docs/**/*.md", "examples/**/README.md", "pulsar_spark/*.md")
    for file in ROOT.glob(place)
    if file.name != "CHANGELOG.md"  # which names what no longer exists
)
COMMAND = re.compile(r"^(?:\S+=\S+ )*(?:\S*/)?lakehouse( .*)?$")
TARGET = re.compile(r"^(?:\S+=\S+ )*make((?: [\w./=-]+)+)$")
MODULE = re.compile(r"# (\w+/\w+\.py)\b")  # the first line of a file in Python
# Errors of a part of a topic file, because the rest of it is not printed.
OF_A_PART = re.compile("Field required|which is not among its fields|a changelog in this file")


@dataclass(frozen=True)
class Snippet:
    """A piece of code in a Markdown file."""

    file: Path
    line: int
    language: str  # empty if none is named, and `inline` within a sentence
    text: str

    @property
    def place(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}"


def snippets() -> Iterator[Snippet]:
    for file in FILES:
        for token in MarkdownIt("commonmark").enable("table").parse(file.read_text()):
            line = (token.map or [0])[0] + 1
            if token.type in ("fence", "code_block"):
                yield Snippet(file, line, token.info, token.content)
            for child in token.children or ():
                if child.type == "code_inline":
                    yield Snippet(file, line, "inline", child.content)


ALL = list(snippets())


def of(*languages: str) -> list[Any]:
    found = [each for each in ALL if each.language in languages]
    return [pytest.param(each, id=each.place) for each in found]


@pytest.mark.parametrize("snippet", of("python"))
def test_python_compiles(snippet: Snippet) -> None:
    compile(snippet.text, snippet.place, "exec")


@pytest.mark.parametrize("snippet", of("yaml"))
def test_yaml_is_valid(snippet: Snippet) -> None:
    assert yaml.safe_load(snippet.text)


@pytest.mark.parametrize("snippet", of("sql"))
def test_sql_is_valid(snippet: Snippet) -> None:
    macros = {"config": lambda **_: "", "ref": str, "source": lambda *names: ".".join(names)}
    sql = jinja2.Environment(autoescape=False).from_string(snippet.text).render(macros)  # noqa: S701
    assert all(sqlglot.parse(sql, dialect="spark"))


@pytest.mark.parametrize("snippet", of("toml"))
def test_toml_has_only_keys_and_values_that_the_product_accepts(
    snippet: Snippet, tmp_path: Path
) -> None:
    """A part of a topic file may lack keys, but no key may be wrong."""
    for each in ALL:
        if each.file == snippet.file and (named := MODULE.match(each.text)):
            (tmp_path / named[1]).parent.mkdir(exist_ok=True)
            (tmp_path / named[1]).write_text(each.text)
    found = tomllib.loads(snippet.text)
    models: tuple[Any, ...] = (TopicFile, LakeSettings, Topic)
    model = next(each for each in models if found.keys() <= _keys(each))
    if model is LakeSettings:
        assert load_settings(**found)
        return
    errors: list[Any] = []
    try:
        model.model_validate(found, context={"folder": tmp_path})
    except ValidationError as error:
        errors = error.errors()
    assert [each for each in errors if not OF_A_PART.search(each["msg"])] == []


def _keys(model: Any) -> set[str]:
    """Return the keys of a declaration as they are written."""
    return {name for each, field in model.model_fields.items() for name in (each, field.alias)}


@pytest.mark.parametrize("snippet", of("sh"))
def test_a_shell_can_read_what_it_should_run(snippet: Snippet) -> None:
    subprocess.run(["bash", "-n"], input=snippet.text, text=True, check=True)


def lines(*languages: str) -> Iterator[tuple[Snippet, str]]:
    for snippet in ALL:
        if snippet.language in languages:
            for line in snippet.text.replace("\\\n", " ").splitlines():
                yield snippet, line.partition("  #")[0].strip()


def test_each_printed_command_has_these_options() -> None:
    root = typer.main.get_command(app)
    checked, wrong = 0, []
    for snippet, line in lines("", "sh", "inline"):
        if not COMMAND.match(line) or "…" in line:
            continue
        words = shlex.split(line)
        words = words[[word.split("/")[-1] for word in words].index("lakehouse") + 1 :]
        checked += 1
        if problem := refused(root, words):
            wrong.append(f"{snippet.place}: `{line}`: {problem}")
    assert checked > 200
    assert wrong == []


def refused(command: Any, words: list[str]) -> str | None:
    """Why the command line would refuse these words, which may leave out or stand for values."""
    options = dict(options_of(command))
    left = iter(words)
    for word in left:
        if word.startswith("-"):
            name, given, _ = word.partition("=")
            if name not in options:
                return f"there is no option {name}"
            if not options[name].is_flag and not given:
                next(left, None)  # its value
        elif commands := getattr(command, "commands", None):
            if word in commands:
                command = commands[word]
                options = dict(options_of(command))
            elif not word.isupper() and word != "...":
                return f"there is no command {word}"
    return None


def options_of(command: Any) -> Iterator[tuple[str, Any]]:
    for parameter in command.get_params(typer.Context(command)):
        for name in (*parameter.opts, *parameter.secondary_opts):
            yield name, parameter


def test_each_printed_target_of_make_exists() -> None:
    known = {
        name
        for line in (ROOT / "Makefile").read_text().splitlines()
        if (found := re.match(r"([\w $()/-]+):(?!=)", line))
        for name in found[1].replace("$(VENV)", ".venv").split()
    }
    named = [
        (snippet.place, word)
        for snippet, line in lines("", "sh", "inline")
        if (found := TARGET.match(line))
        for word in found[1].split()
        if "=" not in word and not word.startswith("-")
    ]
    assert len(named) > 20
    assert [each for each in named if each[1] not in known] == []


def test_the_check_of_commands_finds_what_is_wrong() -> None:
    root = typer.main.get_command(app)
    assert refused(root, ["gold", "explain", "MODEL"]) is None
    assert refused(root, ["gold", "--serve", "--every", "5m"]) is None
    assert refused(root, ["--topics", "FILE", "..."]) is None
    assert refused(root, ["--topics", "FILE", "gold", "--nope"]) == "there is no option --nope"
    assert refused(root, ["replay", "--table", "bronze.orders", "--from", "T"]) is None
    assert refused(root, ["gold", "--nope"]) == "there is no option --nope"
    assert refused(root, ["golde"]) == "there is no command golde"
    assert refused(root, ["quarantine", "forget"]) == "there is no command forget"


def test_all_kinds_of_code_are_found() -> None:
    """A block whose language no test knows would not be checked."""
    known = {"", "inline", "csv", "console", "python", "sh", "sql", "text", "toml", "yaml"}
    assert {each.language for each in ALL} == known
