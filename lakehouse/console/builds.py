"""What the page about gold shows: models, tests, the last builds and the published snapshot."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gold.dbt.manifest import Manifest
from gold.tables import RUNS, GoldSnapshot, last_published, mart_name, table_name
from lake.tables.lake import Lake
from lakehouse.console.graph import full_name
from pulsar_spark.log_masking import redact

BUILDS = 20
FAILED = ("error", "fail", "runtime error")


@dataclass(frozen=True)
class Failure:
    """A model or test that failed. The messages of tests may hold values, and are left out."""

    kind: str
    name: str
    message: str


@dataclass(frozen=True)
class Build:
    """A run of dbt. `seconds` is the sum over its nodes."""

    started_at: dt.datetime
    outcome: str
    models: int
    tests: int
    seconds: float
    failures: list[Failure]


@dataclass(frozen=True)
class Model:
    """A model: how it is materialized, how many tests it has, and how it was built last."""

    name: str
    table: str
    description: str
    materialized: str
    key: str
    tests: int
    status: str
    seconds: float | None
    message: str
    is_published: bool


@dataclass(frozen=True)
class Gold:
    """What the page shows."""

    models: list[Model]
    builds: list[Build]
    published: GoldSnapshot | None

    @property
    def marts(self) -> list[tuple[str, str, int]]:
        """The published tables: the name within gold, the full name, and the version."""
        versions = self.published.versions if self.published else {}
        return [(name, ".".join(table_name(name)), versions[name]) for name in sorted(versions)]


def gold_page(lake: Lake, manifest: Manifest) -> Gold:
    """Read what the page about gold shows."""
    columns = [column.name for column in RUNS.columns]
    rows = lake.table(RUNS).arrow.rows(columns) if lake.table(RUNS).exists() else []
    runs: dict[dt.datetime, list[dict[str, Any]]] = {}
    for row in rows:
        runs.setdefault(row["started_at"], []).append(row)
    newest = sorted(runs, reverse=True)
    last, published = _last(runs, newest), last_published(lake)
    return Gold(
        [_model(node, manifest, last, published) for node in _sorted(manifest)],
        [_build(at, runs[at]) for at in newest[:BUILDS]],
        published,
    )


def _sorted(manifest: Manifest) -> list[dict[str, Any]]:
    return sorted(manifest.models, key=lambda node: str(node["name"]))


def _last(
    runs: Mapping[dt.datetime, list[dict[str, Any]]], newest: Sequence[dt.datetime]
) -> dict[str, dict[str, Any]]:
    """The last result of each model."""
    found: dict[str, dict[str, Any]] = {}
    for at in newest:
        for row in runs[at]:
            if row["kind"] == "model":
                found.setdefault(row["name"], row)
    return found


def _model(
    node: dict[str, Any],
    manifest: Manifest,
    last: Mapping[str, dict[str, Any]],
    published: GoldSnapshot | None,
) -> Model:
    result = last.get(node["name"], {})
    table = full_name(node)
    key = node.get("config", {}).get("unique_key") or ""
    return Model(
        str(node["name"]),
        table,
        " ".join(str(node.get("description", "")).split()),
        str(node["config"]["materialized"]),
        key if isinstance(key, str) else ", ".join(key),
        manifest.tests_of(node["unique_id"]),
        str(result.get("status", "")),
        result.get("seconds"),
        redact(str(result.get("message") or ""))[:300],
        published is not None and mart_name(*table.split(".", 1)) in published.versions,
    )


def _build(at: dt.datetime, rows: Sequence[dict[str, Any]]) -> Build:
    kinds = Counter(row["kind"] for row in rows)
    failures = [
        Failure(
            row["kind"],
            row["name"],
            redact(str(row["message"] or ""))[:600] if row["kind"] == "model" else "",
        )
        for row in rows
        if row["status"] in FAILED
    ]
    return Build(
        at,
        rows[0]["outcome"],
        kinds["model"],
        kinds["test"] + kinds["unit_test"],
        sum(row["seconds"] for row in rows),
        failures,
    )
