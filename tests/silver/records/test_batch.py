"""Tests that the decoded rows of a batch are the same wherever they are held."""

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from silver.records.batch import Decoded

DDL = (
    "id int, position int, publish_time int, _reason string, "
    "_came struct<key: string, payload: binary>"
)
ROWS = [(1, 10, 20, None, None), (2, 11, 21, "bad", ("k", bytearray(b"p")))]


@pytest.mark.parametrize("few", [True, False])
def test_good_and_refused_rows_are_told_apart(spark: SparkSession, few: bool) -> None:
    decoded = Decoded(spark.createDataFrame(ROWS, DDL), few=few)
    try:
        assert decoded.table.num_rows == decoded.rows.count() == 2
        good = [{"id": 1, "position": 10, "publish_time": 20}]
        assert decoded.good_table.to_pylist() == good
        assert [row.asDict() for row in decoded.good.collect()] == good
        verdicts = sorted(tuple(row) for row in decoded.verdicts.collect())
        assert verdicts == [(10, None), (11, "bad")]
        [refused] = decoded.refused.collect()
        assert refused.asDict() == {
            **{"position": 11, "publish_time": 21, "reason": "bad"},
            **{"key": "k", "payload": bytearray(b"p")},
        }
    finally:
        decoded.release()


def test_few_rows_are_computed_once_and_not_cached_by_spark(spark: SparkSession) -> None:
    runs: list[pa.Table] = []
    plan = spark.createDataFrame(ROWS, DDL)

    class Counted:
        sparkSession, schema = spark, plan.schema

        def toArrow(self) -> pa.Table:
            runs.append(plan.toArrow())
            return runs[-1]

    decoded = Decoded(Counted(), few=True)  # type: ignore[arg-type]
    assert decoded.good.count() == decoded.good_table.num_rows == 1
    assert len(runs) == 1
    assert not decoded.rows.is_cached
    decoded.release()
