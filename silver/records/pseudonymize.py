"""Keeps forgotten people out of silver.

`silver.forgotten` identifies a person only by a keyed hash. Messages of a forgotten person that
arrive later, or again in a replay, are read under another key: a pseudonym, computed from the key
and the secret. The state of a pseudonym is only a tombstone. Orders therefore stay, but belong to
nobody.
"""

import re
from collections.abc import Collection
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from lake.settings.pseudonyms import PseudonymSecret, keyed_hash
from lake.settings.settings import LakeSettings
from lake.tables.lake import Lake
from lake.tables.spec import APPEND_ONLY, TableSpec
from lake.topics.topic import Topic, hash_column, snake_case, sql_type
from lake.topics.topic_file import TopicFile
from pulsar_spark.errors import SettingsError
from pulsar_spark.schema import Column as TableColumn
from silver.contract.columns import CAME, REASON
from silver.contract.evolved import AddedField

FORGOTTEN = TableSpec(
    "silver",
    "forgotten",
    "Forgotten people, by keyed hash. Grain: one person in one run of `lakehouse forget`",
    (
        TableColumn("topic", "string", "Changelog in which the person was a key", nullable=False),
        TableColumn("person", "string", "Keyed hash of the topic and the key", nullable=False),
        TableColumn("forgotten_at", "timestamp", "When the run began", nullable=False),
        TableColumn("reason", "string", "The reason given for the run", nullable=False),
        TableColumn("messages", "bigint", "Number of messages rewritten in bronze", nullable=False),
        TableColumn("secret", "string", "Fingerprint of the secret", nullable=False),
    ),
    {APPEND_ONLY: "true"},
)
# Bits of a numeric pseudonym, by key type. Pseudonyms are negative, and real keys are not.
BITS = {"long": 62, "int": 30}


def person_hash(secret: bytes, topic: str, key: str) -> str:
    """The hash by which `silver.forgotten` identifies a person; `key` is the key as text."""
    return keyed_hash(secret, f"lakehouse: person\0{topic}\0{key}".encode())


def pseudonym(secret: bytes, topic: Topic, key: str) -> str:
    """The key, as text, that replaces a person's key."""
    digest = keyed_hash(secret, f"lakehouse: pseudonym\0{topic.name}\0{key}".encode())
    bits = BITS.get(topic.fields[topic.key[0]].type)
    if bits is None:
        return f"forgotten-{digest[:32]}"
    return str(-1 - int(digest, 16) % (1 << bits))


def people_of(topic: Topic, topics: TopicFile) -> list[tuple[str, Topic]]:
    """The fields of a topic that refer to people, each with the changelog that defines its keys."""
    if topic.kind == "changelog":
        own = [topic.key[0], *([topic.merged_into] if topic.merged_into else [])]
        return [(name, topic) for name in own] if is_about_people(topic) else []
    simple = (lookup for lookup in topic.lookups.values() if lookup.is_simple)
    targets = [(lookup.on[0], topics.topics[lookup.topic]) for lookup in simple]
    return [(on, target) for on, target in targets if is_about_people(target)]


def is_about_people(topic: Topic) -> bool:
    """Whether a changelog's keys are people: it has personal fields and a key of one field."""
    declared = (spec for spec in topic.fields.values() if not isinstance(spec, AddedField))
    personal = any(spec.personal for spec in declared)
    return topic.kind == "changelog" and personal and len(topic.key) == 1


