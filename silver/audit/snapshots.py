"""Snapshots of the lake: the table versions that belong together after each batch of silver."""

import datetime as dt
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lake.streams.delta_offset import WHOLE_VERSION
from lake.tables.lake import Lake
from lake.tables.spec import bronze_table
from silver.contract.tables import CUTS, silver_tables


@dataclass(frozen=True)
class SilverSnapshot:
    """A snapshot: a row of `silver.cuts`.

    committed_at: later than in all earlier snapshots, even if the clock was set back. The newest
        snapshot is therefore the one with the latest `committed_at`. The batch number cannot tell,
        because it does not increase when records are replayed from quarantine or people forgotten.
    positions: by topic, the offset in the bronze table up to which silver has read, in Spark's
        format.
    """

    silver_batch: int
    committed_at: dt.datetime
    versions: dict[str, int]
    positions: dict[str, str]

    @classmethod
    def now(cls, lake: Lake, batch_id: int, sources: Mapping[str, Any]) -> "SilverSnapshot":
        """The snapshot of a batch that is about to end.

        Silver's tables have their current versions, because nothing else writes them. Some may not
        exist yet while one table is rebuilt. `silver.cuts` has the version that appending this
        snapshot creates. A bronze table has the last version that was read completely, according to
        the offsets (`sources`) at which the batch ends.
        """
        handles = map(lake.table, silver_tables(lake.topics))
        tables = {each.full_name: each.arrow for each in handles if each.is_known or each.exists()}
        versions = {name: table.version for name, table in tables.items()}
        versions[CUTS.full_name] += 1
        for name, offset in sources.items():
            if offset["index"] == WHOLE_VERSION:
                versions[bronze_table(name).full_name] = offset["reservoirVersion"] - 1
        positions = {name: json.dumps(offset) for name, offset in sources.items()}
        newest = tables[CUTS.full_name].newest("committed_at")
        now = dt.datetime.now(dt.timezone.utc)
        instant = now if newest is None else max(now, newest + dt.timedelta(milliseconds=1))
        return cls(batch_id, instant, versions, positions)

    def row(self) -> dict[str, Any]:
        """The snapshot as a row of `silver.cuts`."""
        return asdict(self)


def latest_snapshot(
    lake: Lake, among: Callable[[Mapping[str, Any]], bool] = lambda _: True
) -> SilverSnapshot | None:
    """The newest snapshot that fits; None if there is none.

    Snapshots are kept for `history_days`, like the table versions that they name.

    Args:
        lake: the lake.
        among: whether a snapshot fits, given its `silver_batch` and `committed_at`.
    """
    table = lake.table(CUTS).arrow
    made = [row for row in table.rows(["silver_batch", "committed_at"]) if among(row)]
    if not made:
        return None
    last = max(made, key=lambda row: row["committed_at"])["silver_batch"]
    columns = [column.name for column in CUTS.columns]
    [row] = table.rows(columns, f"silver_batch = {last}")
    return SilverSnapshot(
        **{**row, "versions": dict(row["versions"]), "positions": dict(row["positions"])}
    )


def last_batch(lake: Lake) -> int:
    """The last batch of the silver query that has a snapshot; -1 if none has."""
    made = lake.table(CUTS).arrow.column("silver_batch").to_pylist()
    return int(max(made, default=-1))
