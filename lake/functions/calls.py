"""Calls a function of a project for the rows of Arrow arrays. Runs in Python workers, too.

A function may fail for a row, which rejects this row and no other. A file that cannot be loaded is
an error of the installation, and rejects nothing.
"""

from __future__ import annotations

import datetime as dt
import linecache
import sys
import traceback
import types
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import repeat
from typing import Any

import pyarrow as pa

from lake.functions.source import checksum
from pulsar_spark.errors import SettingsError

UTC = pa.timestamp("us", "UTC")


class FunctionCalls:
    """The calls of one function, for one field.

    name: the name of the function in its file.
    file, source: the path of the file in the project, and its text.
    kinds: the types of the arguments.
    returns: the type of the result.
    skips_nulls: whether the result is NULL if an argument is, without a call.
    """

    def __init__(
        self,
        name: str,
        file: str,
        source: str,
        kinds: Sequence[pa.DataType],
        returns: pa.DataType,
        *,
        skips_nulls: bool,
    ) -> None:
        self._name, self._file, self._source = name, file, source
        self._kinds, self._returns = [_in_utc(kind) for kind in kinds], _in_utc(returns)
        self._skips_nulls = skips_nulls

    def load(self) -> Callable[..., Any]:
        """The function.

        Raises:
            SettingsError: the file cannot be loaded.
        """
        return _loaded(self._name, self._file, self._source)

    def results(self, is_wanted: pa.Array, *arguments: pa.Array) -> pa.StructArray:
        """The results for some rows.

        Args:
            is_wanted: for each row, whether to call the function. Without it, the result is NULL.
            arguments: the arguments.

        Returns:
            A struct for each row with `value`, and `failure`: why there is no value, which contains
            no values of the row; else NULL.

        Raises:
            SettingsError: the file cannot be loaded.
        """
        call = self.load()
        columns = [
            each.cast(kind).to_pylist(maps_as_pydicts="lossy")
            for each, kind in zip(arguments, self._kinds, strict=True)
        ]
        rows = zip(*columns, strict=True) if columns else repeat((), len(is_wanted))
        values: list[Any] = []
        failures: list[str | None] = []
        for wanted, row in zip(is_wanted.to_pylist(), rows, strict=True):
            value = failure = None
            if wanted and not (self._skips_nulls and None in row):
                value, failure = self._result(call, row)
            values.append(value)
            failures.append(failure)
        found = pa.array(values, self._returns)
        return pa.StructArray.from_arrays(
            [found, pa.array(failures, pa.string())], ["value", "failure"]
        )

    def _result(self, call: Callable[..., Any], row: tuple[Any, ...]) -> tuple[Any, str | None]:
        try:
            value = call(*row)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the function raises
            line = _line_in(self._file, error)
            place = f" in {self._file}, line {line}" if line else ""
            return None, f"{self._name} raised {type(error).__name__}{place}"
        try:
            if not is_of_type(value, self._returns):
                return None, f"{self._name} returned a value of the type {type(value).__name__}"
            pa.array([value], self._returns)
        except (pa.ArrowException, OverflowError, ValueError):
            return None, f"{self._name} returned a value that is out of range"
        return value, None


def is_of_type(value: Any, kind: pa.DataType) -> bool:
    """Whether a value is of the Python type for a type of Arrow. Nothing is converted."""
    if value is None:
        return True
    if pa.types.is_list(kind):
        return isinstance(value, list | tuple) and all(
            is_of_type(v, kind.value_type) for v in value
        )
    if pa.types.is_struct(kind):
        members = {field.name: field.type for field in kind}
        return (
            isinstance(value, dict)
            and value.keys() <= members.keys()
            and all(is_of_type(each, members[name]) for name, each in value.items())
        )
    if pa.types.is_map(kind):
        return isinstance(value, dict) and all(
            isinstance(name, str) and is_of_type(each, kind.item_type)
            for name, each in value.items()
        )
    if isinstance(value, bool) or pa.types.is_boolean(kind):
        return isinstance(value, bool) and pa.types.is_boolean(kind)
    if isinstance(value, dt.datetime):
        return bool(pa.types.is_timestamp(kind))
    return isinstance(value, _python_types(kind))


def _python_types(kind: pa.DataType) -> tuple[type, ...]:
    if pa.types.is_integer(kind):
        return (int,)
    if pa.types.is_floating(kind):
        return (int, float)
    if pa.types.is_decimal(kind):
        return (int, Decimal)
    if pa.types.is_string(kind):
        return (str,)
    if pa.types.is_binary(kind):
        return (bytes,)
    return (dt.date,) if pa.types.is_date(kind) else ()


@lru_cache(maxsize=64)
def _loaded(name: str, file: str, source: str) -> Callable[..., Any]:
    module = types.ModuleType(f"_lakehouse_{checksum(file, source)}")
    module.__file__ = file
    sys.modules[module.__name__] = module  # where dataclasses look for their own module
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    try:
        exec(compile(source, file, "exec"), module.__dict__)  # noqa: S102 - the project's own code
    except (Exception, SystemExit) as error:
        line = _line_in(file, error)
        place = f"{file}, line {line}" if line else file
        what = f"{place}: cannot be loaded: {type(error).__name__}: {error}."
        raise SettingsError(
            what, "Correct it, or install what it imports, on all machines that run silver."
        ) from error
    found = module.__dict__.get(name)
    if not callable(found):
        message = f"{file}: '{name}' is no function once the file has been loaded."
        raise SettingsError(message)
    call: Callable[..., Any] = found
    return call


def _line_in(file: str, error: BaseException) -> int | None:
    """The line of a file in which an error was raised; None if it is not known."""
    lines = [
        part.lineno for part in traceback.extract_tb(error.__traceback__) if part.filename == file
    ]
    return lines[-1] if lines else None


def _in_utc(kind: pa.DataType) -> pa.DataType:
    """A type in which all instants are in UTC, whatever the time zone of the session is."""
    if pa.types.is_timestamp(kind):
        return UTC
    if pa.types.is_list(kind):
        return pa.list_(_in_utc(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _in_utc(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_in_utc(kind.key_type), _in_utc(kind.item_type))
    return kind
