"""Tests that help, completion and `status` do not load slow packages such as Spark and dbt."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from typer.main import get_command

from lakehouse import cli
from lakehouse.runtime.ports import free_port

# The packages Typer needs for the help, and those Rich adds if it is installed.
TYPER = {
    *("typer", "annotated_doc", "annotated_types", "pydantic", "pydantic_core", "shellingham"),
    *("typing_extensions", "typing_inspection"),
}
RICH = {"rich", "attr", "markdown_it", "mdurl", "pygments"}
OURS = {"pulsar_spark", "lake", "bronze", "silver", "gold", "lakehouse", "shop"}
# The packages that `status` must not load.
HEAVY = {
    *("altair", "babel", "dbt", "delta", "fastavro", "openlineage", "pandas"),
    *("prometheus_client", "pulsar", "py4j", "pyspark", "sqlalchemy"),
    *("sse_starlette", "starlette", "uvicorn"),
}
RUN = """
import json, sys
before = set(sys.modules)
for arguments in json.loads(sys.stdin.read()):
    from lakehouse.cli import main
    sys.argv = ["lakehouse", *arguments]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (arguments, end.code)
names = {name.partition(".")[0] for name in set(sys.modules) - before}
third = sorted(name for name in names - sys.stdlib_module_names if not name.startswith("_"))
sys.stderr.write("\\n" + json.dumps(third))
"""


class Ran(NamedTuple):
    out: str
    loaded: set[str]


def ran(folder: Path, *commands: tuple[str, ...], **variables: str) -> Ran:
    """Run commands one after another in a new interpreter, in a folder without a broker."""
    absent = {
        "LAKEHOUSE_PULSAR_URL": f"pulsar://127.0.0.1:{free_port()}",
        "LAKEHOUSE_PULSAR_ADMIN_URL": f"http://127.0.0.1:{free_port()}",
        "LAKEHOUSE_SQL_PORT": str(free_port()),
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps(commands),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path), **absent, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Ran(done.stdout, set(json.loads(done.stderr.splitlines()[-1])))


def commands_and_groups() -> list[tuple[str, ...]]:
    groups = get_command(cli.app).commands  # type: ignore[attr-defined]
    parts = [
        (name, part) for name, each in groups.items() for part in getattr(each, "commands", ())
    ]
    return [(), *((name,) for name in groups), *parts]


def test_the_help_loads_only_the_packages_that_render_it(tmp_path: Path) -> None:
    found = ran(tmp_path, ("--help",))
    assert "Usage: lakehouse" in found.out
    assert "[default: (.lakehouse)]" in found.out
    assert found.loaded - OURS <= TYPER | RICH, found.loaded - OURS - TYPER - RICH


def test_the_help_of_each_command_needs_no_java_no_spark_and_no_valid_settings(
    tmp_path: Path,
) -> None:
    (tmp_path / "lakehouse.toml").write_text("no TOML")
    wanted = [(*names, "--help") for names in commands_and_groups()]
    assert len(wanted) > 30
    found = ran(tmp_path, *wanted, PATH="", JAVA_HOME="/nowhere")
    assert found.out.count("Usage: lakehouse") == len(wanted)
    assert found.loaded - OURS <= TYPER | RICH, found.loaded - OURS - TYPER - RICH


def test_completion_knows_the_commands_and_their_options(tmp_path: Path) -> None:
    def completed(text: str) -> Ran:
        shell = {"_LAKEHOUSE_COMPLETE": "complete_bash", "COMP_WORDS": text}
        return ran(tmp_path, (), **shell, COMP_CWORD=str(text.count(" ")))

    found = completed("lakehouse save")
    assert found.out.split() == ["savepoint"]
    assert found.loaded - OURS <= TYPER | RICH, found.loaded - OURS - TYPER - RICH
    assert "--full-refresh" in completed("lakehouse gold --").out.split()


def test_the_version_is_that_of_the_distribution(tmp_path: Path) -> None:
    from importlib.metadata import version

    found = ran(tmp_path, ("--version",))
    assert found.out == f"lakehouse {version('orders-lakehouse')}\n"
    assert found.loaded - OURS <= TYPER | RICH, found.loaded - OURS - TYPER - RICH


def test_the_status_of_an_empty_lake_loads_neither_spark_nor_metrics(tmp_path: Path) -> None:
    found = ran(tmp_path, ("status",))
    assert "no broker" in found.out
    assert not found.loaded & HEAVY, found.loaded & HEAVY
