"""Tables that gold keeps about itself, in addition to the marts of `dbt_project`."""

from lake.tables.spec import TableSpec
from pulsar_spark.schema import Column

BUILT = "gold_build"  # the schema in which dbt builds and tests; `gold` is published from it
CUT = f"cut_{BUILT}"  # the schema of the views of silver that these builds read
OWN = f"{BUILT}_"  # prefix of the schemas in which others run dbt

CUTS = TableSpec(
    "gold",
    "cuts",
    "Consistent versions of all tables. Grain: one publication of gold; the latest, and those of "
    "the last history_days",
    (
        Column("published_at", "timestamp", "Time of publication", nullable=False),
        Column("silver_batch", "bigint", "Batch of silver that it shows", nullable=False),
        Column("versions", "map<string,bigint>", "Delta version by mart", nullable=False),
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
    "gold",
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
        Column("message", "string", "dbt's message"),
    ),
)
