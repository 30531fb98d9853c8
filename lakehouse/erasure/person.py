"""Finds a person in bronze: all accounts of the person, and all messages of or about them."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lake.settings.pseudonyms import PseudonymSecret
from lake.tables.lake import Lake
from lake.tables.spec import as_messages, bronze_table
from lake.topics.topic import Topic, snake_case
from lake.topics.topic_file import TopicFile
from lakehouse.erasure.redact import Place, Redacted
from pulsar_spark.errors import SettingsError
from pulsar_spark.schema import POSITION_FIELDS
from silver.contract.columns import CAME, REASON
from silver.records.decode import Decoder
from silver.records.nested_types import texts_in
from silver.records.payload import rewritten
from silver.records.pseudonymize import BITS, is_about_people, mentions, people_of, pseudonym
from silver.records.schemas import SchemaRegistry, versions_of
from silver.state.merge import latest_per_key

SHORTEST = 4  # characters; shorter values are not searched for


@dataclass
class Person:
    """A person, with all accounts that are merged into one.

    pseudonyms: by the key of an account; both as text. values: by personal field, all values in the
        person's messages that no other person has or had.
    """

    topic: Topic
    pseudonyms: dict[str, str]
    values: dict[str, set[str]] = field(default_factory=dict)

    def typed(self, key: str) -> Any:
        """A key as a value of the key column's type."""
        return int(key) if self.topic.fields[self.topic.key[0]].type in BITS else key

    @property
    def keys(self) -> list[Any]:
        """The person's keys as values of the key column's type."""
        return [self.typed(key) for key in self.pseudonyms]

    @property
    def texts(self) -> list[str]:
        """The values of all fields, sorted."""
        return sorted({text for values in self.values.values() for text in values})


@dataclass(frozen=True)
class Found:
    """The person's messages in one topic, with their new content.

    refused: messages that silver could not decode.
    """

    topic: Topic
    messages: list[Redacted]
    refused: list[Redacted]


def subject(topics: TopicFile, name: str | None) -> Topic:
    """The changelog whose keys are people.

    Raises:
        SettingsError: there is none, there are several and none was named, its messages cannot
            become tombstones, or messages that refer to it cannot be rewritten.
    """
    known = [topic.name for topic in topics.changelogs() if is_about_people(topic)]
    if name not in (*known, None) or not known or (name is None and len(known) > 1):
        message = (
            f"It is unclear which changelog the person is in: --topic is {name or 'not set'}, and "
            "the changelogs with personal fields and a single-field key are: "
            f"{', '.join(known) or 'none'}. Declare fields as personal in the topic file, or name "
            "one of these changelogs with --topic."
        )
        raise SettingsError(message)
    topic = topics.topics[name or known[0]]
    hinders = [
        option
        for option, is_set in (
            ("delete = 'never'", topic.delete == "never"),
            ("sequence", topic.sequence),
            ("envelope", topic.envelope),
            ("updates = 'partial'", topic.updates == "partial"),
            ("ignore_null_updates", topic.ignore_null_updates),
        )
        if is_set
    ]
    if topic.merged_into and topic.format != "json":
        hinders.append(f"merged_into and schema = '{topic.format}'")
    if topic.fields[topic.key[0]].type not in (*BITS, "string"):
        hinders.append(f"a key of type {topic.fields[topic.key[0]].type}")
    if hinders:
        message = (
            f"`lakehouse forget` does not support the topic '{topic.name}' yet: it has "
            f"{hinders[0]}, so a message without a payload would not be a tombstone when silver is "
            "rebuilt."
        )
        raise SettingsError(message)
    for events in referring(topic, topics):
        _see_it_can_be_rewritten(events, topic, topics)
    return topic


def referring(topic: Topic, topics: TopicFile) -> list[Topic]:
    """The event topics that refer to people of a changelog."""
    return [
        events
        for events in topics.events()
        if any(target == topic for _, target in people_of(events, topics))
    ]


