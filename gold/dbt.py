"""Runs of dbt beside those that build gold; each has a folder of its own for its artifacts."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bronze.settings import LakeSettings
from gold.build import PROJECT, dbt_environment


def run_dbt(settings: LakeSettings, target: Path, command: Sequence[str]) -> tuple[int, Path]:
    """Run dbt in the project; returns its exit code, and the log of what it said.

    Args:
        settings: the lake; what needs SQL asks the endpoint.
        target: folder for `manifest.json` and what else it writes; the log is named after it.
        command: arguments such as `["docs", "generate"]`.
    """
    log = settings.home_dir / "logs" / f"{target.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        ended = subprocess.run(
            [sys.executable, "-m", "gold.dbt_client", "--no-version-check", *command],
            cwd=PROJECT,
            env=dbt_environment(settings, target),
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    return ended.returncode, log
