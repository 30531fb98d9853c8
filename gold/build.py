"""Main path of gold: run `dbt build` against the SQL endpoint and say what became of each node.

dbt runs in a process of its own, as dbt-spark changes the session it works in. What happened is
read from its `run_results.json`, never from its log.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bronze.settings import LakeSettings
from bronze.topics import TopicFile
from gold.errors import GoldError
from silver.tables import silver_tables

PROJECT = Path(__file__).resolve().parents[1] / "dbt_project"
FAILED = ("error", "fail", "runtime error")
GO = b"build\n"
WAIT_AND_RUN = "import sys; from dbt.cli.main import cli; sys.stdin.readline() and cli()"


@dataclass(frozen=True)
class NodeResult:
    """What became of one model, test or unit test."""

    name: str
    kind: str
    status: str
    seconds: float
    message: str | None


@dataclass(frozen=True)
class BuildResult:
    """What became of a run of dbt."""

    nodes: list[NodeResult]

    @property
    def models(self) -> list[NodeResult]:
        """The models, in the order in which they ended."""
        return [node for node in self.nodes if node.kind == "model"]

    @property
    def tests(self) -> list[NodeResult]:
        """Data tests and unit tests."""
        return [node for node in self.nodes if node.kind in ("test", "unit_test")]


def require_silver(settings: LakeSettings, topics: TopicFile) -> None:
    """See that all silver tables are there.

    Raises:
        GoldError: one is not.
    """
    for table in silver_tables(topics):
        if not table.exists(settings):
            message = (
                f"There is no table {table.full_name} at {table.path(settings)} yet, so gold has "
                "nothing to read. Run `lakehouse silver --available-now` first."
            )
            raise GoldError(message)


@dataclass(frozen=True)
class PreparedBuild:
    """A dbt process that waits for `run`, as loading dbt takes longer than many a build."""

    process: subprocess.Popen[bytes]
    results: Path
    log: Path
    select: str | None

    def run(self) -> BuildResult:
        """Build and test the models, once; errors as of `build_gold`."""
        self.results.unlink(missing_ok=True)
        self.process.communicate(GO)
        if not self.results.exists():
            text = self.log.read_text(errors="replace")
            lines = [line for line in text.splitlines() if line.strip()]
            message = f"dbt did not run: {lines[-1] if lines else 'no word'}. See {self.log}."
            raise GoldError(message)
        build = _read_results(self.results)
        if not build.nodes:
            message = f"'{self.select}' selects no model; `dbt ls` in dbt_project lists them."
            raise GoldError(message)
        failed = [node for node in build.nodes if node.status in FAILED]
        if failed or self.process.returncode:
            said = "; ".join(f"{node.kind} {node.name}: {_line(node.message)}" for node in failed)
            said = said or f"dbt ended with {self.process.returncode}"
            message = f"Gold was not built: {said}. See {self.log}."
            raise GoldError(message)
        return build


@contextlib.contextmanager
def prepare_build(
    settings: LakeSettings, *, select: str | None = None, full_refresh: bool = False
) -> Iterator[PreparedBuild]:
    """Start dbt, to `run` it within the block; arguments as of `build_gold`."""
    target = settings.home_dir / "dbt"
    log = settings.home_dir / "logs" / "dbt.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    options = [*(["--select", select] if select else []), *(["--full-refresh"] * full_refresh)]
    with (
        log.open("w") as output,
        subprocess.Popen(
            [sys.executable, "-c", WAIT_AND_RUN, "--no-version-check", "build", *options],
            cwd=PROJECT,
            env=_environment(settings, target),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        yield PreparedBuild(process, target / "run_results.json", log, select)


def build_gold(
    settings: LakeSettings, *, select: str | None = None, full_refresh: bool = False
) -> BuildResult:
    """Build and test the models of `dbt_project` through the running SQL endpoint.

    Args:
        settings: the lake; the endpoint is on `sql_port`.
        select: models to build, in dbt's selection syntax; all if None.
        full_refresh: rebuild incremental models from scratch.

    Raises:
        GoldError: dbt could not run, or a model or test failed; names them with dbt's message.
    """
    with prepare_build(settings, select=select, full_refresh=full_refresh) as build:
        return build.run()


def _environment(settings: LakeSettings, target: Path) -> dict[str, str]:
    return {
        **os.environ,
        "LAKEHOUSE_SQL_HOST": settings.sql_host,
        "LAKEHOUSE_SQL_PORT": str(settings.sql_port),
        "DBT_TARGET_PATH": str(target),
        "DBT_LOG_PATH": str(settings.home_dir / "logs" / "dbt"),
        "DBT_PROFILES_DIR": str(PROJECT),
    }


def _read_results(path: Path) -> BuildResult:
    results: list[dict[str, Any]] = json.loads(path.read_text())["results"]
    nodes = []
    for result in results:
        kind, _, *name = result["unique_id"].split(".")
        nodes.append(
            NodeResult(name[0], kind, result["status"], result["execution_time"], result["message"])
        )
    return BuildResult(nodes)


def _line(message: str | None) -> str:
    return " ".join((message or "no message").split())[:300]