class Forgotten:
    """The people whom a silver query must not store."""

    def __init__(self, lake: Lake) -> None:
        """Read the table `silver.forgotten`, if it exists.

        Raises:
            SettingsError: people were forgotten, but the secret is not set or has changed.
        """
        self._secret: PseudonymSecret | None = None
        self._people: frozenset[str] = frozenset()
        if not lake.table(FORGOTTEN).exists():
            return
        rows = lake.table(FORGOTTEN).arrow.rows(["person", "secret"])
        self._people = frozenset(row["person"] for row in rows)
        if self._people:
            self._secret = known_secret(lake.settings, {row["secret"] for row in rows})

    def conceal(self, rows: DataFrame, topic: Topic, topics: TopicFile) -> DataFrame:
        """Replace forgotten people by pseudonyms in a topic's decoded rows (`Decoder.rows`)."""
        if self._secret is not None:
            for name, subject in people_of(topic, topics):
                rows = self._conceal(rows, topic, name, subject)
        return rows

    def _conceal(self, rows: DataFrame, topic: Topic, name: str, subject: Topic) -> DataFrame:
        """Pseudonymise one field; clear payload and key if they identify the person."""
        column = snake_case(name)
        is_own = topic == subject and name == subject.key[0]
        found = rows.withColumn("_as", self._pseudonyms(F.col(column), subject))
        is_theirs = F.col("_as").isNotNull() & F.col(REASON).isNull()
        tells = is_theirs
        if is_own:
            tells = tells | self._pseudonyms(F.col(f"{CAME}.key"), subject).isNotNull()
        nothing = F.col(CAME)
        for raw, kind in (("key", "string"), ("payload", "binary")):
            nothing = nothing.withField(raw, F.lit(None).cast(kind))
        came = F.when(F.coalesce(tells, F.lit(False)), nothing).otherwise(F.col(CAME))
        values = {column: F.col("_as").cast(sql_type(topic.fields[name]))}
        for each, spec in topic.fields.items():
            if each != name and (is_own or (spec.personal and topic != subject)):
                values[snake_case(each)] = F.lit(None).cast(sql_type(spec))
                if each in topic.hashed:
                    values[hash_column(each)] = F.lit(None).cast("string")
        if is_own:
            values["is_deleted"] = F.lit(True)
        found = found.withColumn(CAME, came)
        for each, value in values.items():
            found = found.withColumn(each, F.when(is_theirs, value).otherwise(F.col(each)))
        return found.drop("_as")

    def _pseudonyms(self, keys: Column, subject: Topic) -> Column:
        """The pseudonym of each key as text; NULL if the person was not forgotten."""
        secret, people = cast(PseudonymSecret, self._secret), self._people

        def compute(texts: pa.Array) -> pa.Array:
            key = secret.read()
            known: dict[str | None, str | None] = {None: None}
            for text in pc.unique(texts).to_pylist():
                if text is not None and person_hash(key, subject.name, text) in people:
                    known[text] = pseudonym(key, subject, text)
            return pa.array([known.get(text) for text in texts.to_pylist()], pa.string())

        return cast(Column, arrow_udf(compute, "string")(keys.cast("string")))  # type: ignore[call-overload]


def known_secret(settings: LakeSettings, fingerprints: Collection[str]) -> PseudonymSecret:
    """The secret in the settings, which must be the one that identifies forgotten people.

    Args:
        settings: the lake.
        fingerprints: fingerprints of the secrets in `silver.forgotten`.

    Raises:
        SettingsError: no secret is set, or it is a different one.
    """
    if settings.pseudonyms is None:
        message = (
            "Forgotten people are recognised by keyed hashes, but the secret for the hashes is not "
            "set, so their data would come back. Set LAKEHOUSE_PSEUDONYM_SECRET, or …_FILE."
        )
        raise SettingsError(message)
    if {*fingerprints} - {settings.pseudonyms.fingerprint()}:
        message = (
            "silver.forgotten was written with another pseudonym secret, so the data of forgotten "
            "people would come back. Set the former secret."
        )
        raise SettingsError(message)
    return settings.pseudonyms


def mentions(names: Collection[str], keys: Collection[str]) -> str:
    """A regular expression that finds one of the names followed by one of the keys.

    It matches JSON, JSON within a JSON string, and SQL conditions. Used by `lakehouse forget` to
    find people in tables and files.
    """
    listed = "|".join(map(re.escape, sorted(names)))
    values = "|".join(map(re.escape, sorted(keys)))
    return rf"(?<![A-Za-z0-9_])({listed})(#\d+L?)?[^A-Za-z0-9-]{{1,12}}({values})(?![A-Za-z0-9])"
