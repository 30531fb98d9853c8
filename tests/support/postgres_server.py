"""A PostgreSQL server of its own, for tests of sinks and of the metastore."""

import os
import secrets
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import chown, rmtree, which
from tempfile import mkdtemp
from typing import Any

import psycopg
import pytest

from lakehouse.runtime.ports import free_port

PASSWORD = f"canary-{secrets.token_urlsafe(12)}"
USER = "keeper"


def programs() -> Path | None:
    """Return the folder of the server's programs; None if it is not installed."""
    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    found = packaged[-1] if packaged else which("initdb")
    return Path(found).resolve().parent if found else None


def owner() -> str | None:
    """Return the user that runs the server, which does not run as root; None for our own."""
    if os.geteuid() != 0:
        return None
    return "postgres" if "\npostgres:" in f"\n{Path('/etc/passwd').read_text()}" else "nobody"


class PostgresServer:
    """A running server on a port of its own. Its user has a password."""

    def __init__(self, folder: Path, port: int, user: str = USER) -> None:
        self.folder, self.port, self.user = folder, port, user

    def address(self, database: str = "postgres") -> str:
        """Return the address of a database, with the password."""
        return f"postgresql://{self.user}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def create_database(self) -> str:
        """Create an empty database and return its address."""
        name = f"db_{uuid.uuid4().hex}"
        with psycopg.connect(self.address(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.address(name)

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -F"
        # The server keeps what it inherits open.
        self._control("-l", self.folder / "log", "-o", options, "start", quiet=True)

    def stop(self, mode: str = "immediate") -> None:
        """Stop the server: `immediate` is like a crash."""
        self._control("-m", mode, "stop")

    def _control(self, *arguments: Any, quiet: bool = False) -> None:
        place = programs()
        assert place is not None
        command = [place / "pg_ctl", "-D", self.folder / "data", "-w", *arguments]
        if quiet:
            who = {"user": owner()} if owner() else {}
            null = subprocess.DEVNULL
            subprocess.run(command, check=True, cwd=self.folder, stdout=null, stderr=null, **who)
        else:
            run(*command, cwd=self.folder, user=owner())


def run(*command: Any, user: str | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program, which must succeed and not print the password."""
    who = {"user": user} if user else {}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, **{**options, **who}
    )
    assert PASSWORD not in done.stdout + done.stderr
    assert done.returncode == 0, done.stderr
    return done


@contextmanager
def serving(user: str = USER) -> Iterator[PostgresServer]:
    """Run a server in a temporary folder. Skips the test if PostgreSQL is not installed."""
    place = programs()
    if place is None:
        pytest.skip("PostgreSQL is not installed (Debian package postgresql)")
    folder = Path(mkdtemp(prefix="postgres"))
    secret = folder / "password"
    secret.write_text(PASSWORD)
    if owner():
        for each in (folder, secret):
            chown(each, owner())
    login = [f"--username={user}", f"--pwfile={secret}", "--auth=scram-sha-256"]
    form = ["--encoding=UTF8", "--locale=C.UTF-8"]
    run(
        *(place / "initdb", "-D", folder / "data", "--no-sync", *login, *form),
        cwd=folder,
        user=owner(),
    )
    server = PostgresServer(folder, free_port(), user)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        rmtree(folder)
