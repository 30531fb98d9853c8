"""`lakehouse status --watch`: refresh the status in place until Ctrl-C."""

import contextlib
import datetime as dt
import time
from collections.abc import Callable, Sequence

from rich.live import Live
from rich.text import Text

from lake.streams.job import stop_signal
from lakehouse.operate.status import COLUMNS, TableStatus
from lakehouse.runtime.terminal import as_table, out
from pulsar_spark.errors import LakehouseError

RATE = "rows/s"


def watch(look: Callable[[], Sequence[TableStatus]], every: float) -> None:
    """Show the result of `look` every `every` seconds, with the rows that arrive per second.

    If `look` fails, perhaps because a broker is being restarted, the error is shown below the last
    result. If stdout is not a terminal, the tables are printed one after another.
    """
    lines: Sequence[TableStatus] = []
    before: dict[str, int] = {}
    looked = time.monotonic()
    live = Live(console=out, auto_refresh=False) if out.is_terminal else None
    with stop_signal() as stop, live or contextlib.nullcontext():
        while not stop.is_set():
            now, trouble, rates = dt.datetime.now(dt.timezone.utc), "", {}
            try:
                lines, then, looked = look(), looked, time.monotonic()
                rates = _rates(lines, before, looked - then)
                before = {line.table: line.rows for line in lines if line.rows is not None}
            except LakehouseError as error:
                trouble = f"\n{error}"
            rows = [[*line.cells(now), rates.get(line.table)] for line in lines]
            table = as_table([*COLUMNS, RATE], rows, width=out.width)
            table.caption = Text(f"{now:%H:%M:%S} UTC. Press Ctrl-C to stop.{trouble}")
            if live:
                live.update(table, refresh=True)
            else:
                out.print(table)
            stop.wait(every)


def _rates(
    lines: Sequence[TableStatus], before: dict[str, int], seconds: float
) -> dict[str, float]:
    return {
        line.table: round((line.rows - before[line.table]) / seconds, 1)
        for line in lines
        if line.rows is not None and line.table in before
    }
