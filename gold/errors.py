"""What can go wrong while gold is built.

LakehouseError
`- GoldError    dbt could not run, or a model or test failed
"""

from pulsar_spark.errors import LakehouseError


class GoldError(LakehouseError):
    """dbt could not run, or a model or test failed."""
