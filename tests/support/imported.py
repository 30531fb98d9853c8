"""A table of a real PostgreSQL that is imported into a topic of the suite's broker."""

import json
import os
from pathlib import Path
from typing import Any

import psycopg
import pulsar
from topic import declared

from lake.settings.settings import LakeSettings
from lake.streams.job import await_streams
from lake.tables.lake import Lake
from lakehouse.imports.importer import Importer, run_imports
from lakehouse.imports.published import FILE
from lakehouse.messages.publish import create_topics
from pulsar_spark.broker.admin import PulsarAdmin

VARIABLE = "IMPORT_OF_THE_TESTS"
DISTRICTS = """
[topics.districts]
kind = "changelog"
key = ["id"]
[topics.districts.fields]
id = "long"
name = { type = "string", required = false }
"""
IMPORT = """
[import.districts]
table = "public.districts"
url_env = "{variable}"
every = "1 second"
"""


class Imported:
    """The table `public.districts` of a database, and the topic `districts`."""

    def __init__(
        self, settings: LakeSettings, folder: Path, address: str, topics: str = DISTRICTS
    ) -> None:
        os.environ[VARIABLE] = self.address = address
        text = topics + IMPORT.format(variable=VARIABLE)
        self.lake = Lake(settings, declared(folder, text))
        self.settings, self.folder = settings, folder
        [self.declared] = self.lake.topics.imports.values()

    def create(self, columns: str = "id bigint PRIMARY KEY, name text") -> None:
        self.query(f"CREATE TABLE districts ({columns})")

    def query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.address, autocommit=True) as connection:
            cursor = connection.execute(sql, values or None)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def run(self) -> None:
        """Compare once, in the process of the test."""
        imports = [*self.lake.topics.imports.values()]
        await_streams(run_imports(self.lake, imports, available_now=True))

    def importer(self) -> Importer:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        return Importer(self.lake, self.declared, self.file)

    @property
    def file(self) -> Path:
        return Path(self.settings.checkpoint_path("import.districts")) / FILE

    @property
    def topic(self) -> str:
        return self.settings.full_topic("districts")

    def send(self, key: str, payload: bytes) -> None:
        """Publish a message by another producer."""
        create_topics(self.lake)
        client = self.settings.connection.client()
        client.create_producer(self.topic).send(payload, partition_key=key)
        client.close()

    def messages(self) -> list[tuple[str, Any]]:
        """Return all messages in the order of the topic: the key, and the row or None."""
        client = self.settings.connection.client()
        found = []
        with PulsarAdmin(self.settings.connection) as admin:
            for partition in admin.partitions(self.topic):
                end, place = admin.state(partition).last, (-1, -1)
                reader = client.create_reader(partition, pulsar.MessageId.earliest)
                while end.entry >= 0 and place < (end.ledger, end.entry):
                    message = reader.read_next(10_000)
                    place = message.message_id().ledger_id(), message.message_id().entry_id()
                    payload = message.data()
                    row = json.loads(payload) if payload else None
                    found.append((message.partition_key(), row))
        client.close()
        return found

    def held(self) -> dict[str, Any]:
        """Return what a consumer has that applies all messages."""
        rows = dict(self.messages())
        return {key: row for key, row in rows.items() if row is not None}

    def rows(self) -> dict[str, Any]:
        """Return the rows of the table as the driver reads them, in the form of `held`."""
        found = self.query("SELECT id, name FROM districts")
        return {str(key): {"id": key, "name": name} for key, name in found}
