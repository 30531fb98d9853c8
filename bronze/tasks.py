"""What Spark hands to a task that reads messages."""

from collections.abc import Sequence

from pyspark.sql.datasource import InputPartition

from bronze.backlog import PartitionRange


class ReadTask(InputPartition):
    """The ranges that one task reads, one after the other."""

    def __init__(self, ranges: Sequence[PartitionRange]) -> None:
        self.ranges = ranges
