"""Topic declarations: which topics there are, and what their messages mean.

A topic file (TOML) is the one place where topics are described; `shop.toml` is the default and
an example. Bronze uses names and partitions; silver uses keys, fields and lookups.
"""

import re
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from bronze.errors import SettingsError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DECIMAL = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")
SIMPLE_TYPES = (
    *("boolean", "int", "long", "double", "string", "binary"),
    *("date", "timestamp", "timestamp_ms"),
)


def snake_case(name: str) -> str:
    """`parentUserId` -> `parent_user_id`: the column of a JSON field."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def _field_type(value: str) -> str:
    decimal = DECIMAL.fullmatch(value)
    if value in SIMPLE_TYPES or (decimal and int(decimal[2]) <= int(decimal[1]) <= 38):
        return value
    message = f"'{value}' is no type; use one of {', '.join(SIMPLE_TYPES)} or decimal(p,s)"
    raise ValueError(message)


Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,62}$")]


class Declaration(BaseModel):
    """Part of a topic file: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FieldSpec(Declaration):
    """One field. In JSON, `timestamp_ms` is epoch milliseconds UTC, `timestamp` is ISO 8601,
    `binary` is base64.

    A field must be there, and not null, unless `required = false`. Its value `absent` stands for
    "none" and becomes NULL.
    """

    type: Annotated[str, BeforeValidator(_field_type)]
    required: bool = True
    absent: int | str | None = None

    @property
    def nullable(self) -> bool:
        """Whether the column may be NULL."""
        return not self.required or self.absent is not None


class Lookup(Declaration):
    """The row of changelog `topic` whose key equals the field `on`."""

    topic: Name
    on: Name


class DeleteRule(Declaration):
    """A message of a changelog whose field has this value deletes its key, as `op` = `d` does."""

    field: Name
    equals: str | int | bool


