"""A project that `lakehouse init` has made, and the commands that users run in it."""

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from live_shop import until

from lake.settings.settings import load_settings
from lakehouse.runtime.ports import free_port

LAKEHOUSE = Path(sys.executable).with_name("lakehouse")
SECRET = "of one project, and of no other use"  # noqa: S105  # pragma: allowlist secret
SECONDS = 300


class Project:
    """A project in a new folder, with ports of its own."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        ports: bool = True,
        command: str = "init",
        lakehouse: Path = LAKEHOUSE,
    ) -> None:
        """Make the project with `lakehouse init NAME`, or in its empty folder with `restore`.

        Without `ports`, it chooses them itself. `lakehouse` is the program of another installation.
        """
        self.lakehouse = lakehouse
        self.env = {
            **os.environ,
            "PATH": f"{lakehouse.parent}{os.pathsep}{os.environ['PATH']}",
            "LAKEHOUSE_PSEUDONYM_SECRET": SECRET,
        }
        if ports:
            self.env |= {
                "LAKEHOUSE_PULSAR_URL": f"pulsar://127.0.0.1:{free_port()}",
                "LAKEHOUSE_PULSAR_ADMIN_URL": f"http://127.0.0.1:{free_port()}",
                "LAKEHOUSE_SQL_PORT": str(free_port()),
            }
        if command == "restore":
            folder.mkdir()
            self.folder = folder
            self.printed = self.run("restore", *options)
            return
        self.folder = folder.parent
        self.printed = self.run(command, folder.name, *options)
        self.folder = folder

    def run(self, *command: str, ends: int = 0, both: bool = False) -> str:
        """Run a command of `lakehouse`, which must end with this code, and return its output.

        The output is what is for programs, or else what is for people, or both.
        """
        done = subprocess.run(
            [self.lakehouse, *command],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        assert done.returncode == ends, f"{' '.join(command)}:\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr if both else done.stdout or done.stderr

    @contextmanager
    def up(self, *options: str) -> Iterator[None]:
        """Run `lakehouse up` during the block, and stop it with Ctrl-C."""
        said = self.folder / "up.log"
        with said.open("w") as log:
            running = subprocess.Popen(
                [self.lakehouse, "up", *options],
                cwd=self.folder,
                env=self.env,
                stdout=log,
                stderr=log,
            )
        try:
            until(lambda: "Running." in said.read_text() or running.poll() is not None, "`up`")
            assert running.poll() is None, said.read_text()
            yield
        finally:
            running.send_signal(signal.SIGINT)
            running.wait(SECONDS)

    def send(self, topic: str, key: str, payload: dict[str, Any]) -> None:
        """Send a message to the running broker, whatever the topic file declares."""
        address = self.env["LAKEHOUSE_PULSAR_URL"]
        settings = load_settings(pulsar_url=address)
        client = settings.connection.client()
        producer = client.create_producer(settings.full_topic(topic))
        producer.send(json.dumps(payload).encode(), partition_key=key)
        client.close()

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a table as readers of its path see them."""
        layer, name = table.split(".")
        found = DeltaTable(str(self.folder / ".lakehouse" / "lake" / layer / name))
        rows: list[dict[str, Any]] = pa.table(found.scan()).to_pylist()
        return rows

    def sample(self, topic: str) -> list[dict[str, str]]:
        """Return the rows of a file with sample data."""
        file = self.folder / "sample" / f"{topic}.csv"
        with file.open(encoding="utf-8", newline="") as lines:
            return list(csv.DictReader(lines))


def export_turnover(project: Project, database: str) -> None:
    """Declare the sink of the bank to a database, whose section of the topic file is a comment."""
    file = project.folder / "topics.toml"
    before, comment, section = file.read_text().partition("# [export.turnover]")
    file.write_text(before + (comment + section).replace("# ", ""))
    project.env["BANK_DB"] = database
