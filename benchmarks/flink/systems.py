"""The two systems under test, each started with its own commands as a user would."""

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from string import Template
from typing import ClassVar

import httpx
from tenacity import RetryError, Retrying, retry_if_not_result, stop_after_delay, wait_fixed

from benchmarks.flink.commits import DeltaLog, Log, PaimonLog
from benchmarks.flink.processes import Processes, folder_bytes
from lake.settings.settings import LakeSettings
from lakehouse.runtime.aot import TRUST_JARS
from lakehouse.runtime.jars import fetch_jars
from lakehouse.runtime.java import find_java
from lakehouse.runtime.ports import free_port
from lakehouse.runtime.terminal import jar_progress

HERE = Path(__file__).parent
START_SECONDS = 120
CHECKPOINTS = "5 s"

# The same as in Flink's own configuration for Java 17.
OPENS = (
    *("java.lang", "java.lang.reflect", "java.net", "java.io", "java.nio", "sun.nio.ch"),
    *("java.text", "java.time", "java.util", "java.util.concurrent"),
    *("java.util.concurrent.atomic", "java.util.concurrent.locks"),
)

# Options of all topics. By default, Flink holds messages back for up to 10 s, or until a partition
# has 100 of them.
PULSAR = """'service-url' = '{url}',
  'source.start.message-id' = 'earliest',
  'pulsar.source.maxFetchTime' = '100',
  'pulsar.source.maxFetchRecords' = '1000',
  'pulsar.consumer.receiverQueueSize' = '5000'"""


class System(ABC):
    """A system under test, with its own topics and its own folder."""

    name: ClassVar[str]
    kills: ClassVar[tuple[str, ...]]
    paces: ClassVar[tuple[str, ...]] = ()  # further intervals between batches to measure

    def __init__(self, settings: LakeSettings) -> None:
        self.settings = settings
        self.processes = Processes(settings.home_dir / "logs")

    @abstractmethod
    def start(self) -> None:
        """Start the system, and wait until it reports that it is running."""

    @abstractmethod
    def kill(self, what: str) -> None:
        """Kill one of `kills` with SIGKILL."""

    @abstractmethod
    def restart(self, what: str) -> None:
        """Restart what was killed, as a supervisor would."""

    def pace(self, trigger: str) -> None:
        """Restart the system with one of `paces`."""
        raise NotImplementedError

    @abstractmethod
    def log(self) -> Log:
        """The commits of the result table, from the first one on."""

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """Bytes on disk by purpose."""


class Lakehouse(System):
    """The lakehouse as `lakehouse up`: one driver that lands, refines and answers SQL."""

    name = "lakehouse"
    kills = ("everything",)
    paces = ("3 seconds",)

    def __init__(self, settings: LakeSettings) -> None:
        super().__init__(settings)
        self.trigger = settings.trigger

    def start(self) -> None:
        env = {
            "LAKEHOUSE_HOME": str(self.settings.home_dir),
            "LAKEHOUSE_PULSAR_URL": self.settings.pulsar_url,
            "LAKEHOUSE_PULSAR_ADMIN_URL": self.settings.pulsar_admin_url,
            "LAKEHOUSE_PULSAR_NAMESPACE": self.settings.pulsar_namespace,
            "LAKEHOUSE_SQL_PORT": str(free_port()),
            "LAKEHOUSE_TRIGGER": self.trigger,
        }
        command = [str(Path(sys.executable).with_name("lakehouse")), "up"]
        log = self.processes.logs / "driver.log"
        before = log.read_text().count("Running.") if log.exists() else 0
        self.processes.start("driver", command, env)
        until(lambda: log.read_text().count("Running.") > before, "lakehouse up runs")

    def kill(self, what: str) -> None:
        self.processes.kill("driver")

    def restart(self, what: str) -> None:
        self.start()

    def pace(self, trigger: str) -> None:
        self.processes.stop()
        self.trigger = trigger
        self.start()

    def log(self) -> Log:
        return DeltaLog(Path(self.settings.table_path("silver", "enriched_orders")))

    def sizes(self) -> dict[str, int]:
        lake = self.settings.lake_dir
        result = folder_bytes(lake / "silver" / "enriched_orders")
        bronze = folder_bytes(lake / "bronze")
        return {
            "result": result,
            "state, checkpoints": folder_bytes(lake) - result - bronze,
            "raw messages": bronze,
        }


