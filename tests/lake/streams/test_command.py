"""Tests how a command line ends."""

import pytest

from lake.streams.command import exit_with
from pulsar_spark.errors import DataLossError, LakehouseError


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
