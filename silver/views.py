"""Creates silver's own views, and the views without a key that the topic file declares.

Such a view is a view in the catalog. It is as fresh as the tables that it reads, so late rows are
included. Views with a key are materialized (`materialized.py`).
"""

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lake.quoting import literal
from lake.streams.failures import explain
from lake.topics.topic import View
from lake.topics.topic_file import TopicFile
from pulsar_spark.errors import SettingsError
from silver.contract.tables import lookup_columns


def create_views(spark: SparkSession, topics: TopicFile) -> None:
    """Create the views in the catalog, in which silver's tables must be registered.

    Raises:
        SettingsError: the query of a declared view is not valid.
    """
    session = spark.newSession()  # because USE changes the current database of the session
    session.sql("USE silver")
    for topic in topics.changelogs():
        own = [c for c in lookup_columns(topic) if c.name != "is_deleted"]
        columns = ", ".join(f"`{c.name}`" for c in own)
        session.sql(
            f"CREATE OR REPLACE VIEW `{topic.name}` AS SELECT {columns}, position "  # noqa: S608 - topic.py checks names
            f"FROM `{topic.name}_state` WHERE NOT is_deleted"
        )
    for name, (topic, lookup) in topics.missing_views().items():
        session.sql(
            f"CREATE OR REPLACE VIEW `{name}` AS SELECT * "  # noqa: S608 - topic.py checks names
            f"FROM `enriched_{topic.name}` WHERE `{lookup}` IS NULL"
        )
    for name, late in topics.late_views().items():
        if name not in topics.late_tables:
            _forget_table(session, name)
            session.sql(f"CREATE OR REPLACE VIEW `{name}` AS {late.sql()}")
    for name, join in topics.joined.items():
        session.sql(
            f"CREATE OR REPLACE VIEW `{join.join.missing}` AS SELECT * "  # noqa: S608 - topic.py checks names
            f"FROM `{name}` WHERE {join.is_missing}"
        )
    for view in topics.views.values():
        if not view.key:
            comment = literal(view.description)
            _forget_table(session, view.name)
            try:
                session.sql(f"CREATE OR REPLACE VIEW `{view.name}` COMMENT {comment} AS {view.sql}")
            except PySparkException as error:
                raise refusal(view, f"is refused by Spark: {explain(error)}") from error


def _forget_table(session: SparkSession, name: str) -> None:
    """Take a table out of the catalog, not out of the lake: a view that was a table before."""
    if session.catalog.tableExists(name) and session.catalog.getTable(name).tableType != "VIEW":
        session.sql(f"DROP TABLE `{name}`")


def refusal(view: View, what: str) -> SettingsError:
    """The error of a declared view whose query cannot be used. `what` ends the sentence."""
    return SettingsError(f"The query of the view '{view.name}' in the topic file {what}")
