"""Write the pages of `docs/reference` from the code: `make reference`.

The pages are committed, so readers on GitHub have them. `tests/docs/test_reference.py` fails if
they differ from the code.
"""

import datetime as dt
import inspect
import re
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel, BeforeValidator, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typer.cli import get_docs_for_click

from lake.settings.catalog import CatalogSettings
from lake.settings.console import ConsoleSettings
from lake.settings.lineage import LineageSettings
from lake.settings.s3 import S3Settings
from lake.settings.settings import SHOP_DBT, SHOP_TOPICS, LakeSettings
from lake.settings.spark import SparkSettings
from lake.settings.sql import RoleSettings, SqlSettings
from lake.topics.changelog_rules import Columns
from lake.topics.field_spec import FieldSpec
from lake.topics.lookups import Lookup
from lake.topics.sink import Export, Import, KindField, Publish
from lake.topics.topic import CHANGELOG_ONLY, Explode, Function, Rule, Topic, View
from lake.topics.topic_file import TopicFile
from lake.topics.views.joins import Join, Within
from lakehouse.cli import app
from pulsar_spark.broker.connection import Connection
from pulsar_spark.options import PulsarOptions
from pulsar_spark.sink import SinkOptions

FOLDER = Path(__file__).with_name("reference")
GENERATED = "<!-- `make reference` writes this page from the code. -->"
SHIPPED = {SHOP_TOPICS: "the shop's topics", SHOP_DBT: "the shop's models"}
# The tables of a topic file: where they are, and what declares them.
TABLES: dict[type[BaseModel], tuple[str, str]] = {
    TopicFile: ("The file", "The top of the file."),
    Topic: ("Topic", "`[topics.<name>]`"),
    FieldSpec: ("Field", "`[topics.<name>.fields]`: a type, or a table with these keys."),
    Lookup: ("Lookup", "`[topics.<name>.lookups]`"),
    Rule: ("Rule", "The value of `delete`, `truncate` and `snapshot_end`."),
    Columns: ("Fields of a changelog", "The value of `history` and `ignore_null_updates`."),
    Explode: ("Explode", "The value of `explode`."),
    Function: ("Function", "`[functions.<name>]`"),
    Join: ("Join", "`[joins.<name>]`"),
    Within: ("Interval", "The value of `within` of a join."),
    View: ("View", "`[views.<name>]`"),
    Publish: ("Sink to a topic", "`[publish.<name>]`"),
    KindField: ("Kind of change", "The value of `deletes` of a sink to a topic."),
    Export: ("Sink to PostgreSQL", "`[export.<name>]`"),
    Import: ("Import", "`[import.<name of a changelog>]`"),
}
ENTRY = re.compile(r"^(?P<names>\w+(?:, \w+)*): (?P<text>.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
NAMED = "name of a "
SUMMARY = re.compile(r"^\* `([\w-]+)`: .*$", re.MULTILINE)


def commands() -> str:
    """The help of all commands."""
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="lakehouse")
    text = get_docs_for_click(obj=command, ctx=context, name="lakehouse", title="Commands")
    parts = re.split(r"(?=^##? )", text, flags=re.MULTILINE)
    return (
        "".join(_linked(part, command) for part in parts)
        .replace("&#x27;", "'")
        .replace("&quot;", '"')
    )


def _linked(part: str, command: Any) -> str:
    """A part of the help, whose list of commands gives whole sentences and leads to them."""
    title = re.match(r"##? `([\w -]+)`", part)
    path = title[1].split()[1:] if title else []
    for name in path:
        command = command.commands.get(name) or command
    prefix = " ".join(["lakehouse", *path])

    def line(found: re.Match[str]) -> str:
        sub = getattr(command, "commands", {}).get(found[1])
        if sub is None:
            return found[0]
        words = inspect.cleandoc(sub.help).partition("\n\n")[0].replace("\n", " ")
        anchor = f"{prefix} {found[1]}".replace(" ", "-")
        return f"* [`{prefix} {found[1]}`](#{anchor}): {words}"

    return SUMMARY.sub(line, part)