class Flink(System):
    """Flink with a job manager and one worker that runs the SQL job, on loopback."""

    name = "Flink"
    kills = ("worker", "everything")

    def __init__(self, settings: LakeSettings) -> None:
        super().__init__(settings)
        with jar_progress("Fetching jars for Flink") as progress:
            self.jars = fetch_jars(settings, "flink", progress, HERE / "jars.lock")
        self.home = settings.home_dir
        self.rest_port = free_port()
        self.checkpoints = self.home / "checkpoints"
        self.warehouse = self.home / "warehouse"

    def start(self) -> None:
        conf = self.home / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        names = {"home": self.home, "rest_port": self.rest_port, "rpc_port": free_port()}
        template = Template((HERE / "flink-conf.yaml").read_text())
        (conf / "flink-conf.yaml").write_text(template.substitute(names, checkpoints=CHECKPOINTS))
        self._java(
            "job-manager",
            "-Xmx1g",
            "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint",
            *("--configDir", str(conf), "--executionMode", "cluster"),
        )
        self._start_worker()
        until(
            lambda: self._get("/taskmanagers").get("taskmanagers"), "Flink's worker is registered"
        )
        self._submit()
        until(self._is_running, "Flink's job is running")

    def kill(self, what: str) -> None:
        self.processes.kill("worker", *(["job-manager"] if what == "everything" else []))

    def restart(self, what: str) -> None:
        if what == "everything":
            self.start()
        else:
            self._start_worker()

    def log(self) -> Log:
        return PaimonLog(self.warehouse / "default.db" / "enriched_orders")

    def sizes(self) -> dict[str, int]:
        state = folder_bytes(self.checkpoints) + folder_bytes(self.home / "rocksdb")
        return {"result": folder_bytes(self.warehouse), "state, checkpoints": state}

    def job(self) -> str:
        """The SQL of the job, which starts from the last checkpoint if there is one."""
        names = {
            "warehouse": f"file://{self.warehouse}",
            "namespace": self.settings.pulsar_namespace,
            "pulsar": PULSAR.format(url=self.settings.pulsar_url),
        }
        job = Template((HERE / "job.sql").read_text()).substitute(names)
        found = sorted(self.checkpoints.glob("*/chk-*/_metadata"), key=lambda f: f.stat().st_mtime)
        begin = f"SET 'execution.savepoint.path' = 'file://{found[-1].parent}';\n" if found else ""
        return begin + job

    def _start_worker(self) -> None:
        self._java(
            "worker",
            *("-Xmx1536m", "-XX:MaxDirectMemorySize=512m", "-XX:MaxMetaspaceSize=256m"),
            "org.apache.flink.runtime.taskexecutor.TaskManagerRunner",
            *("--configDir", str(self.home / "conf")),
        )

    def _submit(self) -> None:
        script = self.home / "conf" / "job.sql"
        script.write_text(self.job())
        main = "org.apache.flink.table.client.SqlClient"
        self._java("client", "-Xmx512m", main, "embedded", "-f", str(script))
        self.processes.finish("client", START_SECONDS)

    def _java(self, name: str, *arguments: str) -> None:
        opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENS]
        command = [
            *(str(find_java()), *TRUST_JARS, *opens),
            *("--add-exports=java.base/sun.net.util=ALL-UNNAMED", "-cp", f"{self.jars}/*"),
            f"-Dlog4j2.configurationFile={HERE / 'log4j.properties'}",
            *arguments,
        ]
        self.processes.start(name, command, {"FLINK_CONF_DIR": str(self.home / "conf")})

    def _is_running(self) -> bool:
        """Whether all tasks of the job are running. A job that failed to start is not listed."""
        jobs = self._get("/jobs/overview").get("jobs", [])
        return any(each["tasks"]["running"] == each["tasks"]["total"] for each in jobs)

    def _get(self, path: str) -> dict[str, list[dict[str, dict[str, int]]]]:
        try:
            answer = httpx.get(f"http://127.0.0.1:{self.rest_port}{path}", timeout=5)
            return dict(json.loads(answer.text))
        except (httpx.HTTPError, ValueError):
            return {}


def until(done: Callable[[], object], what: str) -> None:
    """Wait until a condition holds.

    Args:
        done: the condition.
        what: what it means, for the error.

    Raises:
        TimeoutError: the condition did not hold within `START_SECONDS`.
    """
    try:
        Retrying(
            retry=retry_if_not_result(bool),
            stop=stop_after_delay(START_SECONDS),
            wait=wait_fixed(0.2),
        )(done)
    except RetryError as error:
        message = f"Not within {START_SECONDS} s: {what}. See its log."
        raise TimeoutError(message) from error
