"""The embedded broker: a Pulsar standalone in a separate process that listens on loopback only."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

from tenacity import (
    RetryError,
    Retrying,
    retry_if_not_result,
    retry_if_result,
    stop_after_delay,
    wait_fixed,
)

from lake.durable import read_json, write_durably
from lake.settings.environment import plain_environment
from lake.settings.settings import LakeSettings
from lakehouse.runtime.aot import DUMP_SECONDS, aot_flags, cache_file, is_training
from lakehouse.runtime.jars import fetch_jars
from lakehouse.runtime.java import find_java
from lakehouse.runtime.ports import free_port, require_free_port
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.errors import BrokerError, SettingsError

TEMPLATE = Path(__file__).with_name("standalone.conf")
LOG_CONF = Path(__file__).with_name("broker-log4j2.properties")
START_SECONDS = 90
STOP_SECONDS = 20
PORT_OF = {
    "pulsar": "brokerServicePort",
    "pulsar+ssl": "brokerServicePortTls",
    "http": "webServicePort",
    "https": "webServicePortTls",
}
NOT_IN_A_URI = re.compile(r"""[\s"<>\\^`{|}%#?\[\]]""")
EXCEPTION = re.compile(r"(Caused by: )?[\w.$]+: ")  # starts a line; trace lines are indented
LOOPBACK = ("127.0.0.1", "localhost", "::1")

# The same as in Pulsar's own launch script.
OPENS = (
    "java.base/sun.net=ALL-UNNAMED",
    "java.base/java.lang=ALL-UNNAMED",
    "java.base/java.nio=ALL-UNNAMED",
    "java.base/java.util.zip=ALL-UNNAMED",
    "java.base/jdk.internal.misc=ALL-UNNAMED",
    "java.base/jdk.internal.platform=ALL-UNNAMED",
    "java.management/sun.management=ALL-UNNAMED",
    "jdk.management/com.sun.management.internal=ALL-UNNAMED",
)


FLAGS = (
    *("-Xms128m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m", "-XX:+UseSerialGC"),
    "-XX:TieredStopAtLevel=1",
)


@dataclass(frozen=True)
class Broker:
    """A running embedded broker; `record` is the file in the home folder that names its process."""

    pid: int
    record: Path

    def stop(self) -> None:
        """Ask the broker to stop, and kill it if it has not ended after `STOP_SECONDS`."""
        seconds = DUMP_SECONDS if is_training() else STOP_SECONDS
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
            if not _gone(self.pid, seconds):
                os.kill(self.pid, signal.SIGKILL)
                _gone(self.pid, STOP_SECONDS)
        self.record.unlink(missing_ok=True)


def is_local(settings: LakeSettings) -> bool:
    """Whether the settings name a broker on this machine, which may be the embedded one."""
    return all(
        urlsplit(url).hostname in LOOPBACK
        for url in (settings.pulsar_url, settings.pulsar_admin_url)
    )


def broker_answers(settings: LakeSettings) -> bool:
    """Whether a healthy broker, embedded or not, answers at the address in the settings."""
    with PulsarAdmin(settings.connection, timeout_seconds=5) as admin:
        return admin.is_healthy()


def require_broker(settings: LakeSettings) -> None:
    """Check that a broker answers at the configured address.

    Raises:
        BrokerError: none answers.
    """
    if not broker_answers(settings):
        message = (
            f"No Pulsar broker answers at {settings.pulsar_admin_url}. Start one with `lakehouse "
            "up`, or set LAKEHOUSE_PULSAR_URL and LAKEHOUSE_PULSAR_ADMIN_URL to your broker."
        )
        raise BrokerError(message)


def left_over_broker(settings: LakeSettings) -> Broker | None:
    """The embedded broker of this home if it is running, perhaps left over by a killed process."""
    record = _record(settings)
    stored = read_json(
        record, "If a broker is running in this folder, stop it. Then delete the file."
    )
    if stored is None:
        return None
    pid = int(stored["pid"])
    command = Path(f"/proc/{pid}/cmdline")
    alive = _alive(pid) and (not command.exists() or b"pulsar" in command.read_bytes())
    return Broker(pid, record) if alive else None


