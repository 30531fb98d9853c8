"""The metrics of gold: when it was published, how long it took, what was refused.

They are in the tables `gold.cuts` and `gold.runs`, so that the process of the streams can tell them
of a gold that is built by another. A run of dbt that did not come to its models is in neither.
"""

import datetime as dt
from collections import Counter
from collections.abc import Iterator

import pyarrow.compute as pc
from prometheus_client.core import Metric as Family

from gold.tables import CUTS, RUNS
from lake.observe import metrics
from lake.observe.exporter import LayerCollector
from lake.settings.settings import LakeSettings
from lake.tables.arrow import NewRows
from silver.contract.tables import CUTS as SILVER_CUTS

OUTCOMES = ("published", "tested", "failed")


def gold_collector(settings: LakeSettings) -> LayerCollector:
    """Reads gold's metrics."""
    seen = _Seen(settings)

    def read() -> Iterator[Family]:
        if not all(table.exists(settings) for table in (CUTS, RUNS, SILVER_CUTS)):
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
    """What the tables have told so far.

    builds: by outcome, how many there were; never fewer, though old rows go. batch_of: by the time
    that gold was published, the batch of silver that it shows. silver_batch: silver's own last one.
    """

    def __init__(self, settings: LakeSettings) -> None:
        self._runs = NewRows(RUNS, settings, ("started_at", "outcome"), "started_at")
        self._cuts = NewRows(CUTS, settings, ("published_at", "silver_batch"), "published_at")
        self._silver = NewRows(SILVER_CUTS, settings, ("silver_batch",), "silver_batch")
        self.builds = Counter[str]()
        self.batch_of: dict[dt.datetime, int] = {}
        self.silver_batch = -1
        self._begun: dict[dt.datetime, str] = {}  # outcomes of the builds that the table has

    def look(self) -> None:
        """Read what is new; the runs first, as each follows its cut."""
        rows, is_all = self._runs.read()
        groups = rows.group_by(["started_at", "outcome"]).aggregate([]).to_pylist()
        builds = {row["started_at"]: row["outcome"] for row in groups}
        self.builds.update(builds[begun] for begun in builds.keys() - self._begun.keys())
        self._begun = builds if is_all else self._begun | builds
        rows, is_all = self._cuts.read()
        if is_all:
            self.batch_of = {}
        self.batch_of |= {row["published_at"]: row["silver_batch"] for row in rows.to_pylist()}
        rows, is_all = self._silver.read()
        last = pc.max(rows["silver_batch"]).as_py()
        if last is not None:
            self.silver_batch = last

    def build_seconds(self) -> float | None:
        """How long the last build took that was published."""
        published = [begun for begun, outcome in self._begun.items() if outcome == "published"]
        begun = max(published, default=None)
        ended = [at for at in self.batch_of if begun is not None and at >= begun]
        return (min(ended) - begun).total_seconds() if begun and ended else None
