"""Controls which personal data gold may see.

Silver keeps the values, and adds the hashes of fields that are hashed. A table property says what
gold may see of each table. The macro that opens a snapshot for dbt reads this property
(`dbt_project/macros/protected.sql`), so a plain `dbt build` is protected, too.
"""

from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql.pandas.functions import arrow_udf

from lake.settings.pseudonyms import PseudonymSecret, keyed_hash
from lake.settings.settings import LakeSettings
from lake.tables.arrow import DirectTable
from lake.tables.table import TableSpec
from lake.topics.topic_file import TopicFile
from pulsar_spark.errors import SettingsError
from silver.contract.tables import PERSONAL, enriched_table, state_table

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


def require_secret(settings: LakeSettings, topics: TopicFile) -> None:
    """Check that a secret is set if the topic file declares hashed fields.

    Raises:
        SettingsError: the secret is not set, cannot be read, or is too short.
    """
    hashed = [f"{topic.name}.{name}" for topic in topics.topics.values() for name in topic.hashed]
    if hashed and settings.pseudonyms is None:
        raise _no_secret(hashed)
    if hashed and settings.pseudonyms:
        settings.pseudonyms.read()


def protected_tables(topics: TopicFile) -> list[TableSpec]:
    """The tables of silver that gold may read."""
    events = [enriched_table(topic, topics) for topic in topics.events()]
    return [*(state_table(topic) for topic in topics.changelogs()), *events]


def protect(spark: SparkSession, settings: LakeSettings, topics: TopicFile) -> None:
    """Write the topic file's current declarations to the tables' properties.

    Called when silver starts, before it reads a message.

    Raises:
        SettingsError: the hashes in a table were computed with another secret.
    """
    for table in protected_tables(topics):
        known = DirectTable(table, settings)
        _see_it_is_the_same_secret(settings, table, known)
        protect_table(spark, settings, table, known, secret_of=settings)


def protect_table(
    spark: SparkSession,
    settings: LakeSettings,
    table: TableSpec,
    known: DirectTable,
    *,
    secret_of: LakeSettings,
) -> None:
    """Write to a table's properties what gold may see of it, and its secret's fingerprint.

    Args:
        spark: the session.
        settings: the lake that holds the table.
        table: the table.
        known: the table as it is stored, to skip properties that are set already.
        secret_of: the settings with the secret of the hashes.
    """
    wanted: dict[str, Any] = {PERSONAL: table.properties.get(PERSONAL), FINGERPRINT: None}
    if _has_hashes(table) and secret_of.pseudonyms:
        wanted[FINGERPRINT] = secret_of.pseudonyms.fingerprint()
    for name, value in wanted.items():
        if known.configuration(name) != value:
            table.set_property(spark, settings, name, value)


def protection(
    settings: LakeSettings, topics: TopicFile
) -> dict[str, tuple[str | None, str | None]]:
    """Read the properties of the tables that hold personal data. Called before a build of gold.

    Returns:
        By full table name: what gold may see of the table, and the secret's fingerprint.

    Raises:
        SettingsError: a table's property differs from the current topic file.
    """
    found = {}
    for table in protected_tables(topics):
        known = DirectTable(table, settings)
        if known.configuration(PERSONAL) != table.properties.get(PERSONAL):
            message = (
                f"The personal fields that the topic file declares for {table.full_name} have "
                "changed since silver last started, so gold could see personal data. Start silver "
                "with the new topic file first (`lakehouse silver --available-now`)."
            )
            raise SettingsError(message)
        if known.configuration(PERSONAL):
            found[table.full_name] = known.configuration(PERSONAL), known.configuration(FINGERPRINT)
    return found


def _has_hashes(table: TableSpec) -> bool:
    return '"hash"' in table.properties.get(PERSONAL, "")


def _see_it_is_the_same_secret(
    settings: LakeSettings, table: TableSpec, known: DirectTable
) -> None:
    made_with = known.configuration(FINGERPRINT)
    if not _has_hashes(table) or not settings.pseudonyms or made_with is None:
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
