"""Generates plausible messages for the topics of any topic file, from their declarations alone.

The files have the format that `lakehouse publish` reads. The same seed gives the same bytes. Each
topic has random numbers of its own, so a topic that is added does not change the others. Keys are
numbered from 1, and a key depends only on its number, so topics can refer to one another in any
order.

Not generated: messages that truncate, and tombstones, which a CSV file cannot express.
"""

import csv
import random
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from lake.topics.address import declared_address
from lake.topics.topic import FieldSpec, Rule, Topic
from lake.topics.topic_file import TopicFile
from lakehouse.messages.encode import cell_fits, column_of, sent_fields, topic_field, why_not_sent
from lakehouse.messages.plausible.cells import (
    DAY_MS,
    HOUR_MS,
    TIMES,
    broken_cell,
    rising_cell,
    time_cell,
)
from lakehouse.messages.plausible.keys import BEGIN_MS, PERIOD_MS, Keys
from lakehouse.messages.plausible.names import free_cell, is_fixed, other_cell
from pulsar_spark.errors import SettingsError

EVENTS, KEYS = 50_000, 5_000  # of each topic, with a scale of 1
UPDATES = (0, 0, 1, 1, 2, 3, 5)  # of a key after its first message, each equally likely
DELETED, MERGED, UNKNOWN, EMPTY = 0.05, 0.05, 0.005, 0.1  # shares

Row = dict[str, str]


class Generated(NamedTuple):
    """What was written: the number of rows by topic, and remarks for the user."""

    rows: Mapping[str, int]
    remarks: list[str]


def generate(
    topics: TopicFile,
    folder: Path,
    scale: float = 1.0,
    seed: int = 1,
    *,
    late: float = 0.0,
    broken: float = 0.0,
) -> Generated:
    """Write `<topic>.csv` for each topic that `lakehouse publish` can fill.

    Called by `lakehouse generate` if the topic file names no application.

    Args:
        topics: the declarations.
        folder: created if it does not exist. Files with these names are replaced.
        scale: 1 gives 50,000 messages of each events topic, and 5,000 keys of each changelog.
        seed: seed of the random numbers.
        late: share of events whose event time is an hour or more before that of an earlier event.
        broken: share of rows with a value that `publish` sends, but that silver refuses.

    Raises:
        SettingsError: `publish` can fill none of the topics.
    """
    left_out = {name: why for name, topic in topics.topics.items() if (why := _why_not(topic))}
    remarks = [f"{name} has no file, because the topic {why}." for name, why in left_out.items()]
    if len(left_out) == len(topics.topics):
        message = f"No topic can be generated. {' '.join(remarks)}"
        raise SettingsError(message, "Publish to these topics with your own producer.")
    folder.mkdir(parents=True, exist_ok=True)
    keys, counts = Keys(topics, max(round(KEYS * scale), 1)), dict[str, int]()
    for name, declared in topics.topics.items():
        if name in left_out:
            continue
        topic = declared.whole
        rng = random.Random(f"{seed} {name}")  # noqa: S311 - repeatable, no secret
        if topic.kind == "changelog":
            plan = _plan(topic, keys.count(topic), rng)
            count, rows = len(plan), _changes(topic, keys, rng, plan)
        else:
            count = max(round(EVENTS * scale), 1)
            rows = _events(topic, keys, rng, count, late if topic.event_time else 0)
            if late and not topic.event_time:
                remarks.append(f"{name} has no late events, because it declares no event_time.")
        fields = _breakable(topic)
        if broken and not fields:
            remarks.append(f"{name} has no broken rows, because publish checks all of its values.")
        chosen = {*rng.sample(range(count), round(count * broken))} if fields else set[int]()
        _write(folder / f"{name}.csv", topic, _spoiled(topic, rows, rng, chosen, fields))
        counts[name] = count
    return Generated(counts, remarks)


def _why_not(topic: Topic) -> str | None:
    if why := why_not_sent(topic):
        return why
    if topic.pattern and not _names(topic):
        return "is read from topics that match a pattern, for which no example could be made"
    if topic.event_time and (kind := topic.fields[topic.event_time].type) not in TIMES:
        return f"has an event_time of type {kind}, which holds no time"
    return None


