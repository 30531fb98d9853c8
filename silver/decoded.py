"""The decoded rows of one topic in one batch: where they are few, in the driver, as a job that
brings them there costs no more than one that counts them.
"""

from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from silver.columns import CAME, REASON


class Decoded:
    """Rows as of `Decoder.rows`, computed once."""

    def __init__(self, plan: DataFrame, *, few: bool) -> None:
        """`plan` decodes them; `few` says that the driver can hold them."""
        self._plan = plan
        self._few = few
        self._kept: DataFrame | None = None

    @cached_property
    def table(self) -> pa.Table:
        """The rows, brought to the driver."""
        return (self._plan if self._few else self.rows).toArrow()

    @cached_property
    def rows(self) -> DataFrame:
        """The rows, for Spark."""
        if self._few:
            return self._plan.sparkSession.createDataFrame(self.table, self._plan.schema)
        self._kept = self._plan.persist()
        return self._kept

    @cached_property
    def good_table(self) -> pa.Table:
        """Those without a reason to refuse them, bare of what came; brought to the driver."""
        return self.table.filter(pc.is_null(self.table[REASON])).drop_columns([REASON, CAME])

    @cached_property
    def good(self) -> DataFrame:
        """The same, for Spark."""
        return self.rows.where(F.col(REASON).isNull()).drop(REASON, CAME)

    @property
    def verdicts(self) -> DataFrame:
        """Of each row its `position`, and the `reason` to refuse it, if there is one."""
        return self.rows.select("position", F.col(REASON).alias("reason"))

    @property
    def refused(self) -> DataFrame:
        """Those with a reason, and what came, in the quarantine's columns."""
        reason = F.col(REASON).alias("reason")
        rows = self.rows.where(F.col(REASON).isNotNull())
        return rows.select("position", "publish_time", reason, f"{CAME}.*")

    def release(self) -> None:
        """Let Spark forget them."""
        if self._kept is not None:
            self._kept.unpersist()
