"""Erases a person from the tables of silver.

The result is what silver would compute from the rewritten messages: a tombstone under a pseudonym,
and events that refer to the pseudonym. Records of the person that could not be decoded lose their
content and are discarded.
"""

import datetime as dt
from collections.abc import Iterable

from delta.tables import DeltaTable
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from bronze.upkeep import compact
from lake.settings.pseudonyms import PseudonymSecret
from lake.tables.lake import Lake
from lake.tables.spec import TableSpec
from lake.topics.topic import Topic, hash_column, snake_case, sql_type
from lakehouse.erasure.person import Found, Person, referring
from pulsar_spark.schema import ENVELOPE, POSITION_FIELDS
from silver.audit.totals import COUNTS
from silver.contract.tables import (
    QUARANTINE,
    RECONCILIATION,
    changes_table,
    enriched_table,
    history_table,
    lookup_columns,
    own_columns,
    state_table,
)
from silver.quarantine import unbooked
from silver.records.pseudonymize import FORGOTTEN, known_secret, person_hash
from silver.state.merge import Values
from silver.state.versions import remake


def secret_of_forgotten(lake: Lake) -> PseudonymSecret:
    """The secret from which pseudonyms are computed.

    Raises:
        SettingsError: other people were forgotten with another secret.
    """
    if not lake.table(FORGOTTEN).exists():
        return known_secret(lake.settings, set())
    rows = lake.table(FORGOTTEN).arrow.rows(["secret"])
    return known_secret(lake.settings, {row["secret"] for row in rows})


def remember(lake: Lake, person: Person, found: Iterable[Found], reason: str, run: str) -> None:
    """Record a person in `silver.forgotten`, so that silver conceals all later messages.

    Args:
        lake: the lake.
        person: the person.
        found: the person's messages.
        reason: why the person is forgotten.
        run: id of the run. A second call with the same id records nothing.

    Raises:
        SettingsError: other people were forgotten with another secret.
    """
    secret = secret_of_forgotten(lake)
    lake.table(FORGOTTEN).create()
    whole = {
        "topic": person.topic.name,
        "forgotten_at": dt.datetime.now(dt.timezone.utc),
        "reason": reason,
        "messages": sum(len(each.messages) + len(each.refused) for each in found),
        "secret": secret.fingerprint(),
    }
    rows = [
        {**whole, "person": person_hash(secret.read(), person.topic.name, key)}
        for key in person.pseudonyms
    ]
    table = lake.table(FORGOTTEN).arrow
    table.append_once(rows, f"lakehouse.forget.{run}", 0)
    compact(table, FORGOTTEN.full_name)


def is_remembered(lake: Lake, person: Person) -> bool:
    """Whether all keys of a person are recorded in `silver.forgotten`."""
    if not lake.table(FORGOTTEN).exists():
        return False
    topic, secret = person.topic.name, secret_of_forgotten(lake).read()
    known = lake.table(FORGOTTEN).arrow.rows(["topic", "person"])
    hashes = {row["person"] for row in known if row["topic"] == topic}
    return {person_hash(secret, topic, key) for key in person.pseudonyms} <= hashes


