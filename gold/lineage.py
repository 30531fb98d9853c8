"""Reports the lineage of gold builds if it is wanted. `lineage_events.py` creates the events."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gold.tables import GoldSnapshot
from lake.observe.lineage import emitter, no_matter_what
from lake.tables.lake import Lake


@dataclass
class BuildLineage:
    """The outcome of a build, set by the block of `report_build`.

    published: the snapshot that was published, if any.
    failed: the nodes that failed, as text, without values of rows.
    """

    published: GoldSnapshot | None = None
    failed: str | None = None


@contextmanager
def report_build(lake: Lake, target: Path) -> Iterator[BuildLineage]:
    """Report the build in the block, and the artifacts that dbt leaves in `target`.

    Yields:
        The outcome of the build, which the block sets.

    Raises:
        SettingsError: lineage is wanted, but cannot be sent with the current settings.
    """
    build = BuildLineage()
    sender = emitter(lake.settings)
    if sender is None:
        yield build
        return
    from gold.lineage_events import GoldRun

    run = GoldRun(lake, sender)
    with no_matter_what():
        run.started()
    try:
        yield build
    except BaseException as error:
        with no_matter_what():
            run.models(target)
            run.failed(build.failed or str(error) or type(error).__name__)
        raise
    with no_matter_what():
        run.models(target)
        run.completed(build.published)