class _Change(NamedTuple):
    """A message of a changelog that is to be generated. `end` is what it does to its key."""

    moment: int
    number: int
    end: str = ""


def _plan(topic: Topic, count: int, rng: random.Random) -> list[_Change]:
    """The messages of a changelog, by time: for each key the first, its updates, and its end."""
    plan = []
    for number in range(1, count + 1):
        created = Keys.created(number, count)
        chance, end = rng.random(), ""
        if chance < DELETED and _deletes(topic):
            end = "deleted"
        elif chance > 1 - MERGED and topic.merged_into:
            end = "merged"
        left = BEGIN_MS + PERIOD_MS - created
        updates = max(rng.choice(UPDATES), 1 if end else 0)
        moments = sorted(created + 1 + int(rng.random() * left) for _ in range(updates))
        plan += [_Change(moment, number) for moment in (created, *moments)]
        plan[-1] = plan[-1]._replace(end=end)
    return sorted(plan)


def _deletes(topic: Topic) -> Rule | None:
    """The rule by which rows can delete their key; None if no row can."""
    rule = topic.delete
    if not isinstance(rule, Rule) or rule.field in (*topic.key, *topic.sequence):
        return None
    return rule if cell_fits(topic.fields[rule.field], _text(rule)) else None


def _changes(topic: Topic, keys: Keys, rng: random.Random, plan: list[_Change]) -> Iterator[Row]:
    """The rows of a changelog. An update changes one or two fields of the row before."""
    # A set would draw the random numbers in another order in each process.
    rules = [rule for rule in (topic.delete, topic.truncation) if isinstance(rule, Rule)]
    ruled = dict.fromkeys(rule.field for rule in rules)
    taken = {*topic.key, *topic.sequence, topic.event_time, topic.merged_into, *ruled}
    taken.add(topic_field(topic))
    free = [name for name in topic.fields if name not in taken]
    changing = [name for name in free if not is_fixed(name)]
    gone = {change.number for change in plan if change.end == "deleted"}
    latest: dict[int, Row] = {}
    moment = BEGIN_MS
    for row_number, change in enumerate(plan, start=1):
        moment = max(moment + 1, change.moment)  # no two messages have the same time
        before = latest.get(change.number)
        names = free if before is None else rng.sample(changing, min(len(changing), 2))
        row = dict(before or {})
        row |= {name: _free(topic, name, rng, moment, keys) for name in names}
        row |= {name: _unlike(topic, name, rng, moment, before is None) for name in ruled}
        if (rule := _deletes(topic)) and change.end == "deleted":
            row[rule.field] = _text(rule)
        if topic.merged_into:
            merged = change.end == "merged"
            row[topic.merged_into] = _parent(topic, keys, rng, change.number, merged, gone)
        if topic.event_time:
            row[topic.event_time] = time_cell(topic.fields[topic.event_time].type, moment)
        for name in {*topic.sequence} - {topic.event_time}:
            row[name] = rising_cell(topic.fields[name].type, row_number, moment)
        row |= keys.cells(topic, change.number) | _sent_to(topic, change.number)
        latest[change.number] = row
        yield row


def _parent(
    topic: Topic, keys: Keys, rng: random.Random, number: int, merged: bool, gone: set[int]
) -> str:
    """The key into which a key is merged. It is always an older one, so no chain is a cycle."""
    name = topic.merged_into or ""
    parent = rng.randrange(1, number) if number > 1 else 0
    if merged and parent and parent not in gone:
        return keys.reference(topic.name, topic.fields[name].type, parent)
    if topic.fields[name].nullable:
        return _nothing(topic.fields[name])
    # The topic requires a parent of each key. The chains end at a key that does not exist.
    return keys.reference(topic.name, topic.fields[name].type, parent or keys.count(topic) + 1)


