"""The types of fields: scalars, and arrays, structs and maps of them.

A topic file writes them as `long`, `decimal(12,2)`, `array<T>`, `struct<name: T, ...>` and
`map<string, T>`. docs/topic-files.md, section "Types", says which values they accept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

DECIMAL = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")
SCALARS = (
    *("boolean", "int", "long", "float", "double", "string", "binary"),
    *("date", "timestamp", "timestamp_ms"),
)
FORMS = "decimal(p,s), array<type>, struct<name: type, ...> or map<string, type>"
_TOKEN = re.compile(r"\s*(decimal\(\d{1,2},\s*\d{1,2}\)|\w+|[<>:,])")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")  # of fields and other declarations
_DEEPEST = 10  # types within one another


class _Parts(NamedTuple):
    name: str
    parts: tuple[tuple[str, FieldType], ...] = ()


class FieldType(_Parts):
    """A type. Its text, by `str`, is the one that errors and reasons show.

    name: a scalar, such as `long` or `decimal(12,2)`, or `array`, `struct` or `map`.
    parts: the members of a struct, by name. An array or a map has one part without a name, the type
        of its elements or values.
    """

    @property
    def is_scalar(self) -> bool:
        """Whether values have no parts."""
        return not self.parts

    @property
    def element(self) -> FieldType:
        """The type of the elements of an array, or of the values of a map."""
        return self.parts[0][1]

    def as_column(self) -> FieldType:
        """The type with the members of structs named as in silver's columns."""
        rename = snake_case if self.name == "struct" else str
        return FieldType(self.name, tuple((rename(n), part.as_column()) for n, part in self.parts))

    def scalars(self, name: str = "") -> Iterator[tuple[str, str | None, FieldType]]:
        """All scalars within the type, each with the name that its value follows in JSON.

        Args:
            name: the name of the field.

        Returns:
            The name, what the scalar is directly in (`array`, `map`, or None for a member), and the
            scalar. The name is empty for a scalar in an array or map without a name of its own.
        """
        for own, part in self.parts:
            inner = own if self.name == "struct" else name
            if part.is_scalar:
                yield inner, None if self.name == "struct" else self.name, part
            else:
                yield from part.scalars(inner if self.name == "struct" else "")
        if self.is_scalar:
            yield name, None, self

    def ddl(self, scalar: Callable[[FieldType], str], quote: str = "`") -> str:
        """The type in Spark's DDL, with a type for each scalar.

        Args:
            scalar: gives the type of a scalar.
            quote: what stands around the names of members.
        """
        if self.is_scalar:
            return scalar(self)
        parts = ((name, part.ddl(scalar, quote)) for name, part in self.parts)
        if self.name == "struct":
            return f"struct<{','.join(f'{quote}{name}{quote}:{part}' for name, part in parts)}>"
        [(_, part)] = parts
        return f"{self.name}<{'string,' if self.name == 'map' else ''}{part}>"

    def __str__(self) -> str:
        if self.is_scalar:
            return self.name
        if self.name == "struct":
            return f"struct<{', '.join(f'{name}: {part}' for name, part in self.parts)}>"
        return f"{self.name}<{'string, ' if self.name == 'map' else ''}{self.element}>"


def snake_case(name: str) -> str:
    """`parentUserId` -> `parent_user_id`: the column of a JSON field."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def column_type(kind: FieldType) -> str:
    """The column type of a declared type. Members of structs are named as columns are."""
    others = {"timestamp_ms": "timestamp", "long": "bigint"}
    return kind.as_column().ddl(lambda each: others.get(each.name, each.name), quote="")


@lru_cache(maxsize=1000)
def field_type(text: str) -> FieldType:
    """The type that a text of a topic file names.

    Raises:
        ValueError: the text is not a type. The message says why.
    """
    tokens, place = [], 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        if match is None:
            raise _not_a_type(text)
        tokens.append(match[1])
        place = match.end()
    found = _parsed(text, tokens, 0)
    if tokens:
        raise _not_a_type(text)
    return found


def _not_a_type(text: str, why: str = "") -> ValueError:
    use = f"use one of {', '.join(SCALARS)}, {FORMS}"
    return ValueError(f"'{text}' is not a type{why}; {use}")


def _parsed(text: str, tokens: list[str], depth: int) -> FieldType:
    """The type at the begin of the tokens, which are taken off."""
    if not tokens:
        raise _not_a_type(text)
    if depth > _DEEPEST:
        message = f"'{text[:40]}...' has more than {_DEEPEST} types within one another"
        raise ValueError(message)
    name = tokens.pop(0).replace(" ", "")
    decimal = DECIMAL.fullmatch(name)
    if name in SCALARS or (decimal and int(decimal[2]) <= int(decimal[1]) <= 38):
        return FieldType(name)
    if name not in ("array", "map", "struct"):
        raise _not_a_type(text)
    _expect(text, tokens, "<")
    if name == "struct":
        found = FieldType(name, tuple(_members(text, tokens, depth)))
    else:
        if name == "map":
            _expect(text, tokens, "string", ", because the keys of a map are strings")
            _expect(text, tokens, ",")
        element = _parsed(text, tokens, depth + 1)
        if DECIMAL.fullmatch(element.name):
            message = (
                f"'{text}' has decimals directly in {'an' if name == 'array' else 'a'} {name}, "
                "where their digits cannot be read exactly; make them a member of a struct, or "
                "declare double"
            )
            raise ValueError(message)
        found = FieldType(name, (("", element),))
        _expect(text, tokens, ">")
    return found


def _members(text: str, tokens: list[str], depth: int) -> Iterator[tuple[str, FieldType]]:
    columns = set[str]()
    while True:
        name = tokens.pop(0) if tokens else ""
        if not NAME.fullmatch(name):
            raise _not_a_type(text, f", because '{name}' cannot be the name of a member")
        if snake_case(name) in columns:
            raise _not_a_type(text, f", because it has the member '{snake_case(name)}' twice")
        columns.add(snake_case(name))
        _expect(text, tokens, ":")
        yield name, _parsed(text, tokens, depth + 1)
        if tokens[:1] == [">"]:
            tokens.pop(0)
            return
        _expect(text, tokens, ",")


def _expect(text: str, tokens: list[str], token: str, why: str = "") -> None:
    if tokens[:1] != [token]:
        raise _not_a_type(text, why)
    tokens.pop(0)
