"""What a topic file may declare about sinks, whose tables leave the lake, and about imports.

`topic_file.py` reads the file, and `sink_source.py` finds the tables of sinks.
"""

import datetime as dt
import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from lake.topics.address import checked_name
from lake.topics.durations import Duration
from lake.topics.topic import Declaration, Name, Topic

TABLE = r"^[A-Za-z_][A-Za-z0-9_]{0,62}\.[A-Za-z_][A-Za-z0-9_]{0,62}$"
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ONE_ADDRESS = (
    "needs either 'url_env', the name of an environment variable with the address of the database, "
    "or 'url_file', a file that holds it"
)
LEAST = dt.timedelta(seconds=1)
IN_KEYS = ("int", "long", "string", "boolean", "date")  # fields that may be the key of an import


def _checked_variable(value: Any) -> Any:
    """Check the name of an environment variable. The error must not repeat a password."""
    if not isinstance(value, str) or not VARIABLE.fullmatch(value):
        message = (
            "must be the name of an environment variable that holds the address of the database. "
            "The address itself has a password, which does not belong in this file"
        )
        raise ValueError(message)
    return value


def _checked_file(value: Any) -> Any:
    """Check the path of a file. The error must not repeat a password."""
    if not isinstance(value, str) or not value or "://" in value or "=" in value:
        message = (
            "must be the path of a file that holds the address of the database. The address "
            "itself has a password, which does not belong in this file"
        )
        raise ValueError(message)
    return value


