"""Tests how errors that come through Spark and Java are explained and judged."""

import pytest
from py4j.protocol import Py4JNetworkError

from lake.remedies import REMEDIES
from lake.streams.failures import explain, may_pass
from pulsar_spark.errors import BrokerError, CheckpointError

AWAY = "[STREAM_FAILED] pulsar_spark.errors.BrokerError: No answer.\n SQLSTATE: 38000"
THROUGH_SPARK = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_EXCEPTION] failed:
Traceback (most recent call last):
  File "source.py", line 1, in latestOffset
    raise {error}
{error}
 SQLSTATE: 38000
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (THROUGH_SPARK.format(error="pulsar_spark.errors.BrokerError: away."), "away."),
        (
            THROUGH_SPARK.format(error="pulsar_spark.errors.DataLossError: gone."),
            f"gone. {REMEDIES['pulsar_spark.errors.DataLossError']}",
        ),
        (THROUGH_SPARK.format(error="RuntimeError: killed"), "RuntimeError: killed"),
        ("[TABLE_NOT_FOUND] The table x.\\nmore", "[TABLE_NOT_FOUND] The table x."),
        ("one line\nand another", "one line"),
        ("", "ValueError"),
    ],
)
def test_the_relevant_sentence_is_found(text: str, said: str) -> None:
    assert explain(ValueError(text.replace("\\n", "\n"))) == said


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (BrokerError("away"), True),
        (CheckpointError("another's"), False),
        (RuntimeError(AWAY), True),
        (RuntimeError("pulsar_spark.broker.admin.TopicNotFoundError: no topic"), True),
        (RuntimeError("silver.audit.reconcile.ReconciliationError: 3 is not 4"), False),
        (RuntimeError("bronze.nowhere.OddError: odd"), True),
        (OSError(28, "No space left on device"), True),
        (ConnectionRefusedError(), False),
    ],
)
def test_permanent_and_transient_errors_are_distinguished(error: Exception, passes: bool) -> None:
    assert may_pass(error) is passes


def test_a_java_process_that_has_ended_is_reported() -> None:
    assert explain(Py4JNetworkError("Answer from Java side is empty")).startswith("Spark's Java")