def _field_spec(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


class Topic(Declaration):
    """One topic: `events` are facts, a `changelog` holds the state of its keys.

    schema: how payloads are read. `json` (default): JSON objects, whatever the broker's schema
        registry says. `registry`: as the schema version says that a message was published with:
        Avro, JSON or a primitive. `string`, `bytes`: bare values. A bare value is the one field
        beside the key, and the message key, split at `|`, is the key.
    delete: which messages of a changelog delete their key. `tombstone` (default): those without
        payload. `never`. Or `{ field = "op", equals = "d" }`: those, and tombstones.
    sequence: fields that order the messages of a key, the highest being the latest; among equals,
        and without it, their position decides.
    compacted: whether bronze reads the broker's compacted copy of a changelog, as far as it goes.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    name: Name
    kind: Literal["events", "changelog"]
    key: Annotated[list[Name], Field(min_length=1)]
    format: Annotated[Literal["json", "registry", "string", "bytes"], Field(alias="schema")] = (
        "json"
    )
    delete: Literal["tombstone", "never"] | DeleteRule = "tombstone"
    message_key: Name | None = None
    event_time: Name | None = None
    sequence: list[Name] = []
    partitions: Annotated[int, Field(ge=1, le=1024)] = 1
    compacted: bool = False
    fields: dict[Name, Annotated[FieldSpec, BeforeValidator(_field_spec)]]
    lookups: dict[Name, Lookup] = {}

    @model_validator(mode="after")
    def _names_are_fields(self) -> "Topic":
        named = [
            *self.key,
            *self.sequence,
            self.message_key,
            self.event_time,
            self.delete.field if isinstance(self.delete, DeleteRule) else None,
            *(x.on for x in self.lookups.values()),
        ]
        for name in named:
            if name is not None and name not in self.fields:
                message = f"topic '{self.name}' names '{name}', which is not among its fields"
                raise ValueError(message)
        for name in (*self.key, *self.sequence):
            if self.fields[name].nullable:
                message = f"topic '{self.name}': the field '{name}' must always be there"
                raise ValueError(message)
        if self.sequence and self.delete == "tombstone":
            message = (
                f"topic '{self.name}' has a sequence, and tombstones have no fields: set 'delete' "
                "to 'never' or to a field's value"
            )
            raise ValueError(message)
        if self.lookups and self.kind == "changelog":
            message = f"topic '{self.name}' is a changelog; only events have lookups"
            raise ValueError(message)
        for name in ("delete", "sequence", "compacted"):
            if self.kind == "events" and name in self.model_fields_set:
                message = f"topic '{self.name}' has events, which are all kept; drop '{name}'"
                raise ValueError(message)
        bare = {"string": "string", "bytes": "binary"}.get(self.format)
        if bare and [self.fields[name].type for name in self.values] != [bare]:
            message = (
                f"topic '{self.name}' has bare values (schema = '{self.format}'): beside its key "
                f"it needs one field, of type {bare}"
            )
            raise ValueError(message)
        return self

    @property
    def values(self) -> list[str]:
        """The fields beside the key."""
        return [name for name in self.fields if name not in self.key]

    @property
    def key_columns(self) -> list[str]:
        """The columns of the key."""
        return [snake_case(name) for name in self.key]


class TopicFile(Declaration):
    """All topics of a lake, by name."""

    topics: dict[Name, Topic]

    @model_validator(mode="before")
    @classmethod
    def _name_topics(cls, data: Any) -> Any:
        topics = data.get("topics") if isinstance(data, dict) else None
        if not isinstance(topics, dict):
            return data
        named = {k: {"name": k, **v} if isinstance(v, dict) else v for k, v in topics.items()}
        return {**data, "topics": named}

    @model_validator(mode="after")
    def _lookups_exist(self) -> "TopicFile":
        seen: dict[str, str] = {}
        for topic in self.topics.values():
            for name, lookup in topic.lookups.items():
                target = self.topics.get(lookup.topic)
                if target is None or target.kind != "changelog" or len(target.key) != 1:
                    message = (
                        f"lookup '{name}' of topic '{topic.name}' needs '{lookup.topic}' to be a "
                        "changelog of this file with a key of one field"
                    )
                    raise ValueError(message)
                if name in seen:
                    message = (
                        f"topics '{seen[name]}' and '{topic.name}' both have a lookup '{name}', "
                        f"which names the view missing_{name}; rename one"
                    )
                    raise ValueError(message)
                seen[name] = topic.name
        return self

    def changelogs(self) -> list[Topic]:
        """The topics that hold state, in the order of the file."""
        return [topic for topic in self.topics.values() if topic.kind == "changelog"]

    def events(self) -> list[Topic]:
        """The topics that hold facts, in the order of the file."""
        return [topic for topic in self.topics.values() if topic.kind == "events"]


def _line_of(text: str, name: str) -> str:
    pattern = re.compile(
        rf'((^|[{{,])\s*"?{re.escape(name)}"?\s*=)|(\[[^\]]*\b{re.escape(name)}\b[^\]]*\])'
    )
    for number, line in enumerate(text.splitlines(), start=1):
        if pattern.search(line):
            return f":{number}"
    return ""


def load_topics(path: Path) -> TopicFile:
    """Read and check a topic file.

    Raises:
        SettingsError: the file is absent, is no TOML, or declares something unknown or unfit;
            the message names file, line and key.
    """
    try:
        text = path.expanduser().read_text(encoding="utf-8")
        return TopicFile.model_validate(tomllib.loads(text))
    except OSError as error:
        message = (
            f"{path}: cannot read the topic file ({error.strerror}). Give another with --topics."
        )
        raise SettingsError(message) from error
    except tomllib.TOMLDecodeError as error:
        message = f"{path}: no valid TOML: {error}."
        raise SettingsError(message) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = [str(part) for part in first["loc"]]
        name = where[-1] if where else ""
        what = "unknown key" if first["type"] == "extra_forbidden" else first["msg"]
        message = f"{path}{_line_of(text, name)}: {'.'.join(where) or 'topic file'}: {what}."
        raise SettingsError(message) from error
