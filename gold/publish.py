"""Publishes what was built and tested: each mart takes over its build in one commit.

The files of a build are linked into the folder of the mart. Nothing is copied, and readers of each
path see an independent table. All links are made first, so that the commits follow one another
within milliseconds. The snapshot, which says which versions belong together, is written last.
"""

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from gold.own import marked, require_own_commits
from gold.records import append_record
from gold.sql_client import query_endpoint
from gold.tables import BUILT, CUTS, GOLD, GoldSnapshot, last_published, table_name
from lake.quoting import identifier, literal
from lake.tables.checksums import write_checksum
from lake.tables.lake import Lake
from lake.tables.spec import CHANGE_FEED
from lake.tables.storage import storage_options

MANY_FILES = 32
SMALL_FILE = 16 << 20


def publish(
    lake: Lake,
    marts: Iterable[str],
    built: Iterable[str],
    silver: tuple[int, dict[str, int]],
    project: str,
    begun: tuple[str, Mapping[str, int]],
) -> GoldSnapshot:
    """Let readers see what was built, and record which versions belong together.

    Args:
        lake: the lake.
        marts: the models to publish, as `mart_name` names them.
        built: all models that are tables.
        silver: the batch and the table versions of silver that were read.
        project: checksum of the models.
        begun: id of the build, and the versions at its start of the tables that it did not build
            from scratch.

    Raises:
        GoldError: another writer has changed a table during the build; nothing is published.
    """
    before = last_published(lake)
    built_versions = {name: _settle(lake, name, *begun) for name in built}
    tables = {name: _Mart(lake, name, built_versions[table_name(name)[1]]) for name in marts}
    for table in tables.values():
        table.link()
    for table in tables.values():
        table.publish()
    # Before the snapshot, so that a publication that was killed in between does it again.
    known = before.versions if before else {}
    for name in sorted(tables.keys() - known.keys()):
        _register(lake, *table_name(name), tables[name].path)
    for name in sorted(known.keys() - tables.keys()):
        _drop(lake, *table_name(name))
    snapshot = GoldSnapshot(
        published_at=_instant_after(before),
        silver_batch=silver[0],
        versions={name: table.version for name, table in tables.items()},
        built_versions=built_versions,
        silver_versions=silver[1],
        project=project,
    )
    _append(lake, vars(snapshot))
    return snapshot


def _register(lake: Lake, schema: str, mart: str, path: str) -> None:
    """Let SQL clients find a new mart."""
    if schema != GOLD:
        folder = literal(f"{lake.settings.tables}/{schema}")
        created = f"CREATE SCHEMA IF NOT EXISTS {identifier(schema)} LOCATION {folder}"
        query_endpoint(lake.settings, created)
    create = f"CREATE TABLE IF NOT EXISTS {identifier(schema)}.{identifier(mart)}"
    query_endpoint(lake.settings, f"{create} USING delta LOCATION {literal(path)}")


def _drop(lake: Lake, schema: str, mart: str) -> None:
    """Delete a mart that is no longer built."""
    gone = f"{identifier(schema)}.{identifier(mart)}"
    query_endpoint(lake.settings, f"DROP TABLE IF EXISTS {gone}")
    lake.named(schema, mart).delete()


def undo_unpublished(lake: Lake, before: GoldSnapshot) -> dict[str, int]:
    """Restore the built tables to their published versions. A failed run may have changed them.

    Returns:
        The versions of the tables after that.
    """
    versions = {}
    for name, built in lake.tables(BUILT).items():
        version, table = before.built_versions.get(name), built.log()
        if version is None:  # dbt replaces it
            continue
        if table.version() != version:
            table.restore(version)
            write_checksum(table)
        versions[name] = table.version()
    return versions


def note_versions(lake: Lake) -> None:
    """Record that the tables have new versions with the same rows as were published."""
    before = last_published(lake)
    if before is not None:
        now = {
            "published_at": _instant_after(before),
            "versions": {
                name: lake.named(*table_name(name)).log().version() for name in before.versions
            },
            "built_versions": {
                name: lake.named(BUILT, name).log().version() for name in before.built_versions
            },
        }
        _append(lake, {**vars(before), **now})


def _append(lake: Lake, row: dict[str, Any]) -> None:
    append_record(lake.table(CUTS), [row], "published_at", lake.settings.history_days)


def _instant_after(before: GoldSnapshot | None) -> dt.datetime:
    """The current time, or just after the last publication if the clock was set back since."""
    now = dt.datetime.now(dt.timezone.utc)
    return now if before is None else max(now, before.published_at + dt.timedelta(milliseconds=1))


class _Mart:
    """A published table, and the build that it takes over."""

    def __init__(self, lake: Lake, name: str, version: int) -> None:
        self._days = lake.settings.history_days
        schema, table = table_name(name)
        self._mart, build = lake.named(schema, table), lake.named(BUILT, table)
        self.path = self._mart.path
        is_new = not self._mart.exists()
        built = build.log(version)
        DeltaTable.create(
            self.path,
            schema=built.schema(),
            mode="ignore",
            description=built.metadata().description,
            configuration={"delta.logRetentionDuration": "interval 7 days", **CHANGE_FEED},
            storage_options=storage_options(lake.settings),
        )
        if not is_new:
            self._follow_changes()
        self._swap = self._mart.swap_from(build, version)

    def _follow_changes(self) -> None:
        """Let sinks follow the changes of a mart that an earlier version has published."""
        log = self._mart.log()
        known = log.metadata().configuration
        if any(known.get(name) != value for name, value in CHANGE_FEED.items()):
            log.alter.set_table_properties(CHANGE_FEED)

    @property
    def version(self) -> int:
        """The version that readers see."""
        return self._swap.version

    def link(self) -> None:
        """Link the files of the build into the folder of the mart."""
        self._swap.link()

    def publish(self) -> None:
        """Let readers see the build, and delete old files if many were replaced."""
        if self._swap.commit() > MANY_FILES:
            self._mart.log().vacuum(self._days * 24, dry_run=False)


def _settle(lake: Lake, name: str, build: str, versions: Mapping[str, int]) -> int:
    """Compact a built table that has many small files, and check that only this build changed it.

    Returns:
        The version to publish.
    """
    table = lake.named(BUILT, name).log()
    sizes = pa.table(table.get_add_actions())["size_bytes"].to_pylist()
    if sum(size < SMALL_FILE for size in sizes) > MANY_FILES:
        ours = marked(build)
        table.optimize.compact(target_size=SMALL_FILE * 8, commit_properties=ours)
        table.vacuum(lake.settings.history_days * 24, dry_run=False, commit_properties=ours)
    require_own_commits(name, table, versions.get(name, -1), build)
    return table.version()
