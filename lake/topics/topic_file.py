"""Reads a topic file, which declares the topics of a lake and what their messages mean.

Topics are described only in this TOML file. The default, `shop/topics.toml`, is also an example.
Bronze uses names and partitions; silver uses keys, fields and lookups.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError, ValidationInfo, model_validator

from lake.functions.source import read_source
from lake.topics.address import Address, declared_address, full_name, refuse_equal
from lake.topics.lookups import lookup_rules
from lake.topics.misplaced import Misplaced
from lake.topics.sink import Export, Import, Publish, why_not_imported
from lake.topics.sink_source import check_sinks, refuse_wrong_addresses
from lake.topics.topic import Declaration, Function, Name, Topic, View
from lake.topics.views.joins import Join, JoinOf
from lake.topics.views.late import LateEvents
from pulsar_spark.errors import SettingsError

if TYPE_CHECKING:
    from lake.topics.views.view_queries import ViewQuery

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


OWN_TABLES = ("quarantine", "reconciliation", "cuts", "schemas")
SUFFIXES = ("_state", "_history")  # appended to a changelog's name for its tables


class TopicFile(Declaration):
    """All topics of a lake, the joins and views of silver's tables, sinks and imports, by name.

    topics: the topics by name.
    functions: functions in Python by name.
    joins: interval joins by name.
    views: views over silver's tables by name.
    publish: sinks to topics by name.
    export: sinks to tables of PostgreSQL by name.
    import: tables of PostgreSQL that are published to changelogs, by the name of the changelog.
    application: the Python module that adds a demo, sections of the report and an evaluation
        (`lakehouse/application.py`). It does not affect the tables.
    """

    topics: dict[Name, Topic]
    functions: dict[Name, Function] = Field(default={})
    joins: dict[Name, Join] = Field(default={})
    views: dict[Name, View] = Field(default={})
    publish: dict[Name, Publish] = Field(default={})
    export: dict[Name, Export] = Field(default={})
    imports: dict[Name, Import] = Field(default={}, alias="import")
    application: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _name_declarations(cls, data: Any, info: ValidationInfo) -> Any:
        if not isinstance(data, dict):
            return data
        named = {
            kind: {k: {"name": k, **v} if isinstance(v, dict) else v for k, v in found.items()}
            for kind in ("topics", "functions", "joins", "views", "publish", "export", "import")
            if isinstance(found := data.get(kind), dict)
        }
        if "functions" in named:
            folder = (info.context or {}).get("folder")
            made = named["functions"] = _with_sources(named["functions"], folder)
            if topics := named.get("topics"):
                named["topics"] = {n: _with_functions(n, x, made) for n, x in topics.items()}
        return {**data, **named}

    @model_validator(mode="after")
    def _addresses_differ(self) -> TopicFile:
        """Refuse equal addresses. `addresses` also sees that a short and a full one are equal."""
        refuse_equal(self.short_addresses)
        return self

    @model_validator(mode="after")
    def _lookups_fit(self) -> TopicFile:
        for problem in lookup_rules(self):
            raise ValueError(problem)
        return self

    @model_validator(mode="after")
    def _late_views_have_names(self) -> TopicFile:
        others = {*self.view_sources(), *self.missing_views()}
        others |= self._of_changelogs()
        for name, late in self.late_views().items():
            if name in others:
                message = (
                    f"topic '{late.topic.name}' has a 'lateness', so it needs the name '{name}' in "
                    "silver, which is taken; rename the other topic or lookup"
                )
                raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _joins_fit(self) -> TopicFile:
        """Refuse joins that do not fit their topics, or need a name that is taken."""
        taken = self._tables()
        for name, join in self.joined.items():
            for own in (name, join.join.missing):
                if own in taken:
                    message = (
                        f"join '{name}' needs the name '{own}' in silver, which is taken; rename it"
                    )
                    raise ValueError(message)
                taken.add(own)
        return self

    def _tables(self) -> set[str]:
        """The names of silver's tables and views that are made from topics."""
        return {
            *OWN_TABLES,
            *self.view_sources(),
            *self._of_changelogs(),
            *self.missing_views(),
            *self.late_views(),
        }

    def _of_changelogs(self) -> set[str]:
        """The names of the tables that changelogs have, or may have."""
        found = {topic.name + suffix for topic in self.changelogs() for suffix in SUFFIXES}
        return found | {
            f"{topic.name}_changes" for topic in self.changelogs() if topic.keeps_changes
        }

    @model_validator(mode="after")
    def _views_fit(self) -> TopicFile:
        sources, queried = self.view_sources(), self.queried
        taken = self._tables() | {*self.joins} | {join.missing for join in self.joins.values()}
        for view in self.views.values():
            if view.name in taken:
                message = f"view '{view.name}' has the same name as a table of silver; rename it"
                raise ValueError(message)
            for name in view.sources:
                if name not in sources and not (name in queried and queried[name].key):
                    message = (
                        f"view '{view.name}' has the source '{name}', which is neither a view with "
                        f"a key nor among {', '.join(sources)}"
                    )
                    raise ValueError(message)
        for query in self.view_queries:
            view, read = query.view, sorted({*query.reads} - {*query.view.sources})
            if view.sources and read:
                message = (
                    f"view '{view.name}' reads '{read[0]}', which its 'sources' lack; add it or "
                    "remove 'sources'"
                )
                raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _imports_fit(self) -> TopicFile:
        for name in self.imports:
            if name not in self.topics:
                what = (
                    f"there is no topic '{name}'; an import has the name of the changelog to which "
                    f"it publishes, and the topics are {', '.join(self.topics)}"
                )
                raise Misplaced(("import", name), what)
            if why := why_not_imported(self.topics[name]):
                raise Misplaced(("import", name), f"the topic cannot be filled from a table: {why}")
        return self

    @model_validator(mode="after")
    def _sinks_fit(self) -> TopicFile:
        check_sinks(self)
        return self

    def replacing(self, topics: dict[str, Topic]) -> TopicFile:
        """A copy of this file with other topics. What follows from the topics is computed again.

        Args:
            topics: the topics by name. They are not checked again.
        """
        fields, given = TopicFile.model_fields, self.model_fields_set
        known = {fields[name].alias or name: getattr(self, name) for name in given}
        return TopicFile.model_construct(**{**known, "topics": topics})

    @cached_property
    def view_queries(self) -> list[ViewQuery]:
        """The queries of the views with a key, each after those of the views that it reads.

        Joins are views with a key, too, and so are late events that a sink or such a view reads.
        """
        sent = {sink.source for sink in (*self.publish.values(), *self.export.values())}
        if_read = {name for name in self.late_views() if f"silver.{name}" not in sent}
        if not any(view.key for name, view in self.queried.items() if name not in if_read):
            return []
        # Other topic files need not wait 0.3 s for the import of sqlglot.
        from lake.topics.views.view_queries import view_queries

        return view_queries(self.queried, self.view_sources(), if_read)

    @cached_property
    def joined(self) -> dict[str, JoinOf]:
        """The joins with their topics, by name.

        Raises:
            Misplaced: a join does not fit its topics. Not raised once the file has been read.
        """
        return {name: JoinOf.checked(join, self.topics) for name, join in self.joins.items()}

    @cached_property
    def queried(self) -> dict[str, View]:
        """The views and, as views with a key, the joins and the late events, by name."""
        joins = {name: join.view for name, join in self.joined.items()}
        return joins | {name: late.view for name, late in self.late_views().items()} | self.views

    def addresses(self, namespace: str) -> dict[str, Address]:
        """Where each topic is on the broker, by its declared name.

        Called by `Lake.address`, which is the way to one of them.

        Args:
            namespace: `tenant/namespace` of the topics that are declared by a short name.

        Raises:
            SettingsError: two declarations have a topic in common.
        """
        found = self._addresses(namespace)
        try:
            refuse_equal(found)
        except ValueError as error:
            message = f"Topic file: {error}."
            raise SettingsError(message) from error
        return found

    @property
    def short_addresses(self) -> dict[str, Address]:
        """As `addresses`, with short names as they are declared. For checks of the file."""
        return self._addresses(None)

    def _addresses(self, namespace: str | None) -> dict[str, Address]:
        return {
            name: declared_address(name, topic.topic, topic.pattern, namespace)
            for name, topic in self.topics.items()
        }

    def sink_addresses(self, namespace: str) -> dict[str, str]:
        """The full name on the broker of the topic of each sink, by the name of the sink.

        Raises:
            SettingsError: two sinks have the same address, or a sink leads to its own table.
        """
        found = {n: full_name(sink.address, namespace) for n, sink in self.publish.items()}
        try:
            refuse_wrong_addresses(self, self.addresses(namespace), found)
        except ValueError as error:
            message = f"Topic file: {error}."
            raise SettingsError(message) from error
        return found

    def late_views(self) -> dict[str, LateEvents]:
        """The views of the late events, by name."""
        found = (LateEvents(topic) for topic in self.events() if topic.lists_late)
        return {late.name: late for late in found}

    @property
    def late_tables(self) -> dict[str, LateEvents]:
        """Those of the views of the late events that are tables, because something reads them."""
        late = self.late_views()
        kept = {query.view.name for query in self.view_queries} if late else set()
        return {name: each for name, each in late.items() if name in kept}

    def missing_views(self) -> dict[str, tuple[Topic, str]]:
        """The views of the rows whose lookup has found nothing yet, each with its topic and lookup.

        A view is `missing_<lookup>`. If several topics have a lookup of the same name, this is the
        view of the first one in the file, and `missing_<lookup>_of_<topic>` is that of another.
        """
        found: dict[str, tuple[Topic, str]] = {}
        for topic in self.events():
            for lookup in topic.lookups:
                name = f"missing_{lookup}"
                found[f"{name}_of_{topic.name}" if name in found else name] = topic, lookup
        return found

    def view_sources(self) -> dict[str, Topic]:
        """The tables that a view with a key may read, each with the topic that it is made from."""
        events = {f"enriched_{topic.name}": topic for topic in self.events()}
        return {topic.name: topic for topic in self.changelogs()} | events

    def kept_views(self) -> list[View]:
        """The views with a key, which are materialized as tables, as `view_queries` orders them."""
        return [query.view for query in self.view_queries]

    def changelogs(self) -> list[Topic]:
        """The topics that hold state, in the order of the file."""
        return [topic for topic in self.topics.values() if topic.kind == "changelog"]

    def events(self) -> list[Topic]:
        """The topics that hold facts, in the order of the file."""
        return [topic for topic in self.topics.values() if topic.kind == "events"]


