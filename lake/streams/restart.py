"""Lets Spark restart a query that was killed within a batch.

Spark 4.2 reads the number of shuffle partitions from the plans of the unfinished batch and of the
one before, to check that it has not changed. If sources have names, the plans do not contain the
number, and every start of the query fails with `None.get`. This module writes the number into the
plans.
"""

import json
from pathlib import Path

from lake.streams.checkpoint import Checkpoint, write_log

ASKED_FOR = "spark.sql.shuffle.partitions"
# Any number will do if it is the same in both plans: it is the number of partitions of stateful
# operators, and the query has none.
PARTITIONS = "1"


def complete_plans(checkpoint: Checkpoint) -> None:
    """Write the number into the plans of an unfinished batch and of the batch before it, if any.

    Called before the query starts, with the checkpoint claimed.
    """
    batch = checkpoint.unfinished
    if batch is not None:
        for number in (batch - 1, batch):
            _complete(Path(checkpoint.path) / "offsets" / str(number))


def _complete(plan: Path) -> None:
    if not plan.exists():
        return
    version, metadata, *offsets = plan.read_text().split("\n")
    stored = json.loads(metadata)
    stored["conf"][ASKED_FOR] = PARTITIONS
    write_log(plan, "\n".join([version, json.dumps(stored), *offsets]))