def _see_it_can_be_rewritten(events: Topic, topic: Topic, topics: TopicFile) -> None:
    required = [name for name, spec in events.fields.items() if spec.personal and spec.required]
    required = [n for n in required if n not in dict(people_of(events, topics))]
    if events.format != "json" or required:
        what = f"'{required[0]}' is personal and required" if required else "they are not JSON"
        message = (
            f"The topic '{events.name}' refers to '{topic.name}', but its messages cannot be "
            f"rewritten without the person: {what}. "
            + (
                "Declare it required = false."
                if required
                else "Only JSON messages can be rewritten."
            )
        )
        raise SettingsError(message)


def required_secret(lake: Lake) -> PseudonymSecret:
    """The secret that identifies forgotten people and creates their pseudonyms.

    Raises:
        SettingsError: no secret is set.
    """
    if lake.settings.pseudonyms is None:
        message = (
            "No pseudonym secret is set. A keyed hash with this secret identifies forgotten "
            "people, so that late messages do not bring them back. Set LAKEHOUSE_PSEUDONYM_SECRET "
            "or LAKEHOUSE_PSEUDONYM_SECRET_FILE."
        )
        raise SettingsError(message)
    return lake.settings.pseudonyms


def check_key(topic: Topic, key: str) -> None:
    """Check that a text can be a key of a changelog.

    Raises:
        SettingsError: the text is empty or does not have the type of the key.
    """
    kind = topic.fields[topic.key[0]].type
    if not key or (kind in BITS and not re.fullmatch("0|[1-9][0-9]{0,17}", key)):
        message = (
            f"'{key}' is not a valid key of the topic '{topic.name}', whose keys are of type "
            f"{kind}."
        )
        raise SettingsError(message)