def _with_sources(declared: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    """The functions, each with the text of its file."""
    found: dict[str, Any] = {}
    for name, given in declared.items():
        if not isinstance(given, dict):
            found[name] = given
            continue
        for own in {"file", "source"} & given.keys():
            raise Misplaced(("functions", name, own), "unknown key")
        python = given.get("python")
        if not isinstance(python, str):
            what = "needs 'python', such as \"functions.mail:domain_of\""
            raise Misplaced(("functions", name, "python"), what)
        try:
            file, source = read_source(folder, python)
        except ValueError as error:
            raise Misplaced(("functions", name, "python"), str(error)) from error
        try:
            found[name] = Function.model_validate({**given, "file": file, "source": source})
        except ValidationError as error:
            first = error.errors()[0]
            what = "unknown key" if first["type"] == "extra_forbidden" else first["msg"]
            raise Misplaced(("functions", name, *map(str, first["loc"])), what) from error
    return found


def _with_functions(topic: str, data: Any, functions: Mapping[str, Any]) -> Any:
    """A topic whose fields, and whose `explode`, have the functions that they name."""

    def resolved(place: tuple[str, ...], part: Any) -> Any:
        called = part.get("function") if isinstance(part, dict) else None
        if not isinstance(called, str):
            return part
        if called not in functions:
            what = f"'{called}' is not declared in [functions], which has {', '.join(functions)}"
            raise Misplaced(("topics", topic, *place), what)
        return {**part, "function": functions[called]}

    if not isinstance(data, dict) or not isinstance(fields := data.get("fields"), dict):
        return data
    made = {"fields": {name: resolved(("fields", name), each) for name, each in fields.items()}}
    if "explode" in data:
        made["explode"] = resolved(("explode",), data["explode"])
    return {**data, **made}


def _line_of(text: str, place: Sequence[str]) -> str:
    """The line of a key, such as `:12`: within its section of the file, else that of the header."""
    lines = text.splitlines()
    header, begin, end = "", 0, len(lines)
    for depth in range(1, len(place) + 1):
        pattern = re.compile(rf"\s*\[{'[.]'.join(map(_named, place[:depth]))}\]")
        found = next((n for n, line in enumerate(lines) if pattern.match(line)), None)
        if found is not None:
            later = (n for n in range(found + 1, len(lines)) if lines[n].startswith("["))
            header, begin, end = f":{found + 1}", found, next(later, len(lines))
    name = re.escape(place[-1])
    key = re.compile(rf'((^|[{{,])\s*"?{name}"?\s*=)|(\[[^\]]*\b{name}\b[^\]]*\])')
    return next((f":{n + 1}" for n in range(begin, end) if key.search(lines[n])), header)


def _named(part: str) -> str:
    """A pattern for a key in a header."""
    return rf'\s*"?{re.escape(part)}"?\s*'


def load_topics(path: Path) -> TopicFile:
    """Read and check a topic file. Called by every command that needs the topics.

    Raises:
        SettingsError: the file is absent, is not TOML, or holds an unknown key or an invalid
            value. The message names the file, the line and the key.
    """
    try:
        text = path.expanduser().read_text(encoding="utf-8")
        context = {"folder": path.expanduser().parent}
        return TopicFile.model_validate(tomllib.loads(text), context=context)
    except OSError as error:
        message = (
            f"{path}: cannot read the topic file ({error.strerror}). Name another with --topics."
        )
        raise SettingsError(message) from error
    except tomllib.TOMLDecodeError as error:
        message = f"{path}: not valid TOML: {error}."
        raise SettingsError(message) from error
    except ValidationError as error:
        # A key with a typing error is unknown, and another one is missing because of it.
        first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
        cause = first.get("ctx", {}).get("error")
        where = [*(str(part) for part in first["loc"]), *getattr(cause, "place", ())]
        named = re.search(r"'(\w[\w.]*)'", first["msg"])  # by the rules that compare declarations
        place = where or ([named[1]] if named else [])
        said = first["msg"].removeprefix("Value error, ")
        what = "unknown key" if first["type"] == "extra_forbidden" else said
        line = _line_of(text, place) if place else ""
        message = f"{path}{line}: {'.'.join(where) or 'topic file'}: {what}."
        raise SettingsError(message) from error
