"""Publishes what was built and tested: each mart takes over its build in one commit.

The files of a build are linked into the folder of the mart. Nothing is copied, and readers of each
path see an independent table. All links are made first, so that the commits follow one another
within milliseconds. The snapshot, which says which versions belong together, is written last.
"""

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable

from gold.own import marked, require_own_commits
from gold.records import append_record
from gold.sql_client import query_endpoint
from gold.tables import BUILT, CUTS
from lake.settings.settings import LakeSettings
from lake.tables.arrow import DirectTable
from lake.tables.checksums import write_checksum
from lake.tables.sql import identifier, literal
from lake.tables.storage import delete, is_table, open_table, storage_options
from lake.tables.swap import LinkedTable
from lake.tables.table import delta_tables

MANY_FILES = 32
SMALL_FILE = 16 << 20


@dataclass(frozen=True)
class GoldSnapshot:
    """A snapshot of gold: a row of `gold.cuts`."""

    published_at: dt.datetime
    silver_batch: int
    versions: dict[str, int]
    built_versions: dict[str, int]
    silver_versions: dict[str, int]
    project: str


def last_published(settings: LakeSettings) -> GoldSnapshot | None:
    """The newest row of `gold.cuts`; None if there is none."""
    if not CUTS.exists(settings):
        return None
    names = [column.name for column in CUTS.columns]
    row = DirectTable(CUTS, settings).latest("published_at", names)
    if row is None:
        return None
    maps = {name: dict(row[name]) for name in row if name.endswith("versions")}
    return GoldSnapshot(**{**row, **maps})


def publish(
    settings: LakeSettings,
    marts: Iterable[str],
    built: Iterable[str],
    silver: tuple[int, dict[str, int]],
    project: str,
    begun: tuple[str, Mapping[str, int]],
) -> GoldSnapshot:
    """Let readers see what was built, and record which versions belong together.

    Args:
        settings: the lake.
        marts: the models to publish.
        built: all models that are tables.
        silver: the batch and the table versions of silver that were read.
        project: checksum of the models.
        begun: id of the build, and the versions at its start of the tables that it did not build
            from scratch.

    Raises:
        GoldError: another writer has changed a table during the build; nothing is published.
    """
    before = last_published(settings)
    built_versions = {name: _settle(settings, name, *begun) for name in built}
    tables = {name: _Mart(settings, name, built_versions[name]) for name in marts}
    for table in tables.values():
        table.link()
    for table in tables.values():
        table.publish()
    snapshot = GoldSnapshot(
        published_at=_instant_after(before),
        silver_batch=silver[0],
        versions={name: table.version for name, table in tables.items()},
        built_versions=built_versions,
        silver_versions=silver[1],
        project=project,
    )
    append_record(CUTS, settings, [vars(snapshot)], "published_at")
    for name, table in tables.items():
        if table.is_new:
            place = literal(settings.table_path("gold", name))
            create = f"CREATE TABLE IF NOT EXISTS gold.{identifier(name)}"
            query_endpoint(settings, f"{create} USING delta LOCATION {place}")
    for name in before.versions.keys() - tables.keys() if before else ():
        query_endpoint(settings, f"DROP TABLE IF EXISTS gold.{identifier(name)}")
        delete(settings, settings.table_path("gold", name))
    return snapshot


def undo_unpublished(settings: LakeSettings, before: GoldSnapshot) -> dict[str, int]:
    """Restore the built tables to their published versions. A failed run may have changed them.

    Returns:
        The versions of the tables after that.
    """
    versions = {}
    for name, path in delta_tables(settings, BUILT).items():
        version, table = before.built_versions.get(name), open_table(settings, path)
        if version is None:  # dbt replaces it
            continue
        if table.version() != version:
            table.restore(version)
            write_checksum(table)
        versions[name] = table.version()
    return versions


def note_versions(settings: LakeSettings) -> None:
    """Record that the tables have new versions with the same rows as were published."""
    before = last_published(settings)
    if before is not None:
        now = {
            "published_at": _instant_after(before),
            "versions": _versions(settings, "gold", before.versions),
            "built_versions": _versions(settings, BUILT, before.built_versions),
        }
        append_record(CUTS, settings, [{**vars(before), **now}], "published_at")


def _instant_after(before: GoldSnapshot | None) -> dt.datetime:
    """The current time, or just after the last publication if the clock was set back since."""
    now = dt.datetime.now(dt.timezone.utc)
    return now if before is None else max(now, before.published_at + dt.timedelta(milliseconds=1))


def _versions(settings: LakeSettings, layer: str, names: Iterable[str]) -> dict[str, int]:
    return {
        name: open_table(settings, settings.table_path(layer, name)).version() for name in names
    }


class _Mart(LinkedTable):
    """A published table, and the build that it takes over."""

    def __init__(self, settings: LakeSettings, name: str, version: int) -> None:
        build, mart = settings.table_path(BUILT, name), settings.table_path("gold", name)
        self.is_new = not is_table(settings, mart)
        built = open_table(settings, build, version)
        DeltaTable.create(
            mart,
            schema=built.schema(),
            mode="ignore",
            description=built.metadata().description,
            configuration={"delta.logRetentionDuration": "interval 7 days"},
            storage_options=storage_options(settings),
        )
        super().__init__(settings, build, mart, version)

    def publish(self) -> None:
        """Let readers see the build, and delete old files if many were replaced."""
        if self.commit() > MANY_FILES:
            self._table.vacuum(self._settings.history_days * 24, dry_run=False)


def _settle(settings: LakeSettings, name: str, build: str, versions: Mapping[str, int]) -> int:
    """Compact a built table that has many small files, and check that only this build changed it.

    Returns:
        The version to publish.
    """
    table = open_table(settings, settings.table_path(BUILT, name))
    sizes = pa.table(table.get_add_actions())["size_bytes"].to_pylist()
    if sum(size < SMALL_FILE for size in sizes) > MANY_FILES:
        ours = marked(build)
        table.optimize.compact(target_size=SMALL_FILE * 8, commit_properties=ours)
        table.vacuum(settings.history_days * 24, dry_run=False, commit_properties=ours)
    require_own_commits(name, table, versions.get(name, -1), build)
    return table.version()