def settings() -> str:
    """The tables of all settings."""
    own = {
        name: field
        for name, field in LakeSettings.model_fields.items()
        if not any(name in base.model_fields for base in _PARTS)
    }
    broker = {name: field for name, field in own.items() if name.startswith("pulsar_")}
    rest = {name: field for name, field in own.items() if name not in broker}
    text = [
        "# Settings",
        "A setting has the same name in `lakehouse.toml`, without the prefix and in small letters: "
        '`LAKEHOUSE_PULSAR_URL` is `pulsar_url = "..."` there. The command line takes precedence '
        "over the environment, the environment over the file, and the file over the default. "
        "Unknown names are refused. In the environment, a table is written as JSON.",
        *_settings("The lake", rest),
        *_settings("The broker", broker),
    ]
    for base, title in _PARTS.items():
        text += _settings(title, base.model_fields)
    text += [
        "## Roles of the SQL endpoint",
        "Each table in `sql_roles`, such as `[sql_roles.reader]`, has these keys.",
        _table(
            ("key", "value", "default", "meaning"),
            (
                (f"`{name}`", value(field), default(field), str(field.description))
                for name, field in RoleSettings.model_fields.items()
            ),
        ),
    ]
    return "\n\n".join(text) + "\n"


_PARTS: dict[type[BaseModel], str] = {
    SqlSettings: "The SQL endpoint",
    ConsoleSettings: "The console",
    CatalogSettings: "The catalog",
    LineageSettings: "Lineage",
    S3Settings: "The bucket",
    SparkSettings: "Spark on one machine",
}


def _settings(title: str, fields: Mapping[str, FieldInfo]) -> list[str]:
    rows = (
        (f"`LAKEHOUSE_{name.upper()}`", value(field), default(field), str(field.description))
        for name, field in fields.items()
    )
    return [f"## {title}", _table(("variable", "value", "default", "meaning"), rows)]


def topic_file() -> str:
    """The tables of all keys of a topic file."""
    text = [
        "# Keys of a topic file",
        "[Topic files](../topic-files.md) explains what the keys do and how they go together, and "
        "[Sinks](../sinks.md) those of sinks, and [Imports](../imports.md) those of imports. "
        "Unknown keys are refused.",
    ]
    for model, (title, place) in TABLES.items():
        rows = (
            (f"`{key}`", value(field), default(field), meaning(model, key))
            for key, field in keys(model).items()
        )
        text += [f"## {title}", place, _table(("key", "value", "default", "meaning"), rows)]
    return "\n\n".join(text) + "\n"


