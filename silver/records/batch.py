"""Holds the decoded rows of one topic in one batch.

Few rows are held in the driver, because a job that collects them costs no more than a job that
counts them.
"""

from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from silver.contract.columns import CAME, ELEMENT, REASON

INTERNAL = (REASON, CAME, ELEMENT)


class Decoded:
    """The rows of `Decoder.rows`, computed only once. Call `release` at the end of the batch."""

    def __init__(self, plan: DataFrame, *, few: bool) -> None:
        """`plan` decodes the rows. With `few`, they are held in the driver."""
        self._plan = plan
        self._few = few
        self._kept: DataFrame | None = None

    @cached_property
    def table(self) -> pa.Table:
        """The rows, collected in the driver."""
        return (self._plan if self._few else self.rows).toArrow()

    @cached_property
    def rows(self) -> DataFrame:
        """The rows as a DataFrame."""
        if self._few:
            return self._plan.sparkSession.createDataFrame(self.table, self._plan.schema)
        self._kept = self._plan.persist()
        return self._kept

    @cached_property
    def good_table(self) -> pa.Table:
        """The good rows without the columns `INTERNAL`, collected in the driver."""
        good = self.table.filter(pc.is_null(self.table[REASON]))
        if ELEMENT in good.column_names:
            good = good.filter(pc.is_valid(good[ELEMENT]))
        return good.drop_columns([name for name in INTERNAL if name in good.column_names])

    @cached_property
    def good(self) -> DataFrame:
        """The good rows without the columns `INTERNAL`, as a DataFrame."""
        good = self.rows.where(F.col(REASON).isNull())
        if ELEMENT in good.columns:
            good = good.where(F.col(ELEMENT).isNotNull())
        return good.drop(*INTERNAL)

    @property
    def verdicts(self) -> DataFrame:
        """The `position` of each message, and the `reason` to reject it, NULL if it is good."""
        rows = self.rows
        if ELEMENT in rows.columns:
            rows = rows.where(F.coalesce(ELEMENT, F.lit(0)) == 0)
        return rows.select("position", F.col(REASON).alias("reason"))

    @property
    def refused(self) -> DataFrame:
        """The rejected rows, with their original content in the quarantine's columns."""
        reason = F.col(REASON).alias("reason")
        rows = self.rows.where(F.col(REASON).isNotNull())
        return rows.select("position", "publish_time", reason, f"{CAME}.*")

    def release(self) -> None:
        """Release the rows that Spark has cached."""
        if self._kept is not None:
            self._kept.unpersist()
