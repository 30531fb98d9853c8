"""The metrics of gold: when it was published, how long the build took, and the builds by outcome.

They are read from the tables `gold.cuts` and `gold.runs`, so that the process of the streams can
report them even if another process builds gold. A dbt run that did not get as far as its models is
in neither table.
"""

import datetime as dt
from collections import Counter
from collections.abc import Iterator

import pyarrow.compute as pc
from prometheus_client.core import Metric as Family

from gold.tables import CUTS, RUNS
from lake.observe import metrics
from lake.observe.exporter import LayerCollector
from lake.tables.arrow import NewRows
from lake.tables.lake import Lake
from silver.contract.tables import CUTS as SILVER_CUTS

OUTCOMES = ("published", "tested", "failed")


def gold_collector(lake: Lake) -> LayerCollector:
    """The collector of gold's metrics."""
    seen = _Seen(lake)

    def read() -> Iterator[Family]:
        if not all(lake.table(table).exists() for table in (CUTS, RUNS, SILVER_CUTS)):
            return
        seen.look()
        yield metrics.BUILDS.of({(name,): seen.builds[name] for name in OUTCOMES})
        if seen.batch_of:
            last = max(seen.batch_of)
            yield metrics.PUBLISHED_AT.of({(): last.timestamp()})
            yield metrics.UNPUBLISHED.of({(): max(seen.silver_batch - seen.batch_of[last], 0)})
        if (seconds := seen.build_seconds()) is not None:
            yield metrics.BUILD_SECONDS.of({(): seconds})

    return LayerCollector("gold", read)


class _Seen:
    """What has been read from the tables so far.

    builds: number of builds by outcome. It never decreases, even when old rows are deleted.
    batch_of: by the time of publication, the batch of silver that gold shows.
    silver_batch: the last batch of silver itself.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._runs = NewRows(("started_at", "outcome"), "started_at")
        self._cuts = NewRows(("published_at", "silver_batch"), "published_at")
        self._silver = NewRows(("silver_batch",), "silver_batch")
        self.builds = Counter[str]()
        self.batch_of: dict[dt.datetime, int] = {}
        self.silver_batch = -1
        self._begun: dict[dt.datetime, str] = {}  # outcomes of the builds in the table

    def look(self) -> None:
        """Read new rows. The runs are read first, because each is written after its snapshot."""
        rows, is_all = self._runs.read(self._lake.table(RUNS).arrow)
        groups = rows.group_by(["started_at", "outcome"]).aggregate([]).to_pylist()
        builds = {row["started_at"]: row["outcome"] for row in groups}
        self.builds.update(builds[begun] for begun in builds.keys() - self._begun.keys())
        self._begun = builds if is_all else self._begun | builds
        rows, is_all = self._cuts.read(self._lake.table(CUTS).arrow)
        if is_all:
            self.batch_of = {}
        self.batch_of |= {row["published_at"]: row["silver_batch"] for row in rows.to_pylist()}
        rows, _ = self._silver.read(self._lake.table(SILVER_CUTS).arrow)
        last = pc.max(rows["silver_batch"]).as_py()
        if last is not None:
            self.silver_batch = last

    def build_seconds(self) -> float | None:
        """How long the last published build took; None if that is not known."""
        published = [begun for begun, outcome in self._begun.items() if outcome == "published"]
        begun = max(published, default=None)
        ended = [at for at in self.batch_of if begun is not None and at >= begun]
        return (min(ended) - begun).total_seconds() if begun and ended else None
