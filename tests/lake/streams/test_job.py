"""Tests the signals that stop a job and the messages of errors raised through Spark and Java."""

import pkgutil
import subprocess
import sys

import pytest

from lake.remedies import REMEDIES
from lake.streams.command import exit_with
from lake.streams.failures import explain
from pulsar_spark.errors import DataLossError, LakehouseError

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


def test_remedies_belong_to_existing_errors() -> None:
    assert all(issubclass(pkgutil.resolve_name(name), LakehouseError) for name in REMEDIES)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (DataLossError("gone."), 2, "Error: gone. In the lakehouse, LAKEHOUSE_ACCEPT_DATA_LOSS"),
        (LakehouseError("no."), 2, "Error: no.\n"),
        (FileNotFoundError(2, "No such file", "x"), 2, "Error: x: No such file."),
        (RuntimeError("odd"), 1, "Error: RuntimeError: odd\n"),
        (ConnectionRefusedError(), 1, "Error: Spark's Java process has ended."),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_an_error_becomes_one_message_and_an_exit_code(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> None:
        raise error

    with pytest.raises(SystemExit) as end:
        exit_with(command)
    assert end.value.code == code
    assert capsys.readouterr().err.startswith(said)


SIGNALLED = """
import os, subprocess, sys
from lake.streams.job import stop_signal

send = f"import os, time\\nfor _ in range(5000): os.kill({os.getpid()}, 2); time.sleep(2e-4)"
with stop_signal() as stop:
    sender, seen = subprocess.Popen([sys.executable, "-c", send]), 0
    while sender.poll() is None:
        seen += stop.wait(1e-5)
        stop.clear()
print("signals seen:", seen > 0)
"""


def test_a_signal_may_come_while_the_main_thread_waits_for_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout[-19:]) == (0, "signals seen: True\n"), done.stderr[-2000:]
