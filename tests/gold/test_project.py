"""Tests the profiles and switches of the dbt project without any connection."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lake.settings.settings import SHOP_DBT

SECRET = "hush-4711"  # noqa: S105 - nobody's  # pragma: allowlist secret
TARGETS = {
    "cluster": {
        "LAKEHOUSE_SQL_HOST": "kyuubi.example.org",
        "LAKEHOUSE_SQL_USER": "shop",
        "LAKEHOUSE_DECLARED_TOPICS": "users orders clicks",
        "DBT_ENV_SECRET_LAKEHOUSE_SQL_PASSWORD": SECRET,
    },
    "databricks": {
        "DATABRICKS_HOST": "shop.example.org",
        "DATABRICKS_CLUSTER_ID": "0123-456789-abcdef",
        "DBT_ENV_SECRET_DATABRICKS_TOKEN": SECRET,
    },
}


def parse(target: str, folder: Path, given: dict[str, str]) -> subprocess.CompletedProcess[str]:
    own = {"DBT_TARGET_PATH": str(folder / "target"), "DBT_LOG_PATH": str(folder / "logs")}
    return subprocess.run(
        [Path(sys.executable).with_name("dbt"), "parse", "--target", target],
        cwd=SHOP_DBT,
        env={"PATH": os.environ["PATH"], **own, **given},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.programs
@pytest.mark.parametrize(
    "target", ["cluster", pytest.param("databricks", marks=pytest.mark.nightly)]
)
def test_a_target_reads_its_secret_from_the_environment_and_writes_it_nowhere(
    target: str, tmp_path: Path
) -> None:
    given = TARGETS[target]
    done = parse(target, tmp_path, given)
    assert done.returncode == 0, done.stdout
    written = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert written
    assert not any(SECRET.encode() in text for text in [*written, done.stdout.encode()])

    manifest = json.loads((tmp_path / "target" / "manifest.json").read_text())
    names = {
        node["name"]
        for kind in ("nodes", "sources", "unit_tests")
        for node in manifest[kind].values()
    }
    clicks = {
        *("stg_clicks", "conversion", "enriched_clicks"),
        "a_rate_of_nothing_is_null_and_other_kinds_are_not_counted",
    }
    has_clicks = "clicks" in given.get("LAKEHOUSE_DECLARED_TOPICS", "")
    assert names & clicks == (clicks if has_clicks else set())

    refused = parse(target, tmp_path, {})
    assert refused.returncode != 0
    assert f"Env var required but not provided: '{next(iter(given))}'" in refused.stdout
