"""Interval joins: pairs of events that are close in time, as a topic file declares them.

A join becomes a view with a key, which silver keeps like any other (`silver/materialized.py`). Its
query divides time into bins as long as the interval, so that events that are far apart are never
compared: an event of the left is in one bin, and one of the right in the one or two bins in which
its partners are. Because the bins are compared by equality, the planner (`lake/kept`) also finds
the rows that a changed event can affect by them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, model_validator

from lake.quoting import identifier
from lake.topics.durations import Duration, micros
from lake.topics.misplaced import Misplaced
from lake.topics.topic import Declaration, Name, Topic, View, hash_column, snake_case, sql_type

NOTHING = dt.timedelta(0)
SHORTEST_BIN = dt.timedelta(seconds=1)
OWN = "silver_batch"  # the column that silver adds


class Within(Declaration):
    """When the partners of an event happen, both bounds included.

    before: how long before the event of `left`.
    after: how long after the event of `left`.
    """

    before: Duration = NOTHING
    after: Duration = NOTHING

    @model_validator(mode="after")
    def _is_not_empty(self) -> Within:
        if not self.length:
            message = "is empty; set 'before' or 'after' to a duration above 0"
            raise ValueError(message)
        return self

    @property
    def length(self) -> dt.timedelta:
        """How long the interval is."""
        return self.before + self.after


class Join(Declaration):
    """Joins events of `left` with the events of `right` that happened within an interval of them.

    The table `silver.<name>` has a row for each event of `left` and each of its partners, and a row
    with NULL in the columns of `right` for an event without one.

    left, right: topics of events, which may be the same one.
    on: fields of `left` that equal fields of `right`. NULL equals nothing.
    within: the interval.
    match: which partners count: `all` (default), or only the `first` or the `last` by event time,
        and then by key.
    left_where, right_where: conditions in Spark's SQL over the columns of a topic's fields. Events
        for which they are not true take no part.
    prefix: what the columns of `right` begin with. Default: the name of the topic.
    description: what a row means.
    """

    name: Name
    left: Name
    right: Name
    on: Annotated[dict[Name, Name], Field(min_length=1)]
    within: Within
    match: Literal["all", "first", "last"] = "all"
    left_where: Annotated[str, Field(min_length=1)] | None = None
    right_where: Annotated[str, Field(min_length=1)] | None = None
    prefix: Name | None = None
    description: Annotated[str, Field(min_length=1)] | None = None

    @property
    def missing(self) -> str:
        """The name of the view of the events of `left` without a partner."""
        return f"missing_{self.name}"

    def of_right(self, column: str) -> str:
        """The column of the join for a column of `right`."""
        return f"{snake_case(self.prefix or self.right)}_{column}"


@dataclass(frozen=True)
class Reach:
    """How far apart the events of a row can be.

    times: for each table that the join reads, the column with the event time.
    column: the column of the join with the event time of `left`.
    span: the length of the interval. If an event changes, only rows whose event of `left` is at
        most this far from it can differ, and their partners are at most this far from that event.
    """

    times: Mapping[str, str]
    column: str
    span: dt.timedelta


@dataclass(frozen=True)
class JoinOf:
    """A join with its topics, which `checked` has found to fit."""

    join: Join
    left: Topic
    right: Topic

    @classmethod
    def checked(cls, join: Join, topics: Mapping[str, Topic]) -> JoinOf:
        """The join with its topics.

        Raises:
            Misplaced: a topic does not exist or has no events, or the join does not fit it.
        """
        found = []
        for side in ("left", "right"):
            name: str = getattr(join, side)
            topic = topics.get(name)
            if topic is None:
                known = ", ".join(t.name for t in topics.values() if t.kind == "events")
                what = f"'{name}' is not a topic of this file; topics of events are: {known}"
                raise _at(join, side, what)
            if topic.kind != "events":
                what = (
                    f"'{name}' is a changelog. To join events with the state of a changelog, "
                    "declare a lookup in 'lookups' of the events"
                )
                raise _at(join, side, what)
            found.append(topic)
        self = cls(join, *found)
        for topic, side in ((self.left, "left"), (self.right, "right")):
            self._require_time(topic, side)
        self._require_partners()
        self._require_fixed_columns()
        self._require_equal_types()
        self._require_conditions()
        self._require_distinct_columns()
        return self

    def _require_time(self, topic: Topic, side: str) -> None:
        name = topic.event_time
        if name is None:
            what = f"topic '{topic.name}' has no 'event_time', by which events are joined; set it"
            raise _at(self.join, side, what)
        spec = topic.fields[name]
        if sql_type(spec) != "timestamp" or spec.nullable:
            what = (
                f"the event time '{name}' of topic '{topic.name}' must be a timestamp that is "
                "required and has no 'absent', because an event without a time has no partners"
            )
            raise _at(self.join, side, what)

    def _require_fixed_columns(self) -> None:
        for topic, side in ((self.left, "left"), (self.right, "right")):
            if topic.evolve:
                what = (
                    f"topic '{topic.name}' has 'evolve', but the join has all its fields, and "
                    "would be computed again with each new one. Declare new fields in this file"
                )
                raise _at(self.join, side, what)

    def _require_partners(self) -> None:
        if self.right.keep is not None:
            what = (
                f"topic '{self.right.name}' has 'keep', but an event of '{self.left.name}' would "
                "be listed as one without a partner when its partner is deleted. Remove 'keep' of "
                f"'{self.right.name}'; that of the left topic is possible"
            )
            raise _at(self.join, "right", what)

    def _require_equal_types(self) -> None:
        for ours, theirs in self.join.on.items():
            kinds = []
            for topic, name in ((self.left, ours), (self.right, theirs)):
                if name not in topic.fields:
                    what = f"names '{name}', which is not a field of topic '{topic.name}'"
                    raise _at(self.join, "on", what)
                kinds.append(sql_type(topic.fields[name]))
            if kinds[0] != kinds[1]:
                what = (
                    f"'{ours}' is {kinds[0]} and '{theirs}' is {kinds[1]}; join fields of the same "
                    "type, such as by a computed field"
                )
                raise _at(self.join, "on", what)
            if kinds[0] in ("float", "double") or "<" in kinds[0]:
                what = f"'{ours}' is {kinds[0]}, which has no exact equality; join by another field"
                raise _at(self.join, "on", what)

    def _require_conditions(self) -> None:
        for topic, key in ((self.left, "left_where"), (self.right, "right_where")):
            sql = getattr(self.join, key)
            if sql is not None:
                from lake.topics.computed import columns_of  # few files need a parser of SQL

                try:
                    columns_of(sql, {snake_case(name) for name in topic.fields})
                except ValueError as error:
                    raise _at(self.join, key, str(error)) from error

    def _require_distinct_columns(self) -> None:
        known = {OWN: "silver itself"}
        ours = ((name, f"topic '{self.left.name}'") for name in _columns(self.left))
        theirs = (
            (self.join.of_right(name), f"topic '{self.right.name}'")
            for name in _columns(self.right)
        )
        for name, whose in (*ours, *theirs):
            if name in known:
                what = (
                    f"the column '{name}' would come from {known[name]} and from {whose}; set "
                    "another 'prefix' for the columns of 'right'"
                )
                raise _at(self.join, "prefix", what)
            known[name] = whose

    @property
    def view(self) -> View:
        """The view with a key that the join is."""
        partner = {self.join.of_right(n): kind for n, kind in _columns(self.right).items()}
        return View(
            name=self.join.name,
            description=self.join.description or self._description(),
            key=self.key,
            columns={**_columns(self.left), **partner},
            sql=self._sql(),
        )

    @property
    def key(self) -> list[str]:
        """The columns that identify a row."""
        partner = [self.join.of_right(name) for name in self.right.key_columns]
        return [*self.left.key_columns, *(partner if self.join.match == "all" else [])]

    @property
    def is_missing(self) -> str:
        """The condition, in SQL, that a row has no partner."""
        return f"{self.join.of_right(self.right.key_columns[0])} IS NULL"

    @property
    def reach(self) -> Reach:
        """How far apart the events of a row can be."""
        times = {_table(topic): _time(topic) for topic in (self.left, self.right)}
        return Reach(times, _time(self.left), self.join.within.length)

    def _description(self) -> str:
        which = {"all": "each partner", "first": "its first partner", "last": "its last partner"}
        return (
            f"Events of {self.left.name} with {which[self.join.match]} of {self.right.name} within "
            "the interval. Grain: one event"
            + (" and partner" if self.join.match == "all" else "")
            + f"; NULL in the columns of {self.right.name} if there is none"
        )

    def _sql(self) -> str:
        names = [
            *(f"_l.{identifier(name)}" for name in _columns(self.left)),
            *(
                f"_r.{identifier(name)} AS {identifier(self.join.of_right(name))}"
                for name in _columns(self.right)
            ),
        ]
        parts = "\nUNION ALL\n".join(self._of_right())
        on = [
            *(
                f"_r.{identifier(snake_case(theirs))} = _l.{identifier(snake_case(ours))}"
                for ours, theirs in self.join.on.items()
            ),
            "_r._bin = _l._bin",
            f"_r._at >= _l._at - {micros(self.join.within.before)}",
            f"_r._at <= _l._at + {micros(self.join.within.after)}",
        ]
        joined = (
            f"FROM (\n{self._of_left()}\n) AS _l\n"
            f"LEFT JOIN (\n{parts}\n) AS _r\nON {' AND '.join(on)}"
        )
        if self.join.match == "all":
            return f"SELECT {', '.join(names)}\n{joined}"
        order = "DESC" if self.join.match == "last" else "ASC"
        by = [f"_r.{name} {order}" for name in ("_at", *map(identifier, self.right.key_columns))]
        parted = ", ".join(f"_l.{identifier(name)}" for name in self.left.key_columns)
        place = f"row_number() OVER (PARTITION BY {parted} ORDER BY {', '.join(by)}) AS _place"
        shown = ", ".join(map(identifier, self.view_columns))
        return (
            f"SELECT {shown} FROM (\nSELECT {', '.join(names)}, {place}\n{joined}\n) "  # noqa: S608 - topic.py checks names
            "WHERE _place = 1"
        )

    @property
    def view_columns(self) -> list[str]:
        """The names of the columns."""
        return [*_columns(self.left), *map(self.join.of_right, _columns(self.right))]

    def _of_left(self) -> str:
        return self._events(self.left, _micros_of(self.left), _where(self.join.left_where))

    def _of_right(self) -> Iterator[str]:
        """The events of the right, in the bin of their first partner and in that of their last."""
        at, where = _micros_of(self.right), _where(self.join.right_where)
        first = f"({at} - {micros(self.join.within.after)})"
        last = f"({at} + {micros(self.join.within.before)})"
        differ = f"{last} DIV {self._width} <> {first} DIV {self._width}"
        yield self._events(self.right, first, where)
        yield self._events(self.right, last, f"{where} AND {differ}")

    def _events(self, topic: Topic, instant: str, where: str) -> str:
        """SQL of a topic's events, with their time in microseconds, and the bin of an instant."""
        columns = ", ".join(map(identifier, _columns(topic)))
        return (
            f"SELECT {columns}, {_micros_of(topic)} AS _at, "  # noqa: S608 - topic.py checks names
            f"{instant} DIV {self._width} AS _bin "
            f"FROM {_table(topic)} WHERE {where}"
        )

    @property
    def _width(self) -> int:
        return micros(max(self.join.within.length, SHORTEST_BIN))


def _at(join: Join, key: str, what: str) -> Misplaced:
    return Misplaced(("joins", join.name, key), what)


def _columns(topic: Topic) -> dict[str, str]:
    """The columns of a topic's fields and hashes, with their types.

    Fields with parts are left out: the rows of a view are compared by their values.
    """
    single = {name: spec for name, spec in topic.fields.items() if spec.kind.is_scalar}
    fields = {snake_case(name): sql_type(spec) for name, spec in single.items()}
    return fields | {hash_column(name): "string" for name in topic.hashed}


def _time(topic: Topic) -> str:
    return snake_case(str(topic.event_time))


def _table(topic: Topic) -> str:
    return f"enriched_{topic.name}"


def _micros_of(topic: Topic) -> str:
    return f"unix_micros({identifier(_time(topic))})"


def _where(condition: str | None) -> str:
    # Spark would read `FROM events WHERE (name)` as an alias of the table and its column.
    return f"true AND (\n{condition}\n)" if condition else "true"