def _events(topic: Topic, keys: Keys, rng: random.Random, count: int, late: float) -> Iterator[Row]:
    """The rows of an events topic, whose event times rise, except those of late events."""
    step = PERIOD_MS / count
    # The first event is not late, because nothing is before it.
    lagging = {*rng.sample(range(1, count), min(round(count * late), count - 1))}
    days = 2 if topic.event_time and topic.fields[topic.event_time].type == "date" else 0
    in_a_row = 0
    for index in range(count):
        moment = BEGIN_MS + int((index + rng.random()) * step)
        in_a_row = in_a_row + 1 if index in lagging else 0
        if in_a_row:  # earlier than the last event that was not late
            moment -= int((in_a_row + 2) * step) + HOUR_MS + days * DAY_MS
            moment -= rng.randrange(23 * HOUR_MS)
        row = {name: _free(topic, name, rng, moment, keys) for name in topic.fields}
        row |= keys.cells(topic, index + 1) | _sent_to(topic, index)
        for lookup in reversed(topic.lookups.values()):  # the first one of a field decides
            known, unknown = keys.known(lookup.topic, moment), rng.random() < UNKNOWN
            number = known + 1 - int(1 + known * rng.random() ** 2)  # newer keys are more popular
            if unknown:
                number = keys.count_of(lookup.topic) + rng.randint(1, 1000)
            if lookup.is_simple:
                [on] = lookup.on
                row[on] = keys.reference(lookup.topic, topic.fields[on].type, number)
            else:
                cells = keys.cells_of(lookup.topic, number)
                row |= {on: cells[n] for n, on in enumerate(lookup.on) if on in topic.fields}
        if topic.event_time:
            row[topic.event_time] = time_cell(topic.fields[topic.event_time].type, moment)
        yield row


def _sent_to(topic: Topic, number: int) -> Row:
    """The field that says which of several topics the row is sent to, and that topic."""
    name = topic_field(topic)
    if name is None or not topic.has_several:
        return {}
    names = _names(topic)
    return {name: names[number % len(names)]}


def _names(topic: Topic) -> list[str]:
    """The topics to which rows are sent: those of the list, or some that match the pattern."""
    return declared_address(topic.name, topic.topic, topic.pattern, None).examples


def _free(topic: Topic, name: str, rng: random.Random, moment: int, keys: Keys) -> str:
    spec = topic.fields[name]
    if spec.nullable and rng.random() < EMPTY:
        return _nothing(spec)
    return free_cell(rng, name, spec.type, moment, keys.count_of())


def _nothing(spec: FieldSpec) -> str:
    """The cell that stands for no value. For a string, an empty cell is a string."""
    return str(spec.absent) if spec.type == "string" and spec.absent is not None else ""


def _unlike(topic: Topic, name: str, rng: random.Random, moment: int, is_first: bool) -> str:
    """A value of a rule's field that makes the message neither a delete nor a truncation."""
    rules = [rule for rule in (topic.delete, topic.truncation) if isinstance(rule, Rule)]
    avoided = {_text(rule) for rule in rules if rule.field == name}
    if topic.fields[name].type == "string" and any(len(each) == 1 for each in avoided):
        return "c" if is_first else "u"
    return other_cell(rng, name, topic.fields[name].type, moment, avoided)


def _text(rule: Rule) -> str:
    return str(rule.equals).lower() if isinstance(rule.equals, bool) else str(rule.equals)


def _breakable(topic: Topic) -> list[str]:
    """The fields that can be broken. Those that identify a row only if there are no others."""
    rng = random.Random(0)  # noqa: S311 - the value does not matter
    found = [
        name
        for name in sent_fields(topic)
        if name != topic.event_time and broken_cell(rng, topic.fields[name].type) is not None
    ]
    identifying = {*topic.key, topic.message_key, *topic.referring}
    return [name for name in found if name not in identifying] or found


def _spoiled(
    topic: Topic, rows: Iterable[Row], rng: random.Random, chosen: set[int], fields: list[str]
) -> Iterator[Row]:
    for index, row in enumerate(rows):
        if index in chosen:
            name = rng.choice(fields)
            yield {**row, name: broken_cell(rng, topic.fields[name].type) or ""}
        else:
            yield row


def _write(path: Path, topic: Topic, rows: Iterable[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        names = sent_fields(topic)
        writer.writerow([column_of(topic, name) for name in names])
        writer.writerows([row[name] for name in names] for row in rows)
