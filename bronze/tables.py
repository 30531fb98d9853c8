"""Table contracts: what a Delta table of the lake looks like, and those of bronze.

`TableSpec` is the contract of one table; each layer declares its own. Tables are plain Delta
(no deletion vectors, no column mapping), so that every Delta reader can open them.
"""

import json
from dataclasses import dataclass, field

import deltalake
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from bronze.envelope import ENVELOPE, Column
from bronze.settings import LakeSettings

# A commit a second makes a log of 86,400 files a day. A checkpoint of the log costs as much as a
# batch, by default at each tenth commit.
BOUNDED_LOG = {
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 7 days",
}


@dataclass(frozen=True)
class TableSpec:
    """The Delta table `<layer>.<name>`: columns in order and table properties."""

    layer: str
    name: str
    comment: str
    columns: tuple[Column, ...]
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        """`<layer>.<name>`, as SQL knows it."""
        return f"{self.layer}.{self.name}"

    def path(self, settings: LakeSettings) -> str:
        """Where the table lies."""
        return settings.table_path(self.layer, self.name)

    def exists(self, settings: LakeSettings) -> bool:
        """Whether there is a Delta table at the path."""
        return deltalake.DeltaTable.is_deltatable(self.path(settings))

    def create(
        self, spark: SparkSession, settings: LakeSettings, properties: dict[str, str] | None = None
    ) -> deltalake.DeltaTable:
        """Create the table if it is absent, with further properties, and return it.

        delta-rs writes the first commit, as a cold Spark takes seconds for it.
        """
        return deltalake.DeltaTable.create(
            self.path(settings),
            schema=deltalake.Schema.from_json(self._schema(spark)),
            mode="ignore",
            description=self.comment,
            configuration={**BOUNDED_LOG, **self.properties, **(properties or {})},
            raise_if_key_not_exists=False,  # the property that names the writer is ours
        )

    def _schema(self, spark: SparkSession) -> str:
        """The columns in Delta's own JSON, which is Spark's."""
        ddl = ", ".join(f"`{column.name}` {column.type}" for column in self.columns)
        schema = json.loads(spark.createDataFrame([], ddl).schema.json())
        for column, field_json in zip(self.columns, schema["fields"], strict=True):
            field_json["nullable"] = column.nullable
            field_json["metadata"] = {"comment": column.comment}
        return json.dumps(schema)

    def open(self, spark: SparkSession, settings: LakeSettings) -> DeltaTable:
        """The existing table."""
        return DeltaTable.forPath(spark, self.path(settings))


def bronze_table(topic: str) -> TableSpec:
    """The table of a topic. Grain: one message. Append-only."""
    return TableSpec(
        "bronze",
        topic,
        f"Every message of the topic {topic}, exactly once, as it came",
        ENVELOPE,
        # Statistics of each column would cost the writer a third of its time; none is asked for.
        {"delta.appendOnly": "true", "delta.dataSkippingStatsColumns": "publish_time"},
    )
