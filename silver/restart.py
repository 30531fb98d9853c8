"""What Spark needs to start a query again that was killed within a batch.

Spark 4.2 asks the plans of the unfinished batch and of the one before for the number of shuffle
partitions, to see that nobody has changed it in between. Where sources have names, its plans do not
have it, and the query ends with `None.get`, whenever it is started. So it is written into them.
"""

import json
from pathlib import Path

from bronze.checkpoint import Checkpoint, write_log

ASKED_FOR = "spark.sql.shuffle.partitions"
# Any number will do that is the same in both: it says how many parts a stateful operator has, and
# the query has none.
PARTITIONS = "1"


def complete_plans(checkpoint: Checkpoint) -> None:
    """Write the number into the plans of a batch that was not finished, if there is one."""
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
