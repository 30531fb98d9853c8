"""`python -m silver`: runs silver's stream as a spark-submit job."""

from lake.streams.job import streaming_job
from silver.metrics import silver_collector
from silver.refine import refine

if __name__ == "__main__":
    streaming_job("silver", refine, silver_collector)