def start_broker(
    settings: LakeSettings,
    extra: Mapping[str, str] = MappingProxyType({}),
) -> Broker:
    """Start the embedded broker and wait until it is healthy.

    Args:
        settings: the addresses of the broker, and the home folder.
        extra: additional broker configuration, such as certificates.

    Raises:
        SettingsError: an address is not local or has no port, a port is in use, or the path of the
            home folder holds a character that Pulsar does not accept.
        BrokerError: the broker did not become healthy within `START_SECONDS`.
        JarError: a jar of the broker could not be fetched.
    """
    if not is_local(settings):
        message = (
            f"The settings name {settings.pulsar_url} and {settings.pulsar_admin_url}, but the "
            "embedded broker runs on this machine: use 127.0.0.1 in both, or start your own "
            "broker."
        )
        raise SettingsError(message)
    left = left_over_broker(settings)
    if left is not None:
        left.stop()
    ports = _free_ports(settings)
    home = settings.home_dir / "pulsar"
    if odd := NOT_IN_A_URI.search(str(home)):
        message = (
            f"The embedded broker cannot keep its data in {home}: Pulsar does not accept "
            f"{odd[0]!r} in a path. Set LAKEHOUSE_HOME to a folder without it; LAKEHOUSE_LAKE may "
            "stay where it is."
        )
        raise SettingsError(message)
    home.mkdir(parents=True, exist_ok=True)
    lines = [f"{name}={value}" for name, value in {**ports, **extra}.items()]
    (home / "standalone.conf").write_text("\n".join([TEMPLATE.read_text(), *lines, ""]))
    log = settings.home_dir / "logs" / "broker.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    jars = fetch_jars(settings, "pulsar")
    with log.open("w") as output:
        process = subprocess.Popen(
            _command(jars, home, aot_flags(broker_cache(settings))),
            env=plain_environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=home,
            start_new_session=True,  # Ctrl-C must not reach the broker, which we stop last
        )
    record = _record(settings)
    record.parent.mkdir(parents=True, exist_ok=True)
    write_durably(record, json.dumps({"pid": process.pid}))
    broker = Broker(process.pid, record)
    try:
        _wait_until_healthy(settings, process, log)
    except BaseException:
        broker.stop()
        raise
    return broker


def broker_cache(settings: LakeSettings) -> Path | None:
    """The ahead-of-time cache of the broker, as `cache_file`.

    Raises:
        JarError: a jar could not be fetched.
    """
    return cache_file(settings, "broker", [fetch_jars(settings, "pulsar")], FLAGS)


def _command(jars: Path, home: Path, aot: Iterable[str]) -> list[str]:
    opens = [argument for package in OPENS for argument in ("--add-opens", package)]
    return [
        str(find_java()),
        *(*FLAGS, *aot),
        *opens,
        "-Dio.netty.tryReflectionSetAccessible=true",
        f"-Dlog4j2.configurationFile={LOG_CONF}",
        *("-cp", f"{jars}/*"),
        "org.apache.pulsar.PulsarStandaloneStarter",
        *("--config", str(home / "standalone.conf")),
        *("--metadata-dir", str(home / "metadata"), "--bookkeeper-dir", str(home / "bookkeeper")),
        # Used at the first start only. The bookie then keeps its port, which its ledgers refer to.
        *("--bookkeeper-port", str(free_port())),
        *("--no-functions-worker", "--no-stream-storage", "-a", "127.0.0.1"),
    ]


def _free_ports(settings: LakeSettings) -> dict[str, str]:
    found = {"brokerServicePort": "", "webServicePort": ""}  # empty: not listening
    named = {"PULSAR_URL": settings.pulsar_url, "PULSAR_ADMIN_URL": settings.pulsar_admin_url}
    for name, url in named.items():
        parts = urlsplit(url)
        if parts.port is None:
            message = f"{url} has no port. Set LAKEHOUSE_{name} to a URL with a port."
            raise SettingsError(message)
        require_free_port(parts.port, f"LAKEHOUSE_{name}")
        found[PORT_OF[parts.scheme]] = str(parts.port)
    return found


def _wait_until_healthy(
    settings: LakeSettings, process: subprocess.Popen[bytes], log: Path
) -> None:
    def settled() -> bool:
        return process.poll() is not None or _is_ready(settings)

    with suppress(RetryError):
        Retrying(
            retry=retry_if_not_result(bool),
            stop=stop_after_delay(START_SECONDS),
            wait=wait_fixed(0.2),
        )(settled)
    if process.poll() is not None or not _is_ready(settings):
        message = f"The embedded broker did not start. Its log {log} says: {_last_error(log)}"
        raise BrokerError(message)


def _last_error(log: Path) -> str:
    """The last error in the log, and the exceptions listed below it."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [number for number, line in enumerate(lines) if " ERROR " in line]
    if not errors:
        return lines[-1] if lines else "(nothing)"
    first, *rest = lines[errors[-1] :]
    return "; ".join([first, *filter(EXCEPTION.match, rest)])


def _is_ready(settings: LakeSettings) -> bool:
    """Whether the broker is healthy and has the default namespace, which it creates a bit later."""
    with PulsarAdmin(settings.connection, timeout_seconds=5) as admin:
        return admin.is_healthy() and admin.has_namespace("public/default")


def _record(settings: LakeSettings) -> Path:
    return settings.home_dir / "run" / "broker.json"


def _alive(pid: int) -> bool:
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # a zombie child must not count as alive
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _gone(pid: int, seconds: int) -> bool:
    waiting = Retrying(
        retry=retry_if_result(bool),
        stop=stop_after_delay(seconds),
        wait=wait_fixed(0.1),
        retry_error_callback=lambda _: True,
    )
    return not waiting(lambda: _alive(pid))
