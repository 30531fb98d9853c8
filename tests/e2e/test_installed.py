"""Tests the product in an empty environment, as `pip install` of its wheel leaves it."""

import csv
import io
import re
from pathlib import Path

import httpx
import pytest
from live_shop import until
from project import Project
from wheels import built, environment

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.jvm, pytest.mark.nightly, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program `lakehouse` of an environment with the wheel and the locked dependencies."""
    folder = tmp_path_factory.mktemp("installed")
    # The console does not serve its files through symbolic links.
    wheel = (f"{built(ROOT, folder)}[lineage,postgres]", "--link-mode", "copy")
    python = environment(folder / "environment", ROOT / "requirements-image.lock", wheel)
    return python.with_name("lakehouse")


def test_a_new_project_runs_from_init_to_gold_and_its_console(
    installed: Path, tmp_path: Path
) -> None:
    project = Project(tmp_path / "plant", lakehouse=installed)
    readings = project.sample("readings")

    def rows(statement: str) -> list[list[str]]:
        return list(csv.reader(io.StringIO(project.run("sql", "--format", "csv", statement))))[1:]

    with project.up():
        project.run("publish", "--data", "sample")
        sql = "select id from silver.enriched_readings order by id"
        until(
            lambda: rows(sql) == [[str(n)] for n in sorted(int(row["id"]) for row in readings)],
            "the readings in silver",
        )
        project.run("gold", "--available-now")
        [[counted]] = rows("select sum(count_readings) from gold.readings_by_day")
        assert int(counted) == len(readings)
        said = (project.folder / "up.log").read_text()
        [address] = re.findall(r"Console: (\S+)", said)
        page = httpx.get(address, timeout=30)
        assert page.status_code == 200
        assert "enriched_readings" in page.text
        for static in re.findall(r"(?:src|href)=\"(/static/[^\"]+)\"", page.text):
            assert httpx.get(f"{address.rstrip('/')}{static}", timeout=30).status_code == 200


@pytest.mark.parametrize("example", ["shop", "bank", "telemetry", "people", "clicks"])
def test_the_wheel_has_the_files_of_each_example(
    installed: Path, tmp_path: Path, example: str
) -> None:
    project = Project(tmp_path / example, "--example", example, lakehouse=installed)
    origin = ROOT / "examples" / example
    for file in origin.rglob("*.*"):
        if file.is_file() and file.name != "README.md":
            assert (project.folder / file.relative_to(origin)).exists(), file