class Removal:
    """Erases a person from the tables of silver. Repeating it changes nothing more."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        person: Person,
        number: int,
    ) -> None:
        """`number` is a negative batch id, which the changed rows get as their silver batch."""
        self._spark = spark
        self._lake = lake
        self._person = person
        self._batch = {"silver_batch": F.lit(number).cast("bigint")}
        self._number = number

    def run(self, found: Iterable[Found]) -> list[TableSpec]:
        """Change the tables, and record it in the audit. Returns the tables that may have changed.

        Args:
            found: the person's messages by topic, of which the refused ones are discarded.
        """
        changed = []
        topic = self._person.topic
        keyed = [state_table(topic), *([history_table(topic)] if topic.history else [])]
        if topic.keeps_changes:
            keyed.append(changes_table(topic))
        for table in keyed:
            self._bury(table)
            changed.append(table)
        if topic.keeps_changes:
            self._remake_versions()
        for events in referring(topic, self._lake.topics):
            self._detach(events)
            changed.append(enriched_table(events, self._lake.topics))
        found = list(found)
        for each in found:
            self._empty(each)
        self._write_audit(each.topic.name for each in found)
        return [*changed, QUARANTINE]

    def _bury(self, table: TableSpec) -> None:
        """Turn the person's rows into tombstones under the pseudonym."""
        topic = self._person.topic
        key, delta = topic.key_columns[0], self._lake.table(table).spark(self._spark)
        kinds = {column.name: column.type for column in table.columns}
        for text, other in self._person.pseudonyms.items():
            named = F.lit(other).cast(kinds[key])
            empty = {
                c.name: F.lit(None).cast(c.type) for c in own_columns(topic) if c.name in kinds
            }
            row: Values = {**empty, key: named, "is_deleted": F.lit(True), **self._batch}
            if "resolved_id" in kinds:
                row["resolved_id"] = named
            delta.update(F.col(key) == F.lit(self._person.typed(text)), row)
            if topic.merged_into:
                parent = snake_case(topic.merged_into)
                theirs = F.col(parent) == F.lit(self._person.typed(text))
                delta.update(theirs, {parent: named, **self._batch})

    def _remake_versions(self) -> None:
        """Make the versions of the pseudonyms again, because tombstones may become one version."""
        topic = self._person.topic
        changes = self._lake.table(changes_table(topic)).rows(self._spark)
        kind = sql_type(topic.fields[topic.key[0]])
        named = [(other,) for other in self._person.pseudonyms.values()]
        keys = self._spark.createDataFrame(named, "key string").select(
            F.col("key").cast(kind).alias(topic.key_columns[0])
        )
        history = self._lake.table(history_table(topic))
        remake(history, changes, topic, self._number, keys, small=False)

    def _detach(self, events: Topic) -> None:
        """Make the events that refer to the person refer to the pseudonym."""
        table = enriched_table(events, self._lake.topics)
        delta = self._lake.table(table).spark(self._spark)
        kinds = {column.name: column.type for column in table.columns}
        own = [n for n, spec in events.fields.items() if spec.personal]
        hidden = [snake_case(n) for n in own] + [hash_column(n) for n in events.hashed]
        for name, lookup in events.lookups.items():
            if lookup.topic != self._person.topic.name:
                continue
            on = snake_case(lookup.on[0])
            for text, other in self._person.pseudonyms.items():
                named = F.lit(other).cast(kinds[on])
                tombstone = self._tombstone(named)
                row: Values = {n: F.lit(None).cast(kinds[n]) for n in hidden if n != on}
                row |= {on: named, **self._batch}
                row[name] = F.when(F.col(name).isNotNull(), tombstone.cast(kinds[name]))
                delta.update(F.col(on) == F.lit(self._person.typed(text)), row)
            self._rename(delta, name, kinds[name])

    def _rename(self, delta: DeltaTable, lookup: str, kind: str) -> None:
        """Replace the person in the looked-up rows of other accounts merged into the person's."""
        topic = self._person.topic
        if not topic.merged_into:
            return
        types = {column.name: column.type for column in lookup_columns(topic)}
        before = after = F.col(lookup)
        names = (snake_case(topic.merged_into), "resolved_id")
        for name in names:
            found = before[name]
            for text, other in self._person.pseudonyms.items():
                is_theirs = before[name] == F.lit(self._person.typed(text))
                found = F.when(is_theirs, F.lit(other).cast(types[name])).otherwise(found)
            after = after.withField(name, found)
        is_named = [before[name].isin(self._person.keys) for name in names]
        delta.update(is_named[0] | is_named[1], {lookup: after.cast(kind), **self._batch})

    def _tombstone(self, named: Column) -> Column:
        """The row that a lookup of the pseudonym returns."""
        key = self._person.topic.key_columns[0]
        known = {key: named, "resolved_id": named, "is_deleted": F.lit(True)}
        columns = lookup_columns(self._person.topic)
        return F.struct(
            *(known.get(c.name, F.lit(None)).cast(c.type).alias(c.name) for c in columns)
        )

    def _empty(self, found: Found) -> None:
        """Clear and discard the refused records."""
        if not found.refused:
            return
        places = [(found.topic.name, *each.place, each.key) for each in found.refused]
        types = {column.name: column.type for column in ENVELOPE}
        ddl = ", ".join(f"{name} {types[name]}" for name in ("topic", *POSITION_FIELDS, "key"))
        rows = self._spark.createDataFrame(places, ddl)
        same = " AND ".join(f"t.position.{name} = s.{name}" for name in POSITION_FIELDS)
        same = f"t.topic = s.topic AND {same}"
        quarantine = self._lake.table(QUARANTINE).spark(self._spark)
        (
            quarantine.alias("t")
            .merge(F.broadcast(rows).alias("s"), same)
            .whenMatchedUpdate(
                set={"key": "s.key", "payload": "CAST(NULL AS binary)", "status": "'discarded'"}
            )
            .execute()
        )

    def _write_audit(self, topics: Iterable[str]) -> None:
        """Append an audit row per topic, once. It also marks the negative batch id as used.

        The counts are how the quarantine differs from the audit, so a run that is repeated after it
        has discarded the records gives the same counts.
        """
        audit = self._lake.table(RECONCILIATION).arrow
        if audit.count(f"silver_batch = {self._number}"):
            return
        changes = unbooked(self._lake)
        zeros = dict.fromkeys(COUNTS, 0)
        audit.append(
            [
                {"silver_batch": self._number, "topic": name, **zeros, **changes.get(name, {})}
                for name in topics
            ]
        )
