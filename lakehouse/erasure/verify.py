"""Searches every file of the lake and the home folder, decoded and raw, for traces of a person.

The log of a Delta table also holds values, in statistics and in the conditions of commands. So does
the footer of a Parquet file. The broker's own files are not searched, because topics keep their
messages as long as they are configured to.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gold.dbt.manifest import Manifest
from gold.dbt.process import target_path
from gold.tables import BUILT, published_tables
from lake.settings.pseudonyms import keyed_hash
from lake.tables.lake import Lake
from lake.tables.storage import files_below, in_bucket, read_bytes
from lake.topics.topic import Topic, snake_case
from lakehouse.erasure.person import Person
from silver.records.pseudonymize import mentions, people_of

STATISTICS = 32  # characters of a string that Delta keeps in its statistics
UNREADABLE = "unreadable Parquet"
COLUMNS = ("where", "files", "bytes", "found")
TEXTS = (  # functions that tell whether a type of Arrow holds texts or bytes
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
    pa.types.is_fixed_size_binary,
)
LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
KEYED = ("state", "history", "changes")  # the tables of silver with the keys of a changelog


@dataclass
class Searched:
    """A part of the lake or the home folder that was searched.

    where: table, or name of the part. files: number of files. size: their total bytes. found: one
    pair of a file and a field, or "key", for each trace of the person.
    """

    where: str
    files: int = 0
    size: int = 0
    found: list[tuple[str, str]] = field(default_factory=list)

    def cells(self) -> list[object]:
        """The cells of the printed row, in the order of `COLUMNS`."""
        return [self.where, self.files, self.size, len(self.found)]


class _File(NamedTuple):
    """A file with its path or address, its part of the lake or the home folder, and its bytes."""

    place: str
    where: str
    size: int


class Proof:
    """Searches for a person's keys where people's keys occur, and for values unique to the person.

    Keys are searched for in columns that hold keys of people, and in text after the name of such a
    column.
    """

    def __init__(self, lake: Lake, person: Person) -> None:
        self._lake = lake
        self._person = person
        self._texts = {
            name: re.compile(b"|".join(_bounded(form) for form in sorted(forms)))
            for name, forms in self._forms().items()
        }
        self._keys = _KeyColumns(lake, person.topic)

    @property
    def values(self) -> list[str]:
        """The fields whose values are searched for, sorted."""
        return sorted(self._texts)

    def search(self) -> list[Searched]:
        """Search all files. Returns one entry per table or other part, sorted by name."""
        parts: dict[str, Searched] = {}
        for file in self._files():
            part = parts.setdefault(file.where, Searched(file.where))
            part.files += 1
            part.size += file.size
            part.found += [(file.place, what) for what in sorted(set(self._in(file)))]
        return [parts[name] for name in sorted(parts)]

    def _forms(self) -> dict[str, set[str]]:
        """By field, the forms in which its values occur: plain, in JSON, truncated, hashed."""
        found: dict[str, set[str]] = {}
        secret = self._lake.settings.pseudonyms
        for name, values in self._person.values.items():
            for value in values:
                forms = {value, value[:STATISTICS]}
                for _ in range(2):  # twice, for JSON within JSON
                    forms |= {json.dumps(form)[1:-1] for form in forms}
                if name in self._person.topic.hashed and secret:
                    digest = keyed_hash(secret.read(), value.encode())
                    forms |= {digest, digest[:STATISTICS]}
                found.setdefault(name, set()).update(forms)
        return found

    def _files(self) -> Iterator[_File]:
        home, lake = self._lake.settings.home_dir, self._lake.settings.lake_dir
        broker = home / "pulsar"
        seen = set()
        for root in {home, lake}:
            for file in root.rglob("*"):
                if file.is_file() and broker not in file.parents and file not in seen:
                    seen.add(file)
                    is_lake = lake in file.parents
                    parts = file.relative_to(lake if is_lake else home).parts
                    where = _table(parts) if is_lake else parts[0]
                    yield _File(str(file), where, file.stat().st_size)
        if in_bucket(self._lake.settings):
            tables = self._lake.settings.tables
            for name, size in files_below(self._lake.settings, tables).items():
                yield _File(f"{tables}/{name}", _table(tuple(name.split("/"))), size)

    def _in(self, file: _File) -> Iterator[str]:
        is_local = Path(file.place).is_absolute()
        raw = (
            Path(file.place).read_bytes()
            if is_local
            else read_bytes(self._lake.settings, file.place)
        )
        where = file.where
        yield from self._in_text(raw, where)
        if file.place.endswith(".parquet"):
            try:
                yield from self._in_parquet(pq.ParquetFile(pa.BufferReader(raw)), where)
            except (pa.ArrowInvalid, OSError):  # truncated, or damaged inside
                yield UNREADABLE

    def _in_parquet(self, parquet: pq.ParquetFile, where: str) -> Iterator[str]:
        for batch in parquet.iter_batches():
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                for path, values in _leaves((name,), column):
                    yield from self._in_column(path, values, where)

    def _in_text(self, raw: bytes, where: str) -> Iterator[str]:
        yield from (name for name, pattern in self._texts.items() if pattern.search(raw))
        topic = self._person.topic
        own = {name for each in topic.key for name in (each, topic.place(each)[-1])}
        names = self._keys.of(where) | (own if self._is_own(where) else set())
        if names and re.search(mentions(names, [*self._person.pseudonyms]).encode(), raw):
            yield "key"

    def _in_column(self, path: tuple[str, ...], values: pa.Array, where: str) -> Iterator[str]:
        kind = values.type
        is_text = any(is_kind(kind) for is_kind in TEXTS)
        if is_text:
            texts = (v for v in values.to_pylist() if v is not None)
            found = (v.encode() if isinstance(v, str) else v for v in texts)
            yield from self._in_text(b"\n".join(found), where)
        if self._names_people(path, where):
            wanted = pa.array([*self._person.pseudonyms])
            is_comparable = is_text or pa.types.is_integer(kind)
            keys = values.cast(pa.string()) if is_comparable else pa.array([], pa.string())
            if pc.any(pc.is_in(keys, value_set=wanted)).as_py():
                yield "key"

    def _names_people(self, path: tuple[str, ...], where: str) -> bool:
        key = self._person.topic.key_columns[0]
        is_row_of_lookup = len(path) > 1 and path[-2] in self._keys.lookups_of(where)
        is_message_key = where == f"bronze.{self._person.topic.name}" and path[-1] == "key"
        own = path[-1] == key and (self._is_own(where) or is_row_of_lookup)
        return path[-1] in self._keys.of(where) or own or is_message_key

    def _is_own(self, where: str) -> bool:
        """Whether a table holds the person's own changelog."""
        name = self._person.topic.name
        return where in (f"bronze.{name}", *(f"silver.{name}_{kind}" for kind in KEYED))


