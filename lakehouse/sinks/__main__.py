"""`python -m lakehouse.sinks`: runs the sinks as a spark-submit job."""

from pyspark.sql import SparkSession

from lake.streams.job import streaming_job
from lake.streams.supervisor import Stream
from lake.tables.lake import Lake
from lakehouse.sinks.metrics import sink_collector
from lakehouse.sinks.running import check_sinks, chosen, run_sinks


def _start(spark: SparkSession, lake: Lake, *, available_now: bool) -> list[Stream]:
    sinks = chosen(lake.topics)
    check_sinks(lake, sinks)
    return run_sinks(spark, lake, sinks, available_now=available_now)


if __name__ == "__main__":
    streaming_job("sinks", _start, sink_collector)
