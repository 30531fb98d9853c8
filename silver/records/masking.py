"""Controls which personal data gold may see.

Silver keeps the values, and adds the hashes of fields that are hashed. A table property says what
gold may see of each table. The macro that opens a snapshot for dbt reads this property
(`gold/package/macros/protected.sql`), so a plain `dbt build` is protected, too.
"""

from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql.pandas.functions import arrow_udf

from lake.settings.pseudonyms import PseudonymSecret, keyed_hash
from lake.settings.settings import LakeSettings
from lake.tables.lake import Lake
from lake.tables.spec import TableSpec
from lake.tables.table import Table
from lake.topics.topic_file import TopicFile
from pulsar_spark.errors import SettingsError
from silver.contract.evolved import declared_only, evolved
from silver.contract.tables import (
    PERSONAL,
    changes_table,
    enriched_table,
    history_table,
    state_table,
    view_table,
)

FINGERPRINT = "lakehouse.pseudonym_secret"  # property: fingerprint of the key of the hashes


def hashes(values: Column, secret: PseudonymSecret | None) -> Column:
    """The keyed hash of each string, NULL for NULL. The workers read the key.

    Raises:
        SettingsError: no secret is set.
    """
    if secret is None:
        raise _no_secret(["a field"])

    def compute(texts: pa.Array) -> pa.Array:
        key, found = secret.read(), []
        for text in texts.to_pylist():
            found.append(None if text is None else keyed_hash(key, text.encode()))
        return pa.array(found, pa.string())

    return cast(Column, arrow_udf(compute, "string")(values))  # type: ignore[call-overload]


def require_secret(lake: Lake) -> None:
    """Check that a secret is set if the topic file declares hashed fields.

    Raises:
        SettingsError: the secret is not set, cannot be read, or is too short.
    """
    hashed = [
        f"{topic.name}.{name}" for topic in lake.topics.topics.values() for name in topic.hashed
    ]
    if hashed and lake.settings.pseudonyms is None:
        raise _no_secret(hashed)
    if hashed and lake.settings.pseudonyms:
        lake.settings.pseudonyms.read()


def protected_tables(topics: TopicFile) -> list[TableSpec]:
    """The tables of silver that gold may read, and that hold fields of messages."""
    return [
        *(state_table(topic) for topic in topics.changelogs()),
        *(history_table(topic) for topic in topics.changelogs() if topic.history),
        *(changes_table(topic) for topic in topics.changelogs() if topic.keeps_changes),
        *(enriched_table(topic, topics) for topic in topics.events()),
        *(view_table(join.view, topics) for join in topics.joined.values()),
        *(view_table(late.view, topics) for late in topics.late_tables.values()),
    ]


def protect(spark: SparkSession, lake: Lake) -> None:
    """Write the topic file's current declarations to the tables' properties.

    Called when silver starts, before it reads a message.

    Raises:
        SettingsError: the hashes in a table were computed with another secret.
    """
    for spec in filter(lake.owns, protected_tables(lake.topics)):
        table = lake.table(spec)
        _see_it_is_the_same_secret(lake.settings, table)
        protect_table(spark, table, lake.settings.pseudonyms)


def protect_table(spark: SparkSession, table: Table, secret: PseudonymSecret | None) -> None:
    """Write to a table's properties what gold may see of it, and its secret's fingerprint.

    Properties that are set already are not written again.

    Args:
        spark: the session.
        table: the table.
        secret: the secret of the hashes, None if no secret is set.
    """
    known = table.arrow
    wanted: dict[str, Any] = {PERSONAL: table.spec.properties.get(PERSONAL), FINGERPRINT: None}
    if _has_hashes(table.spec) and secret:
        wanted[FINGERPRINT] = secret.fingerprint()
    for name, value in wanted.items():
        if known.configuration(name) != value:
            table.set_property(spark, name, value)


def protection(lake: Lake) -> dict[str, tuple[str | None, str | None]]:
    """Read the properties of the tables that hold personal data. Called before a build of gold.

    Returns:
        By full table name: what gold may see of the table, and the secret's fingerprint.

    Raises:
        SettingsError: a table's property differs from the current topic file.
    """
    lake = evolved(lake)
    found: dict[str, tuple[str | None, str | None]] = {}
    # A field that was taken over was hidden from the first, so builds before it are right.
    seen = {t.full_name: t for t in protected_tables(declared_only(lake.topics))}
    for table in protected_tables(lake.topics):
        if not lake.table(table).exists():
            continue  # of a topic that silver has not read yet
        known = lake.table(table).arrow
        if known.configuration(PERSONAL) != table.properties.get(PERSONAL):
            message = (
                f"The personal fields that the topic file declares for {table.full_name} have "
                "changed since silver last started, so gold could see personal data. Start silver "
                "with the new topic file first (`lakehouse silver --available-now`)."
            )
            raise SettingsError(message)
        if personal := seen[table.full_name].properties.get(PERSONAL):
            found[table.full_name] = personal, known.configuration(FINGERPRINT)
    return found


def _has_hashes(table: TableSpec) -> bool:
    return '"hash"' in table.properties.get(PERSONAL, "")


def _see_it_is_the_same_secret(settings: LakeSettings, table: Table) -> None:
    made_with = table.arrow.configuration(FINGERPRINT)
    if not _has_hashes(table.spec) or not settings.pseudonyms or made_with is None:
        return
    if made_with != settings.pseudonyms.fingerprint():
        message = (
            f"The hashes in {table.full_name} were made with another pseudonym secret, so equal "
            "values would no longer have equal hashes. Set the former secret, or compute all "
            "hashes again with `lakehouse replay --table silver`."
        )
        raise SettingsError(message)


def _no_secret(fields: Sequence[str]) -> SettingsError:
    message = (
        f"The topic file declares {', '.join(fields)} as personal = 'hash', but no secret for the "
        "hashes is set. Set LAKEHOUSE_PSEUDONYM_SECRET or LAKEHOUSE_PSEUDONYM_SECRET_FILE, or "
        "declare 'mask'."
    )
    return SettingsError(message)