class Search:
    """Finds a person's messages in bronze."""

    def __init__(self, spark: SparkSession, lake: Lake, topic: Topic) -> None:
        self._spark = spark
        self._lake = lake
        self._topic = topic

    def person(self, key: str) -> Person:
        """The person behind a key, with all merged accounts and the values unique to the person."""
        secret = required_secret(self._lake).read()
        rows = self._decoded(self._topic).where(F.col(REASON).isNull()).persist()
        try:
            keys = self._merged(rows, key)
            person = Person(self._topic, {k: pseudonym(secret, self._topic, k) for k in keys})
            is_theirs = F.col(self._topic.key_columns[0]).isin(person.keys)
            theirs, others = rows.where(is_theirs), rows.where(~is_theirs)
            for name, spec in self._topic.fields.items():
                if spec.personal:
                    texts = texts_in(F.col(snake_case(name)), spec.kind.as_column())
                    hers, of_others = (_trimmed(each, texts) for each in (theirs, others))
                    own = {row[0] for row in hers.distinct().collect()}
                    own = {text for text in own if text and len(text) >= SHORTEST}
                    is_own = F.col("value").isin([*own])
                    shared = of_others.where(is_own).distinct().collect()
                    person.values[name] = own - {row[0] for row in shared}
            return person
        finally:
            rows.unpersist()

    def _merged(self, rows: DataFrame, key: str) -> list[str]:
        """All keys that are merged with this key, directly or not, by their latest messages."""
        if not self._topic.merged_into:
            return [key]
        columns = self._topic.key_columns
        latest = latest_per_key(rows, columns, self._topic.order_columns)
        parent = F.col(snake_case(self._topic.merged_into)).cast("string")
        pairs = latest.select(F.col(columns[0]).cast("string"), parent).where(parent.isNotNull())
        edges = [(row[0], row[1]) for row in pairs.collect()]
        found, size = {key}, 0
        while len(found) > size:
            size = len(found)
            for one, other in edges:
                if one in found or other in found:
                    found |= {one, other}
        return sorted(found)

    def messages(self, person: Person) -> Iterator[Found]:
        """By topic, the new content of the person's messages in bronze."""
        for topic in (self._topic, *referring(self._topic, self._lake.topics)):
            names = [
                n for n, target in people_of(topic, self._lake.topics) if target == self._topic
            ]
            decoded = self._decoded(topic)
            theirs = reduce(or_, (F.col(snake_case(name)).isin(person.keys) for name in names))
            refused = self._is_refused(person, topic, names)
            chosen = decoded.where(
                F.when(F.col(REASON).isNull(), theirs).otherwise(refused)
            ).select(
                *(f"position.{name}" for name in POSITION_FIELDS),
                F.col(REASON).isNotNull().alias("is_refused"),
                F.col(topic.key_columns[0]).cast("string").alias("whose"),
            )
            if topic.explode:  # a message has many rows
                chosen = chosen.dropDuplicates([*POSITION_FIELDS])
            raw = self._lake.table(bronze_table(topic.name)).rows(self._spark)
            rows = raw.join(F.broadcast(chosen), [*POSITION_FIELDS]).collect()
            good, bad = [], []
            for row in rows:
                place: Place = tuple(row[name] for name in POSITION_FIELDS)
                if row["is_refused"]:
                    bad.append(Redacted(place, _key_of(topic, names, row["key"]), None))
                else:
                    good.append(self._rewritten(person, topic, names, place, row))
            yield Found(topic, good, bad)

    def _is_refused(self, person: Person, topic: Topic, names: Iterable[str]) -> Column:
        """Whether a record that cannot be decoded seems to be the person's.

        It is if a person's key follows one of the names, or if it contains one of the values.
        """
        parts = [F.col(f"{CAME}.payload").cast("string")]
        if any(spec.message_property for spec in topic.fields.values()):
            parts.append(F.to_json(f"{CAME}.properties"))
        text = F.concat_ws(" ", *parts)
        in_json = {topic.place(name)[-1] for name in names}
        found = text.rlike(mentions({*names} | in_json, [*person.pseudonyms]))
        for value in person.texts:
            found = found | F.contains(text, F.lit(value))
        if topic == self._topic:
            is_key = F.col(f"{CAME}.key").isin([*person.pseudonyms])
            found = found | F.coalesce(is_key, F.lit(False))
        return found

    def _rewritten(
        self, person: Person, topic: Topic, names: list[str], place: Place, row: Any
    ) -> Redacted:
        """The new content of a message.

        The person's own message becomes a tombstone. A message that refers to the person refers to
        the pseudonym instead.
        """
        if topic == self._topic and row["whose"] in person.pseudonyms:
            return Redacted(place, person.pseudonyms[row["whose"]], None)
        kept = list(topic.fields)
        if topic != self._topic:
            kept = [n for n, spec in topic.fields.items() if n in names or not spec.personal]
        changed = {topic.place(name): person.pseudonyms for name in names}
        payload = rewritten(row["payload"], topic.tree_with(kept), changed)
        properties = [topic.fields[name].message_property for name in kept]
        key = _key_of(topic, names, row["key"])
        return Redacted(place, key, payload, tuple(filter(None, properties)))

    def _decoded(self, topic: Topic) -> DataFrame:
        """All messages of a topic in bronze, decoded without masking."""
        messages = as_messages(self._lake.table(bronze_table(topic.name)).rows(self._spark))
        messages = messages.withColumn("source", F.lit(topic.name))
        versions = versions_of(topic, messages)
        registry = SchemaRegistry(self._lake)
        schemas = registry.schemas(topic, versions) if versions else {}
        bare = topic.model_copy(
            update={
                "fields": {
                    name: spec.model_copy(update={"personal": None})
                    for name, spec in topic.fields.items()
                }
            }
        )  # hashes of personal fields are not needed here
        return Decoder(bare, schemas).rows(messages)


def _trimmed(rows: DataFrame, texts: Column) -> DataFrame:
    """The texts of all rows, in the column `value`."""
    return rows.select(F.explode(texts).alias("value")).select(F.trim("value").alias("value"))


def _key_of(topic: Topic, names: Iterable[str], key: str | None) -> str | None:
    """The key of a rewritten message, or None if the key is personal or identifies the person."""
    parts = topic.key if topic.message_key is None else [topic.message_key]
    is_personal = any(s.from_message == "key" and s.personal for s in topic.fields.values())
    return None if is_personal or {*names} & {*parts} else key
