"""Gold's schemas and tables: those that gold keeps about itself, and those that are published."""

import datetime as dt
from dataclasses import dataclass

from lake.tables.lake import Lake
from lake.tables.spec import TableSpec
from lake.tables.table import Table
from pulsar_spark.schema import Column

GOLD = "gold"  # the schema of marts without a schema of their own
BUILT = "gold_build"  # the schema in which dbt builds and tests; `gold` is published from it
CUT_OF = "cut_"  # prefix of the schemas of the views through which dbt reads silver
CUT = f"{CUT_OF}{BUILT}"  # the schema of the views of silver that these builds read
OWN = f"{BUILT}_"  # prefix of the schemas in which others run dbt

CUTS = TableSpec(
    GOLD,
    "cuts",
    "Consistent versions of all tables. Grain: one publication of gold; the latest, and those of "
    "the last history_days",
    (
        Column("published_at", "timestamp", "Time of publication", nullable=False),
        Column("silver_batch", "bigint", "Batch of silver that it shows", nullable=False),
        Column(
            "versions",
            "map<string,bigint>",
            "Delta version by mart; `schema.table` outside of gold",
            nullable=False,
        ),
        Column(
            "built_versions",
            "map<string,bigint>",
            "Delta version by table in gold_build",
            nullable=False,
        ),
        Column(
            "silver_versions",
            "map<string,bigint>",
            "Delta version by table of silver",
            nullable=False,
        ),
        Column("project", "string", "Checksum of the models", nullable=False),
    ),
)

RUNS = TableSpec(
    GOLD,
    "runs",
    "Result of each model and test. Grain: one node of one dbt run, of the last history_days",
    (
        Column("started_at", "timestamp", "When the run began", nullable=False),
        Column(
            "outcome", "string", "Outcome of the run: published, tested or failed", nullable=False
        ),
        Column("kind", "string", "model, test, unit_test or operation", nullable=False),
        Column("name", "string", "Name of the node", nullable=False),
        Column("status", "string", "success, pass, warn, error, fail or skipped", nullable=False),
        Column("seconds", "double", "Duration", nullable=False),
        Column("message", "string", "dbt's message; of a failure, without values of rows"),
    ),
)


@dataclass(frozen=True)
class GoldSnapshot:
    """A snapshot of gold: a row of `gold.cuts`."""

    published_at: dt.datetime
    silver_batch: int
    versions: dict[str, int]
    built_versions: dict[str, int]
    silver_versions: dict[str, int]
    project: str

    @property
    def name(self) -> str:
        """Identifies the publication in files that belong to it: its time, in ISO 8601."""
        return self.published_at.isoformat()


def mart_name(schema: str | None, table: str) -> str:
    """The name of a mart in `gold.cuts`: without a schema if it is in `gold`."""
    return table if schema in (None, GOLD) else f"{schema}.{table}"


def table_name(mart: str) -> tuple[str, str]:
    """The schema and the table that readers see, of a mart named as in `gold.cuts`."""
    schema, _, table = mart.rpartition(".")
    return schema or GOLD, table


def published_tables(lake: Lake) -> list[Table]:
    """All tables that readers of gold see: those of the schema `gold`, and marts in other schemas.

    Called by commands that keep, show or erase what was published.
    """
    before = last_published(lake)
    others = {table_name(name) for name in before.versions} if before else set()
    elsewhere = [lake.named(*each) for each in sorted(others) if each[0] != GOLD]
    return [*lake.tables(GOLD).values(), *elsewhere]


def last_published(lake: Lake) -> GoldSnapshot | None:
    """The newest row of `gold.cuts`; None if there is none."""
    if not lake.table(CUTS).exists():
        return None
    names = [column.name for column in CUTS.columns]
    row = lake.table(CUTS).arrow.latest("published_at", names)
    if row is None:
        return None
    maps = {name: dict(row[name]) for name in row if name.endswith("versions")}
    return GoldSnapshot(**{**row, **maps})
