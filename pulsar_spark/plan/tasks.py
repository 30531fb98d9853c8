"""The input partition of the Pulsar source, which Spark sends to a task."""

from collections.abc import Sequence

from pyspark.sql.datasource import InputPartition

from pulsar_spark.plan.ledgers import PartitionRange


class ReadTask(InputPartition):
    """The ranges that one task reads, one after the other. Created by the planner."""

    def __init__(self, ranges: Sequence[PartitionRange]) -> None:
        self.ranges = ranges
