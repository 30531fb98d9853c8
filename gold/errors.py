"""Errors of gold.

LakehouseError
`- GoldError    gold could not be built, tested or published
"""

from pulsar_spark.errors import LakehouseError


class GoldError(LakehouseError):
    """Gold could not be built, tested or published."""