class _KeyColumns:
    """The names of fields and columns that hold keys of people, by part of the lake.

    A table of a topic has those of the topic. The models of gold declare theirs, and a column with
    the name of such a field counts as well, unless the model declares it for other people. Each
    other part, such as logs and the quarantine, may mention all of them.
    """

    def __init__(self, lake: Lake, people: Topic) -> None:
        self._all: set[str] = set()
        self._by_table: dict[str, set[str]] = {}
        self._lookups: dict[str, set[str]] = {}
        for topic in lake.topics.topics.values():
            fields = {
                name
                for name, target in people_of(topic, lake.topics)
                if target == people and name not in target.key
            }
            in_json = {topic.place(name)[-1] for name in fields}
            names = {*fields, *map(snake_case, fields), *in_json}
            lookups = {name for name, each in topic.lookups.items() if each.topic == people.name}
            if people.merged_into and (topic == people or lookups):
                names.add("resolved_id")
            for table in _tables_of(topic):
                self._by_table[table] = names
                self._lookups[table] = lookups
            self._all |= names
        for name, each in lake.topics.joined.items():
            ours, theirs = (self._by_table[f"bronze.{t.name}"] for t in (each.left, each.right))
            names = ours | {each.join.of_right(column) for column in theirs}
            self._by_table[f"silver.{name}"] = names
            self._lookups[f"silver.{name}"] = set()
            self._all |= names
        others: dict[str, set[str]] = {}
        declared: dict[str, set[str]] = {}
        for model, column, whose in Manifest(target_path(lake.settings)).people():
            by_model = declared if whose == people.name else others
            by_model.setdefault(model, set()).add(column)
        self._declared, self._others = declared, others
        self._models = set().union(*declared.values())
        self._layers = {BUILT, *(table.spec.layer for table in published_tables(lake))}

    def of(self, where: str) -> set[str]:
        """The names of a part, such as a table."""
        if where in self._by_table:
            return self._by_table[where]
        layer, _, table = where.partition(".")
        if layer in self._layers:
            return (self._all | self._declared.get(table, set())) - self._others.get(table, set())
        return self._all | self._models

    def lookups_of(self, where: str) -> set[str]:
        """The names of the columns of a part that hold rows of people."""
        return self._lookups.get(where, set().union(*self._lookups.values()))


def _tables_of(topic: Topic) -> list[str]:
    names = [f"{topic.name}_{kind}" for kind in KEYED]
    return [f"bronze.{topic.name}", *(f"silver.{n}" for n in (*names, f"enriched_{topic.name}"))]


def _table(parts: tuple[str, ...]) -> str:
    """The table that a file of the lake belongs to, from the parts of its path."""
    return ".".join(parts[:2]) if len(parts) > 2 else parts[0]


def _bounded(text: str) -> bytes:
    """A pattern for the text where no letter or digit touches it."""
    return rb"(?<![A-Za-z0-9])" + re.escape(text.encode()) + rb"(?![A-Za-z0-9])"


def _leaves(path: tuple[str, ...], column: pa.Array) -> Iterator[tuple[tuple[str, ...], pa.Array]]:
    """The path and values of each leaf column within structs, lists, maps and dictionaries."""
    kind = column.type
    if pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            field_ = kind.field(number)
            yield from _leaves((*path, field_.name), column.field(number))
    elif pa.types.is_map(kind):
        yield from _leaves((*path, "key"), column.keys)
        yield from _leaves((*path, "value"), column.items)
    elif any(is_kind(kind) for is_kind in LISTS):
        yield from _leaves(path, column.values)
    elif pa.types.is_dictionary(kind):
        yield from _leaves(path, column.dictionary)
    else:
        yield path, column
