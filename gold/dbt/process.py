"""The processes and the environment of dbt."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gold.dbt.project import DbtProject
from gold.sql_client import ANY_PASSWORD, client_environment, credentials
from lake.settings.environment import plain_environment
from lake.settings.settings import LakeSettings
from lake.topics.topic_file import load_topics

MOST_RUNS = 100  # of one process, because dbt is made for one run


class DbtProcess:
    """A process that has loaded dbt, and runs it when asked to."""

    def __init__(self, folder: Path, environment: Mapping[str, str], log: Path) -> None:
        """Start the process in the folder of a dbt project. It writes what dbt says to a log."""
        self.made_of = folder, dict(environment), log
        self.runs = 0
        answers, theirs = os.pipe()
        self._answers = open(answers)  # noqa: SIM115 - a descriptor; `close` closes it
        try:
            with log.open("a") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "gold.dbt", "--wait", str(theirs)],
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=(theirs,),
                    text=True,
                )
        finally:
            os.close(theirs)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def can_run(self) -> bool:
        """Whether it can run dbt again."""
        return self.runs < MOST_RUNS and self._process.poll() is None

    def run(self, arguments: Sequence[str], variables: Mapping[str, str]) -> int:
        """Run dbt with some arguments and further variables of its environment.

        Returns:
            dbt's exit code, or that of the process if it has ended; 0 means success.
        """
        if self.runs == 0 and not self._answers.readline():  # dbt cannot be loaded: see its log
            return self._process.wait() or 1
        self.runs += 1
        os.truncate(self.made_of[2], 0)  # the log is that of the last run
        asked = self._process.stdin
        if asked is None:
            message = "the process has no standard input"
            raise RuntimeError(message)
        with contextlib.suppress(BrokenPipeError):
            asked.write(json.dumps([list(arguments), dict(variables)]) + "\n")
            asked.flush()
        answer = self._answers.readline()
        return int(answer) if answer else self._process.wait() or 1

    def close(self) -> None:
        """End the process, if it is not running dbt at the moment, and wait for its end."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()
        self._answers.close()


class WarmDbt:
    """Keeps a process that has loaded dbt from one build to the next. `close` ends the process."""

    def __init__(self) -> None:
        self._process: DbtProcess | None = None

    def process(self, folder: Path, environment: Mapping[str, str], log: Path) -> DbtProcess:
        """The process, or a new one if it has ended or was started for something else."""
        kept = self._process
        if kept and kept.can_run and kept.made_of == (folder, dict(environment), log):
            return kept
        self.close()
        self._process = DbtProcess(folder, environment, log)
        return self._process

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.close()
            self._process = None


def target_path(settings: LakeSettings) -> Path:
    """The folder with the artifacts of dbt's last build: `manifest.json`, `run_results.json`."""
    return settings.home_dir / "dbt"


def run_dbt(
    settings: LakeSettings, target: Path, command: Sequence[str], schema: str
) -> tuple[int, Path]:
    """Run dbt in the project of the lake.

    Args:
        settings: the lake. Commands that need SQL use its endpoint.
        target: folder for `manifest.json` and dbt's other artifacts. The log is named after it.
        command: arguments such as `["docs", "generate"]`.
        schema: the schema to build in.

    Returns:
        The exit code, and the path of the log.

    Raises:
        SettingsError: the lake has no dbt project.
    """
    log = settings.home_dir / "logs" / f"{target.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        ended = subprocess.run(
            [sys.executable, "-m", "gold.dbt", "--no-version-check", *command],
            cwd=DbtProject.of(settings).folder,
            env=dbt_environment(settings, target, schema),
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    return ended.returncode, log


def dbt_environment(settings: LakeSettings, target: Path, schema: str) -> dict[str, str]:
    """The environment of dbt, which builds in `schema` and writes its artifacts into `target`.

    dbt also gets the variables that any program needs, and those that begin with `DBT_`, the prefix
    of dbt's own variables and of a project's. Of our secrets, it gets only the password of the SQL
    endpoint. The password is a variable, because all users of a machine can see arguments. The
    variable has the prefix that dbt keeps out of its logs and artifacts.
    """
    _, password = credentials(settings)
    secret = {"DBT_ENV_SECRET_LAKEHOUSE_SQL_PASSWORD": password}
    return {
        **plain_environment("DBT_"),
        **(secret if password != ANY_PASSWORD else {}),  # dbt would mask this word everywhere
        **client_environment(settings),
        "LAKEHOUSE_DBT_SCHEMA": schema,
        "LAKEHOUSE_DECLARED_TOPICS": " ".join(load_topics(settings.topics).topics),
        "DBT_TARGET_PATH": str(target),
        "DBT_LOG_PATH": str(settings.home_dir / "logs" / "dbt"),
        **DbtProject.of(settings).environment,
    }
