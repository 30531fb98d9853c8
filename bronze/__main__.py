"""`python -m bronze`: runs bronze's streams as a spark-submit job."""

from bronze.ingest import ingest
from bronze.metrics import bronze_collector
from lake.streams.job import streaming_job

if __name__ == "__main__":
    streaming_job("bronze", ingest, bronze_collector)
