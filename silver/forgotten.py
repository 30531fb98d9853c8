"""Who was forgotten, and what their messages are from then on.

`silver.forgotten` knows a person by a keyed hash alone. Whatever comes of a forgotten person later,
late or from a replay, is read as if the person had another key: a pseudonym, made of the key and
the secret, under which there is nothing but a tombstone. So orders stay, and belong to nobody.
"""

import re
from collections.abc import Collection
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from bronze.declarations import Topic, hash_column, snake_case
from bronze.direct import DirectTable
from bronze.envelope import Column as TableColumn
from bronze.errors import SettingsError
from bronze.pseudonyms import PseudonymSecret, keyed_hash
from bronze.settings import LakeSettings
from bronze.tables import APPEND_ONLY, TableSpec
from bronze.topics import TopicFile
from silver.columns import CAME, REASON
from silver.tables import sql_type

FORGOTTEN = TableSpec(
    "silver",
    "forgotten",
    "Who was forgotten, without saying who. Grain: one run of `lakehouse forget` and person",
    (
        TableColumn("topic", "string", "Changelog of which the person was a key", nullable=False),
        TableColumn("person", "string", "Keyed hash of topic and key", nullable=False),
        TableColumn("forgotten_at", "timestamp", "When it was begun", nullable=False),
        TableColumn("reason", "string", "Why, as was given", nullable=False),
        TableColumn("messages", "bigint", "Messages that were rewritten in bronze", nullable=False),
        TableColumn("secret", "string", "Fingerprint of the secret", nullable=False),
    ),
    {APPEND_ONLY: "true"},
)
# Bits of a pseudonym by the type of the key: below 0, where keys are not.
BITS = {"long": 62, "int": 30}


def person_hash(secret: bytes, topic: str, key: str) -> str:
    """By which `silver.forgotten` knows a person; `key` is the key as text."""
    return keyed_hash(secret, f"lakehouse: person\0{topic}\0{key}".encode())


def pseudonym(secret: bytes, topic: Topic, key: str) -> str:
    """The key, as text, that takes the place of a person's."""
    digest = keyed_hash(secret, f"lakehouse: pseudonym\0{topic.name}\0{key}".encode())
    bits = BITS.get(topic.fields[topic.key[0]].type)
    if bits is None:
        return f"forgotten-{digest[:32]}"
    return str(-1 - int(digest, 16) % (1 << bits))


def people_of(topic: Topic, topics: TopicFile) -> list[tuple[str, Topic]]:
    """The fields of a topic that name people, each with the changelog whose keys they are."""
    if topic.kind == "changelog":
        own = [topic.key[0], *([topic.merged_into] if topic.merged_into else [])]
        return [(name, topic) for name in own] if is_about_people(topic) else []
    targets = [(lookup.on, topics.topics[lookup.topic]) for lookup in topic.lookups.values()]
    return [(on, target) for on, target in targets if is_about_people(target)]


def is_about_people(topic: Topic) -> bool:
    """Whether the keys of a changelog are people: it has personal fields."""
    personal = any(spec.personal for spec in topic.fields.values())
    return topic.kind == "changelog" and personal and len(topic.key) == 1


class Forgotten:
    """The people that a silver query must not know."""

    def __init__(self, settings: LakeSettings) -> None:
        """Read them.

        Raises:
            SettingsError: there are some, and the secret by which they are known is not set.
        """
        self._secret: PseudonymSecret | None = None
        self._people: frozenset[str] = frozenset()
        if not FORGOTTEN.exists(settings):
            return
        rows = DirectTable(FORGOTTEN, settings).rows(["person", "secret"])
        self._people = frozenset(row["person"] for row in rows)
        if self._people:
            self._secret = known_secret(settings, {row["secret"] for row in rows})

    def conceal(self, rows: DataFrame, topic: Topic, topics: TopicFile) -> DataFrame:
        """Decoded rows of a topic (`Decoder.rows`), those of forgotten people under pseudonyms."""
        if self._secret is not None:
            for name, subject in people_of(topic, topics):
                rows = self._conceal(rows, topic, name, subject)
        return rows

    def _conceal(self, rows: DataFrame, topic: Topic, name: str, subject: Topic) -> DataFrame:
        """By one field; what came of such a record, or with a key that tells, is no more told."""
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
        """The pseudonym of each key whose person was forgotten, as text, else NULL."""
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
    """The secret of the settings, if it is that by which people are known.

    Raises:
        SettingsError: none is set, or it is another one.
    """
    if settings.pseudonyms is None:
        message = (
            "Forgotten people are known by keyed hashes, and there is no secret to know them by, "
            "so they would come back. Set LAKEHOUSE_PSEUDONYM_SECRET, or …_FILE."
        )
        raise SettingsError(message)
    if {*fingerprints} - {settings.pseudonyms.fingerprint()}:
        message = (
            "silver.forgotten was written with another secret of pseudonyms, so people who were "
            "forgotten would come back. Set the former one."
        )
        raise SettingsError(message)
    return settings.pseudonyms


def mentions(names: Collection[str], keys: Collection[str]) -> str:
    """A regular expression for texts in which one of the names stands before one of the keys.

    As in JSON, also within a string of JSON, and in conditions of SQL.
    """
    listed = "|".join(map(re.escape, sorted(names)))
    values = "|".join(map(re.escape, sorted(keys)))
    return rf"\b({listed})(#\d+L?)?[^A-Za-z0-9-]{{1,12}}({values})(?![A-Za-z0-9])"
