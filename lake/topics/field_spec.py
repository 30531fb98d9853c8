"""What a topic file may declare about a field of a topic's messages."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from lake.functions.source import checksum
from lake.topics.field_type import NAME, FieldType, column_type, field_type
from lake.topics.nested import checked_path


def _field_type(value: str) -> str:
    return str(field_type(value))


Name = Annotated[str, Field(pattern=f"^{NAME.pattern}$")]

# The parts of a message, besides its payload, from which a field may come. `properties.` is
# followed by the name of a property.
TIMES = ("event_time", "publish_time")
PROPERTIES = "properties."


def _part_of_message(value: Any) -> Any:
    known = isinstance(value, str) and (
        value in ("key", "topic", *TIMES) or value.startswith(PROPERTIES)
    )
    if not known or value == PROPERTIES:
        message = (
            f"'{value}' is not a part of a message; use key, event_time, publish_time, topic or "
            "properties.<name>"
        )
        raise ValueError(message)
    return value


class Declaration(BaseModel):
    """Part of a topic file. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Function(Declaration):
    """A function in Python, with which silver computes fields.

    It must be deterministic: the same arguments always give the same result, in any process.

    python: `<module>:<function>`. The module is a file in the folder of the topic file, such as
        `functions/mail.py` for `functions.mail:domain_of`.
    nulls: `skip` (default): the result is NULL if an argument is NULL, and the function is not
        called. `pass`: the function gets None.
    """

    name: Name
    python: str
    nulls: Literal["skip", "pass"] = "skip"
    # Not from the topic file: the path of the file in its folder, and its text.
    file: Annotated[str, Field(repr=False)]
    source: Annotated[str, Field(repr=False)]

    @property
    def called(self) -> str:
        """The name of the function in its file."""
        return self.python.partition(":")[2]

    @property
    def digest(self) -> str:
        """A checksum of what decides its results."""
        return checksum(self.python, self.nulls, self.source)


def checked_function(value: Any) -> Any:
    """Check that the reader of the topic file has found the function that is named."""
    if not isinstance(value, Function):
        message = "must be the name of a function that is declared in [functions]"
        raise ValueError(message)
    return value


class FieldSpec(Declaration):
    """A field of a topic's messages.

    type: the type, such as `long` or `decimal(12,2)`. In JSON, a `timestamp_ms` is epoch
        milliseconds UTC, a `timestamp` is ISO 8601, and a `binary` is base64.
    required: whether the field must be present and not null. Default true.
    personal: marks personal data, and says what gold sees of it. `keep`: the value. `mask`: `***`,
        or NULL if the field is not a string. `hash`: a keyed hash, so that equal values stay equal.
    absent: a value that stands for "none" and becomes NULL.
    from_message: the part of the message that is the value, if it is not in the payload: `key`,
        `event_time`, `publish_time`, `topic` (the full name on the broker) or `properties.<name>`.
    sql: an expression in Spark's SQL over the columns of the topic's other fields, from which
        silver computes the value. It must be deterministic.
    function: the function of `[functions]` with which silver computes the value.
    of: the fields whose values are the arguments of `function`, in order.
    path: the names that lead to the field in the payload, such as `device.geo.lat`. In an envelope,
        they begin in the envelope, as in `source.lsn`. Default: a member of the row with the
        field's name.
    """

    type: Annotated[str, BeforeValidator(_field_type)]
    required: bool = True
    personal: Literal["keep", "mask", "hash"] | None = None
    absent: int | str | None = None
    path: Annotated[tuple[str, ...], BeforeValidator(checked_path)] | None = None
    from_message: Annotated[str, BeforeValidator(_part_of_message)] | None = None
    sql: Annotated[str, Field(min_length=1)] | None = None
    function: Annotated[Function, BeforeValidator(checked_function)] | None = None
    of: list[Name] = Field(default=[])

    @model_validator(mode="after")
    def _comes_from_one_place(self) -> "FieldSpec":
        elsewhere = ("path", "from_message", "sql", "function")
        places = [name for name in elsewhere if getattr(self, name)]
        if len(places) > 1:
            message = (
                f"has '{places[0]}' and '{places[1]}', but a value is in one place; remove one"
            )
            raise ValueError(message)
        if bool(self.function) != bool(self.of):
            message = "needs 'function' and 'of', the fields that are its arguments, together"
            raise ValueError(message)
        how = "sql" if self.sql else "function"
        if self.is_computed and self.absent is not None:
            remedy = (
                "the expression be NULL instead, such as by nullif"
                if self.sql
                else "it return None"
            )
            message = f"has '{how}' and 'absent'; let {remedy}"
            raise ValueError(message)
        if self.is_computed and any(s.name == "timestamp_ms" for _, _, s in self.kind.scalars()):
            message = f"has '{how}', so it has no form in JSON; its type is 'timestamp'"
            raise ValueError(message)
        if not self.kind.is_scalar and (self.from_message or self.absent is not None):
            place = "from_message" if self.from_message else "absent"
            message = f"has '{place}' and the type {self.type}; only single values can have it"
            raise ValueError(message)
        if self.from_message in TIMES and self.type != "timestamp":
            message = f"is the {self.from_message} of the message, so its type must be 'timestamp'"
            raise ValueError(message)
        if self.personal and self.from_message in (*TIMES, "topic"):
            message = (
                f"is the {self.from_message} of the message, which `lakehouse forget` cannot erase,"
                " so it must not be declared as personal"
            )
            raise ValueError(message)
        return self

    @property
    def kind(self) -> FieldType:
        """The type of the field."""
        return field_type(self.type)

    @property
    def is_in_payload(self) -> bool:
        """Whether the payload has the field. A key may also be in the message key."""
        return self.from_message is None and not self.is_computed

    @property
    def is_computed(self) -> bool:
        """Whether silver computes the value from other fields."""
        return self.sql is not None or self.function is not None

    @property
    def message_property(self) -> str | None:
        """The property of the message that is the value; None if the value is elsewhere."""
        _, found, name = (self.from_message or "").partition(PROPERTIES)
        return name if found else None

    @property
    def nullable(self) -> bool:
        """Whether the column may be NULL."""
        return not self.required or self.absent is not None

    @property
    def is_protected(self) -> bool:
        """Whether gold sees something other than the value."""
        return self.personal in ("mask", "hash")


def sql_type(field: FieldSpec) -> str:
    """The column type of a field."""
    return column_type(field.kind)