def keys(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The keys of a table, as they are written in the file."""
    named = {field.alias or name: field for name, field in model.model_fields.items()}
    return {key: field for key, field in named.items() if key != "name" and field.repr}


def meaning(model: type[BaseModel], key: str) -> str:
    """What a key means, from the docstring of its class.

    Raises:
        LookupError: the docstring does not describe it.
    """
    words = _described(model).get(key)
    if not words:
        message = f"Describe '{key}' in the docstring of {model.__name__}."
        raise LookupError(message)
    only = "For changelogs: " if model is Topic and key in CHANGELOG_ONLY else ""
    return only + words if only else words[0].upper() + words[1:]


def _described(model: type[BaseModel]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if each is BaseModel or not issubclass(each, BaseModel):
            continue
        for entry in ENTRY.finditer(inspect.getdoc(each) or ""):
            words = " ".join(entry["text"].split())
            names = entry["names"].split(", ")
            found |= {{"source": "from"}.get(name, name): words for name in names}
    return found


def value(field: FieldInfo) -> str:
    """What may be written, in words."""
    return _restricted(field.annotation, field.metadata)


def _restricted(kind: Any, metadata: Sequence[Any]) -> str:
    """A type in words, with the limits that pydantic checks."""
    checks = [part for each in metadata for part in getattr(each, "metadata", [each])]
    if get_origin(kind) is tuple and any(isinstance(each, BeforeValidator) for each in checks):
        return f"text or {_value(kind)}"  # the validator makes a list of a single text
    said = {"ge": "at least", "gt": "more than", "le": "at most"}
    bounds = (
        f"{words} {limit}"
        for each in checks
        for name, words in said.items()
        if (limit := getattr(each, name, None)) is not None
    )
    return ", ".join([_value(kind), *bounds])


def _value(kind: Any) -> str:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _restricted(parts[0], parts[1:])
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_value(part) for part in parts if part is not type(None)))
    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if origin in (list, tuple):
        return f"list of {_plural(_value(parts[0]))}"
    if origin is dict:
        return f"table of {_plural(_value(parts[1]).removeprefix(NAMED))}"
    if kind in TABLES:
        title = TABLES[kind][0]
        link = f"[{title[0].lower()}{title[1:]}](#{title.lower().replace(' ', '-')})"
        shown = {
            Columns: f"`true`, `false` or {link}",
            FieldSpec: f"text or {link}",
            Function: NAMED + link,
        }
        return shown.get(kind, link)
    names: dict[Any, str] = {
        bool: "`true`, `false`",
        int: "integer",
        float: "number",
        str: "text",
        Path: "path",
        SecretStr: "secret",  # pragma: allowlist secret
        dt.timedelta: "duration",
        RoleSettings: "table",
    }
    if kind not in names:
        message = f"Add {kind} to TABLES, or to the names of simple types."
        raise LookupError(message)
    return names[kind]


def _plural(words: str) -> str:
    plurals = {"text": "texts", "table": "tables"}
    return plurals.get(words, words)


def default(field: FieldInfo) -> str:
    """The default, as it would be written."""
    if field.is_required():
        return "required"
    found = field.default
    if found in (None, PydanticUndefined, "") or found in ([], {}, ()):
        return ""
    if isinstance(found, Path) and found in SHIPPED:
        return SHIPPED[found]
    if isinstance(found, bool):
        return f"`{str(found).lower()}`"
    if isinstance(found, dt.timedelta):
        return f"`{found.total_seconds():g} seconds`"
    return f"`{found}`"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *(map(_cell, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    """Escape what would end a cell, or would be read as HTML outside code."""
    parts = text.replace("|", "\\|").split("`")
    return "`".join(part if i % 2 else part.replace("<", "&lt;") for i, part in enumerate(parts))


def pulsar_spark() -> str:
    """The tables of the options of `format("pulsar")`, from the docstrings of their classes."""
    parts = {
        "What to read": PulsarOptions,
        "The broker": Connection,
        "Where to write": SinkOptions,
    }
    text = [
        "# Options of pulsar-spark",
        "[The Pulsar source](../pulsar-source.md) explains them. The options of the broker are the "
        "same for reading and writing. Unknown options are refused.",
    ]
    for title, model in parts.items():
        rows = (
            (", ".join(f"`{name}`" for name in entry["names"].split(", ")), _sentence(entry))
            for entry in ENTRY.finditer(inspect.getdoc(model) or "")
        )
        text += [f"## {title}", _table(("option", "meaning"), rows)]
    return "\n\n".join(text) + "\n"


def _sentence(entry: re.Match[str]) -> str:
    words = " ".join(entry["text"].split())
    return words[0].upper() + words[1:]


PAGES = {
    "commands.md": commands,
    "settings.md": settings,
    "topic-file.md": topic_file,
    "pulsar-spark.md": pulsar_spark,
}


def main() -> None:
    """Write all pages."""
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(with_note(page()))


def with_note(text: str) -> str:
    """The page with a note, below its title, that it is generated."""
    title, _, rest = text.partition("\n")
    return f"{title}\n\n{GENERATED}\n{rest.rstrip()}\n"


if __name__ == "__main__":
    main()
