"""Keeps the schema versions of topics whose payloads need the broker's schema registry.

A version is stored in `silver.schemas` as soon as a message uses it, so that bronze can be decoded
again after the broker has deleted the topic. A version never changes, so a replay decodes messages
in the same way.
"""

from collections.abc import Collection, Mapping

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import DataFrame

from lake.tables.lake import Lake
from lake.topics.topic import Topic
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.errors import LakehouseError
from silver.contract.tables import SCHEMAS
from silver.records.by_schema import Schema, Schemas, Version
from silver.records.payload import registered_topic


def versions_of(topic: Topic, messages: DataFrame) -> frozenset[Version]:
    """The schema versions used by messages of a topic; none if it does not use the registry."""
    if topic.format != "registry":
        return frozenset()
    known = messages.where("schema_version IS NOT NULL")
    found = known.select(registered_topic(topic), "schema_version").distinct()
    return frozenset((row[0], row[1]) for row in found.collect())


class SchemaRegistry:
    """The schemas that a silver query has read from `silver.schemas` or from the broker."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._known: dict[str, dict[int, Schema]] | None = None
        self._compared: set[str] = set()

    def schemas(self, topic: Topic, versions: Collection[Version]) -> Schemas:
        """The known schemas of a declared topic by version, including these versions.

        Versions that the registry lacks are absent; their messages go to quarantine.

        Raises:
            BrokerError: a version is not stored yet, and the broker does not answer.
            LakehouseError: the broker has a different schema under a stored version.
        """
        if self._known is None:
            self._known = self._read()
        found: dict[Version, Schema] = {}
        for source in {each for each, _ in versions} if topic.has_several else {None}:
            needed = {version for each, version in versions if each == source}
            # One topic of a declaration has its name, and can therefore move on the broker.
            name = source or topic.name
            address = source or self._lake.address(topic.name).names[0]
            known = self._known.setdefault(name, {})
            self._complete(name, address, known, needed)
            found |= {(source, version): schema for version, schema in known.items()}
        return found

    def _complete(
        self, name: str, address: str, known: dict[int, Schema], versions: Collection[int]
    ) -> None:
        """Add the schemas of a topic that the broker has to the known ones, and store them."""
        missing = {*versions} - known.keys()
        if missing or name not in self._compared:
            found = self._ask(address, needed=bool(missing))
            _compare(name, known, found)
            new = {version: found[version] for version in found.keys() - known.keys()}
            self._write(name, new)
            known.update(new)
            self._compared.add(name)

    def _read(self) -> dict[str, dict[int, Schema]]:
        found: dict[str, dict[int, Schema]] = {}
        for row in self._lake.table(SCHEMAS).log().to_pyarrow_table().to_pylist():
            schema = Schema(row["type"], row["definition"])
            found.setdefault(row["topic"], {})[row["version"]] = schema
        return found

    def _ask(self, address: str, *, needed: bool) -> dict[int, Schema]:
        with PulsarAdmin(self._lake.settings.connection) as admin:
            if not needed and not admin.is_healthy():
                return {}
            found = admin.schemas(address)
        return {each["version"]: Schema(each["type"], each.get("data", "")) for each in found}

    def _write(self, topic: str, new: Mapping[int, Schema]) -> None:
        if not new:
            return
        rows = [
            {"topic": topic, "version": version, **schema._asdict()}
            for version, schema in sorted(new.items())
        ]
        table = self._lake.table(SCHEMAS).log()
        write_deltalake(table, pa.Table.from_pylist(rows), mode="append")


def _compare(topic: str, known: Mapping[int, Schema], found: Mapping[int, Schema]) -> None:
    changed = [n for n in known.keys() & found.keys() if known[n] != found[n]]
    if changed:
        message = (
            f"Version {min(changed)} of the schema of {topic} differs between the broker and "
            "silver.schemas: the topic or its schema was deleted and created again, so old and new "
            "messages cannot be distinguished. Give the new topic another name, or run "
            "`lakehouse reset`."
        )
        raise LakehouseError(message)
