"""Errors of gold.

LakehouseError
`- GoldError       gold could not be built, tested or published
   `- BuildError   models or tests failed
"""

from pulsar_spark.errors import LakehouseError


class GoldError(LakehouseError):
    """Gold could not be built, tested or published."""


class BuildError(GoldError):
    """Models or tests failed. The message holds no values of rows, so it can be logged.

    in_terminal: the same with Spark's messages and some of the rows that a test found, which may
        be about people. Shown only to an owner, in a terminal.
    has_waited: whether a model with `build_after` has waited in the build, which may be the reason.
    """

    in_terminal = ""
    has_waited = False
