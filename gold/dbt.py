"""The dbt project, what dbt is told, and its runs beside those that build gold."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from gold.sql_client import ANY_PASSWORD, TRUST_ENV, credentials
from lake.settings.environment import plain_environment
from lake.settings.settings import LakeSettings
from lake.topics.topic_file import load_topics

PROJECT = Path(__file__).resolve().parents[1] / "dbt_project"


def run_dbt(
    settings: LakeSettings, target: Path, command: Sequence[str], schema: str
) -> tuple[int, Path]:
    """Run dbt in the project; returns its exit code, and the log of what it said.

    Args:
        settings: the lake; what needs SQL asks the endpoint.
        target: folder for `manifest.json` and what else it writes; the log is named after it.
        command: arguments such as `["docs", "generate"]`.
        schema: where it builds.
    """
    log = settings.home_dir / "logs" / f"{target.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        ended = subprocess.run(
            [sys.executable, "-m", "gold.dbt_client", "--no-version-check", *command],
            cwd=PROJECT,
            env=dbt_environment(settings, target, schema),
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    return ended.returncode, log


def dbt_environment(settings: LakeSettings, target: Path, schema: str) -> dict[str, str]:
    """The environment of dbt, which builds in `schema` and writes its artifacts into `target`.

    Beside that it gets what any program needs, and variables that begin with `DBT_`, as dbt calls
    its own and those of a project; so none of our secrets but the password of the SQL endpoint.
    That is a variable, as arguments are seen by all users of a machine, and has the prefix of what
    dbt keeps out of its logs and artifacts.
    """
    user, password = credentials(settings)
    trust = settings.sql_tls_trust_certs_file
    secret = {"DBT_ENV_SECRET_LAKEHOUSE_SQL_PASSWORD": password}
    return {
        **plain_environment("DBT_"),
        **(secret if password != ANY_PASSWORD else {}),  # dbt would mask each such word
        **({TRUST_ENV: str(trust.expanduser().resolve())} if trust else {}),
        "LAKEHOUSE_SQL_HOST": settings.sql_host,
        "LAKEHOUSE_SQL_PORT": str(settings.sql_port),
        "LAKEHOUSE_SQL_TLS": str(settings.sql_tls).lower(),
        "LAKEHOUSE_SQL_USER": user,
        "LAKEHOUSE_DBT_SCHEMA": schema,
        "LAKEHOUSE_DECLARED_TOPICS": " ".join(load_topics(settings.topics).topics),
        "DBT_TARGET_PATH": str(target),
        "DBT_LOG_PATH": str(settings.home_dir / "logs" / "dbt"),
        "DBT_PROFILES_DIR": str(PROJECT),
    }
