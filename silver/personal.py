"""Personal data between silver and gold: silver keeps the values, and beside those that are hashed
their hashes; each table says in a property what gold may see of it. Whoever opens a cut for dbt
reads the property (`dbt_project/macros/protected.sql`), so a bare `dbt build` sees no more.
"""

from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql.pandas.functions import arrow_udf

from bronze.direct import DirectTable
from bronze.errors import SettingsError
from bronze.pseudonyms import PseudonymSecret, keyed_hash
from bronze.settings import LakeSettings
from bronze.tables import TableSpec
from bronze.topics import TopicFile
from silver.tables import PERSONAL, enriched_table, state_table

FINGERPRINT = "lakehouse.pseudonym_secret"  # property: fingerprint of the key of the hashes


def hashes(values: Column, secret: PseudonymSecret | None) -> Column:
    """The keyed hash of each string, NULL of NULL; the key is read in the workers.

    Raises:
        SettingsError: no key is set.
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
    """See that there is a key where fields are to be hashed.

    Raises:
        SettingsError: there is none, or it is too short.
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
    """Let the tables say what the topic file declares of today.

    Raises:
        SettingsError: hashes in a table were made with another secret.
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
    """Let a table say what gold may see of it, and by which secret its hashes are made."""
    wanted: dict[str, Any] = {PERSONAL: table.properties.get(PERSONAL), FINGERPRINT: None}
    if _has_hashes(table) and secret_of.pseudonyms:
        wanted[FINGERPRINT] = secret_of.pseudonyms.fingerprint()
    for name, value in wanted.items():
        if known.configuration(name) != value:
            table.set_property(spark, settings, name, value)


def protection(
    settings: LakeSettings, topics: TopicFile
) -> dict[str, tuple[str | None, str | None]]:
    """By table what it says of personal data and secret; those that say nothing are left out.

    Raises:
        SettingsError: a table says something else than the topic file of today.
    """
    found = {}
    for table in protected_tables(topics):
        known = DirectTable(table, settings)
        if known.configuration(PERSONAL) != table.properties.get(PERSONAL):
            message = (
                f"The topic file of today declares other personal fields for {table.full_name} "
                "than silver has run with, so gold would see what it must not. Start silver with "
                "it first (`lakehouse silver --available-now`)."
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
            f"The hashes in {table.full_name} were made with another secret of pseudonyms, so "
            "equal values would not be equal any more. Set the former one, or make all hashes anew "
            "with `lakehouse replay --table silver`."
        )
        raise SettingsError(message)


def _no_secret(fields: Sequence[str]) -> SettingsError:
    message = (
        f"The topic file declares {', '.join(fields)} as personal = 'hash', and there is no secret "
        "to hash with. Set "
        "LAKEHOUSE_PSEUDONYM_SECRET, or LAKEHOUSE_PSEUDONYM_SECRET_FILE; or declare 'mask'."
    )
    return SettingsError(message)
