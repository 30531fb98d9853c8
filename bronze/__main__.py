"""`python -m bronze`: runs bronze's streams as a spark-submit job."""

from bronze.ingest import ingest
from bronze.job import streaming_job
from bronze.measure import bronze_collector

if __name__ == "__main__":
    streaming_job("bronze", ingest, bronze_collector)
