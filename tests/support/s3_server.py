"""A real S3 server for tests: Versity's gateway on a folder, built once from its Go module.

It supports conditional writes. Tests that need it skip if Go is missing or the build fails.
"""

import contextlib
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from live_shop import until

from lake.settings.settings import load_settings
from lake.tables.storage import s3_client
from lakehouse.runtime.ports import free_port

MODULE = "github.com/versity/versitygw"
VERSION = "v1.8.0"
CHECKSUM = "h1:au+wI+aybno/STsQiSm35Uu6Q6iK5MWReQxgO6SEMFc="  # of the module, as in go.sum
BUCKET = "lake"
KEEPING = "keeping"
KEY = "lakehouse-tests"
SECRET = f"canary{secrets.token_hex(16)}"
ADDRESS = f"http://127.0.0.1:{free_port()}"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_EC2_METADATA_DISABLED": "true",
}


@dataclass(frozen=True)
class S3Server:
    """A running server.

    folder: holds the objects of the bucket. objects: holds the objects of all buckets, including
    old versions.
    """

    address: str
    folder: Path
    objects: Path


def program() -> Path:
    """Return the path of the server's program, and build it if it is missing."""
    built = load_settings().cache_dir / f"versitygw-{VERSION}"
    if not built.exists():
        go = shutil.which("go")
        if go is None:
            pytest.skip("Go (Debian package golang), which builds the S3 server, is not installed")
        folder = built.with_name(f".{built.name}-{os.getpid()}")
        done = subprocess.run(
            [go, "install", "-ldflags=-s -w", f"{MODULE}/cmd/versitygw@{VERSION}"],
            env={**os.environ, "GOBIN": str(folder), "CGO_ENABLED": "0", "GOFLAGS": ""},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"the S3 server cannot be built: {done.stderr[-300:]}")
        said = subprocess.run(
            [go, "version", "-m", folder / "versitygw"], capture_output=True, text=True, check=True
        )
        assert CHECKSUM in said.stdout, "the S3 server is not the pinned version"
        (folder / "versitygw").replace(built)
        folder.rmdir()
    return built


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[S3Server]:
    """Run the server with two empty buckets, one of them to keep old versions."""
    objects = folder / "objects"
    for path in (objects / "now" / BUCKET, objects / "now" / KEEPING, objects / "old"):
        path.mkdir(parents=True)
    environment = {**os.environ, "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
    port = ADDRESS.rpartition(":")[2]
    command = [program(), "--quiet", "--port", f"127.0.0.1:{port}", "posix"]
    command += ["--versioning-dir", objects / "old", objects / "now"]
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            until(_answers, "the S3 server", seconds=60)
            yield S3Server(ADDRESS, objects / "now" / BUCKET, objects)
        finally:
            server.terminate()
            server.wait()
            s3_client.cache_clear()


def _answers() -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(ADDRESS).status_code == httpx.codes.FORBIDDEN
    return False