class Sink(Declaration):
    """A table whose rows, and all later changes of them, are sent somewhere.

    source: the table: `silver.<changelog>`, `silver.enriched_<events>`, `silver.missing_<lookup>`,
        `silver.late_<events>`, a view with a key, or a mart.
    key: columns that identify a row, and are never NULL in a database.
    columns: the columns to send. Default: all but those that silver keeps for itself.
    where: a condition in Spark's SQL over the table's columns. A row that no longer meets it counts
        as deleted, and one that begins to meet it as new. A sink to PostgreSQL evaluates it without
        Spark, so not all of the SQL is possible there.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    name: Name
    source: Annotated[str, Field(alias="from", pattern=TABLE)]
    key: Annotated[list[Name], Field(min_length=1)]
    columns: list[Name] = Field(default=[])
    where: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _names_are_distinct(self) -> "Sink":
        for what, names in (("key", self.key), ("columns", self.columns)):
            if twice := sorted({name for name in names if names.count(name) > 1}):
                self._refuse(f"names '{twice[0]}' twice in its {what}")
        for name in self.key if self.columns else ():
            if name not in self.columns:
                self._refuse(f"has the key '{name}', which is not among its columns; add it")
        return self

    def _refuse(self, what: str) -> None:
        message = f"sink '{self.name}' {what}"
        raise ValueError(message)


class KindField(Declaration):
    """How messages say what has changed.

    field: the field of the message that says it: `c`, `u` or `d`.
    """

    field: Name


def _checked_deletes(value: Any) -> Any:
    is_field = isinstance(value, dict) and value.keys() == {"field"}
    if value != "tombstone" and not is_field:
        message = 'must be "tombstone" or { field = "NAME" }'
        raise ValueError(message)
    return value


class Publish(Sink):
    """A sink to a Pulsar topic: a changelog of the rows that meet a condition.

    topic: the address, as for topics. Default: the name of the sink.
    partitions: the number of partitions with which the topic is created.
    event_time: the column with the event time. Default: the time of the change.
    properties: for each property of the messages, the column with its value.
    deletes: how a deleted row is sent: as a message without payload, or with `d` in a field.
    """

    topic: Annotated[str | None, BeforeValidator(checked_name)] = None
    partitions: Annotated[int, Field(ge=1, le=1024)] = 1
    event_time: Name | None = None
    properties: dict[Annotated[str, Field(min_length=1)], Name] = Field(default={})
    deletes: Annotated[Literal["tombstone"] | KindField, BeforeValidator(_checked_deletes)] = (
        "tombstone"
    )

    @property
    def op(self) -> str | None:
        """The field for the kind of change; None if there is none."""
        return self.deletes.field if isinstance(self.deletes, KindField) else None

    @property
    def address(self) -> str:
        """The address as declared: a short or a full name."""
        return self.topic or self.name

    @property
    def label(self) -> str:
        """The name of its stream, and of its section in the topic file."""
        return f"publish.{self.name}"


class Export(Sink):
    """A sink to a table of PostgreSQL.

    table: the table in the database, `<schema>.<table>`. It is created if it does not exist.
    url_env: the environment variable that holds the address of the database with the password.
    url_file: the file that holds it. Exactly one of the two is given.
    """

    table: Annotated[str, Field(pattern=TABLE)]
    url_env: Annotated[str | None, BeforeValidator(_checked_variable)] = None
    url_file: Annotated[str | None, BeforeValidator(_checked_file)] = None

    @model_validator(mode="after")
    def _has_one_address(self) -> "Export":
        if (self.url_env is None) == (self.url_file is None):
            self._refuse(ONE_ADDRESS)
        return self

    @property
    def label(self) -> str:
        """The name of its stream, and of its section in the topic file."""
        return f"export.{self.name}"


class Import(Declaration):
    """A table of PostgreSQL whose rows, and all later changes of them, go to a changelog's topic.

    An import has the name of the changelog, and only the import publishes to that topic.

    table: the table or view in the database, `<schema>.<table>`.
    every: how often the table is compared with what has been published, such as `"10 seconds"`. A
        second or more.
    url_env: the environment variable that holds the address of the database with the password.
    url_file: the file that holds it. Exactly one of the two is given.
    """

    name: Name
    table: Annotated[str, Field(pattern=TABLE)]
    every: Duration = dt.timedelta(minutes=1)
    url_env: Annotated[str | None, BeforeValidator(_checked_variable)] = None
    url_file: Annotated[str | None, BeforeValidator(_checked_file)] = None

    @model_validator(mode="after")
    def _is_whole(self) -> "Import":
        if (self.url_env is None) == (self.url_file is None):
            message = f"import '{self.name}' {ONE_ADDRESS}"
            raise ValueError(message)
        if self.every < LEAST:
            message = f"import '{self.name}' has an 'every' of less than a second; write a second"
            raise ValueError(message)
        return self

    @property
    def label(self) -> str:
        """The name of its stream, and of its section in the topic file."""
        return f"import.{self.name}"


def why_not_imported(topic: Topic) -> str | None:
    """Why a table cannot be imported into a topic, as the end of a sentence; None if it can be."""
    unfit = {
        "kind": (topic.kind != "changelog", "must be 'changelog'"),
        "schema": (topic.format != "json", "must be 'json', which an import publishes"),
        "envelope": (topic.envelope, "must be absent, because an import publishes plain rows"),
        "sequence": (topic.sequence, "must be absent, because the topic itself orders the changes"),
        "truncate": (
            topic.truncate,
            "must be absent, because deleted rows are published one by one",
        ),
        "delete": (topic.delete == "never", "must not be 'never', or deleted rows would stay"),
        "topic": (topic.has_several, "must name one topic"),
    }
    for key, (is_unfit, why) in unfit.items():
        if is_unfit:
            return f"'{key}' {why}"
    for name, spec in topic.fields.items():
        if spec.is_in_payload and len(topic.place(name)) > 1:
            return f"the field '{name}' is within an object, and a row of a table has none"
        if spec.from_message == "key" or spec.message_property:
            return (
                f"the field '{name}' comes from '{spec.from_message}', which an import does not set"
            )
    for name in topic.key:
        if topic.fields[name].type not in IN_KEYS or not topic.fields[name].is_in_payload:
            return (
                f"the key '{name}' must be a column of type {', '.join(IN_KEYS[:-1])} or "
                f"{IN_KEYS[-1]}, whose values have one text each"
            )
    return None
