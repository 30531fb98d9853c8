"""The environment of dbt, and runs of dbt other than builds of gold."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from gold.dbt.project import DbtProject
from gold.sql_client import ANY_PASSWORD, TRUST_ENV, credentials
from lake.settings.environment import plain_environment
from lake.settings.settings import LakeSettings
from lake.topics.topic_file import load_topics


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
    user, password = credentials(settings)
    trust = settings.sql_tls_trust_certs_file
    secret = {"DBT_ENV_SECRET_LAKEHOUSE_SQL_PASSWORD": password}
    return {
        **plain_environment("DBT_"),
        **(secret if password != ANY_PASSWORD else {}),  # dbt would mask this word everywhere
        **({TRUST_ENV: str(trust.expanduser().resolve())} if trust else {}),
        "LAKEHOUSE_SQL_HOST": settings.sql_host,
        "LAKEHOUSE_SQL_PORT": str(settings.sql_port),
        "LAKEHOUSE_SQL_TLS": str(settings.sql_tls).lower(),
        "LAKEHOUSE_SQL_USER": user,
        "LAKEHOUSE_DBT_SCHEMA": schema,
        "LAKEHOUSE_DECLARED_TOPICS": " ".join(load_topics(settings.topics).topics),
        "DBT_TARGET_PATH": str(target),
        "DBT_LOG_PATH": str(settings.home_dir / "logs" / "dbt"),
        **DbtProject.of(settings).environment,
    }
