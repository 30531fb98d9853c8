"""Tests what the page about gold says of builds and models."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

from quiet_lake import UTC, QuietLake, append
from served_console import quiet_settings

from gold.dbt.manifest import Manifest
from gold.tables import RUNS
from lakehouse.console.builds import Failure, gold_page

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=UTC)


def run(
    seconds: int, outcome: str, kind: str, name: str, status: str, message: str
) -> dict[str, Any]:
    return {
        "started_at": NOW + dt.timedelta(seconds=seconds),
        **{"outcome": outcome, "kind": kind, "name": name, "status": status, "seconds": 0.5},
        "message": message,
    }


def test_builds_are_listed_with_what_failed_but_no_values_of_tests(tmp_path: Path) -> None:
    quiet = QuietLake(quiet_settings(tmp_path))
    quiet.publish(3, NOW, points=[{"id": 1}])
    append(
        quiet.lake,
        RUNS,
        [
            run(60, "failed", "model", "points", "error", "no such column password=hunter22"),
            run(60, "failed", "test", "unique_points", "fail", "found a@b.org"),
            run(60, "failed", "unit_test", "u", "pass", ""),
        ],
    )
    node = {
        **{"name": "points", "unique_id": "model.p.points", "resource_type": "model"},
        **{"config": {"materialized": "kept", "unique_key": ["a", "b"]}, "columns": {}},
        **{"access": "public", "description": "All\n  points"},
    }
    tests = {
        "test.p.one": {"resource_type": "test", "attached_node": "model.p.points"},
        "test.p.two": {"resource_type": "test", "attached_node": "model.p.other"},
    }
    units = {"unit_test.p.points.u": {"model": "points"}}
    manifest = {"nodes": {node["unique_id"]: node, **tests}, "unit_tests": units}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    gold = gold_page(quiet.lake, Manifest(tmp_path))
    assert [(b.outcome, b.models, b.tests, b.seconds) for b in gold.builds] == [
        ("failed", 1, 2, 1.5),
        ("published", 1, 0, 1.25),
    ]
    assert gold.builds[0].failures == [
        Failure("model", "points", "no such column password=***"),
        Failure("test", "unique_points", ""),
    ]
    [model] = gold.models
    assert (model.key, model.tests, model.status, model.is_published) == ("a, b", 2, "error", True)
    assert model.description == "All points"
    assert gold.published is not None
    assert gold.published.silver_batch == 3


def test_a_lake_without_gold_has_no_builds(tmp_path: Path) -> None:
    gold = gold_page(QuietLake(quiet_settings(tmp_path)).lake, Manifest(tmp_path))
    assert (gold.models, gold.builds, gold.published) == ([], [], None)
