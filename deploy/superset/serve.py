"""Serves the shop's dashboard in Apache Superset, which reads the SQL endpoint of `lakehouse up`.

`make superset` installs Superset in its own environment, because it needs other versions of the
lakehouse's dependencies, and then runs this script. The state is in `<home>/superset`: a SQLite
database, the session key and the password of `admin`. It is created if it does not exist; delete it
to start over. To use your own Superset, zip the folder `dashboard` and import it with
`superset import-dashboards`.

Superset reads as the user of the settings, who should be a reader if the endpoint has roles.
"""

import os
import secrets
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Annotated

import typer

from gold.sql_client import client_environment, endpoint_running
from lake.settings.environment import plain_environment
from lake.settings.settings import LakeSettings, load_settings
from lake.streams.command import exit_with
from lakehouse.runtime.ports import require_free_port
from lakehouse.runtime.terminal import err, step
from pulsar_spark.errors import LakehouseError

EXPORT = Path(__file__).with_name("dashboard")
CONFIGURATION = Path(__file__).with_name("superset_config.py")
SLUG = "orders-lakehouse"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class SupersetError(LakehouseError):
    """Superset has no SQL endpoint that it can read, or one of its commands failed."""


@app.command()
def serve(
    environment: Annotated[Path, typer.Argument(help="Virtual environment with Superset.")],
    port: Annotated[int, typer.Option(help="Port to listen on, on the loopback address.")] = 8088,
) -> None:
    """Serve the dashboard until Ctrl-C."""
    settings = load_settings()
    if not endpoint_running(settings):
        message = (
            f"No SQL endpoint answers at {settings.sql_host}:{settings.sql_port}, so the dashboard "
            "has nothing to show. Start one with `lakehouse up`."
        )
        raise SupersetError(message)
    require_free_port(port, "--port")
    bin_folder, state = environment.resolve() / "bin", settings.home_dir / "superset"
    if not (state / "password").exists():
        shutil.rmtree(state, ignore_errors=True)
        _set_up(bin_folder, state)
    err.print(
        f"Dashboard: [bold]http://127.0.0.1:{port}/superset/dashboard/{SLUG}/[/bold]  "
        f"user admin, password in {state / 'password'}",
        soft_wrap=True,
    )
    gunicorn = bin_folder / "gunicorn"
    listen = ["--bind", f"127.0.0.1:{port}", "--threads", "8", "--no-control-socket"]
    patience = ["--timeout", "120", "--graceful-timeout", "5"]  # slow to load, quick to stop
    command = [str(gunicorn), *listen, *patience, "superset.app:create_app()"]
    own = {**_environment(state), **client_environment(settings), **_password(settings)}
    os.execve(gunicorn, command, own)  # noqa: S606 - no shell is wanted


def _set_up(bin_folder: Path, state: Path) -> None:
    """Create Superset's database, its user and the dashboard.

    The password file is written last. It shows that the setup is complete.

    Raises:
        SupersetError: a command failed.
    """
    state.mkdir(parents=True)
    _write_secret(state / "secret_key", secrets.token_urlsafe(48))
    password = secrets.token_urlsafe(12)
    bundle = state / "dashboard.zip"
    _zip(bundle)
    user = ["--username", "admin", "--firstname", "Shop", "--lastname", "Admin"]
    for what, command in {
        "Creating Superset's database": ["db", "upgrade"],
        "Creating the user admin": ["fab", "create-admin", *user, "--email", "admin@localhost"],
        "Creating Superset's roles": ["init"],
        "Importing the dashboard": ["import-dashboards", "-p", str(bundle), "-u", "admin"],
    }.items():
        with step(what):
            done = subprocess.run(
                [bin_folder / "superset", *command],
                env={**_environment(state), "FLASK_FAB_CREATE_ADMIN_PASSWORD": password},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
        if done.returncode:
            message = f"`superset {command[0]}` failed:\n{done.stdout[-2000:]}"
            raise SupersetError(message)
    _write_secret(state / "password", password)


def _environment(state: Path) -> dict[str, str]:
    return {
        **plain_environment("SUPERSET_"),
        "FLASK_APP": "superset",
        "SUPERSET_HOME": str(state),
        "SUPERSET_CONFIG_PATH": str(CONFIGURATION),
        "SUPERSET_SECRET_KEY": (state / "secret_key").read_text(),
    }


def _password(settings: LakeSettings) -> dict[str, str]:
    """The variable with the password, or with its file, of which a new content is used at once."""
    if settings.sql_password_file:
        file = settings.sql_password_file.expanduser().resolve()
        return {"LAKEHOUSE_SQL_PASSWORD_FILE": str(file)}
    if settings.sql_password:
        return {"LAKEHOUSE_SQL_PASSWORD": settings.sql_password.get_secret_value()}
    return {}


def _zip(bundle: Path) -> None:
    """Zip the dashboard's files for Superset."""
    with zipfile.ZipFile(bundle, "w") as archive:
        for file in sorted(EXPORT.rglob("*.yaml")):
            archive.write(file, str(file.relative_to(EXPORT.parent)))


def _write_secret(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


if __name__ == "__main__":
    exit_with(app)
