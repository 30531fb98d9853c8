"""Tells of builds of gold where lineage is wanted; how is in `lineage_events.py`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gold.publish import PublishedCut
from lake.observe.lineage import emitter, no_matter_what
from lake.settings.settings import LakeSettings


@dataclass
class BuildTold:
    """What a build has come to: `published`, or the nodes that `failed`, without rows of theirs."""

    published: PublishedCut | None = None
    failed: str | None = None


@contextmanager
def told(settings: LakeSettings, target: Path) -> Iterator[BuildTold]:
    """Tell of the build that the block makes, and then what dbt has left of it in `target`.

    Raises:
        SettingsError: lineage is wanted, and cannot be sent as things are.
    """
    build = BuildTold()
    sender = emitter(settings)
    if sender is None:
        yield build
        return
    from gold.lineage_events import GoldRun

    run = GoldRun(settings, sender)
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
