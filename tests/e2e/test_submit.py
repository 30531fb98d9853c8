"""Tests `bronze` and `silver` as spark-submit jobs on a standalone cluster.

The master, two workers, each job's driver and executors, and the broker are separate processes.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pyarrow as pa
import pyspark
import pytest
from deltalake import DeltaTable
from live_shop import until
from s3_server import SECRET
from wheels import built

from lake.settings.settings import SHOP_TOPICS, LakeSettings, load_settings
from lake.streams.checkpoint import claim, newest_batch
from lake.tables.lake import Lake
from lake.tables.storage import open_table
from lake.topics.topic_file import load_topics
from lakehouse.messages.publish import create_topics, publish
from lakehouse.runtime.broker import Broker
from lakehouse.runtime.jars import fetch_jars
from lakehouse.runtime.java import prepare_spark
from lakehouse.runtime.ports import free_port
from shop.generate import Counts, generate_shop

ROOT = Path(__file__).parents[2]
CONF = ROOT / "lakehouse" / "runtime" / "conf"
SPARK = Path(pyspark.__file__).parent / "bin"
WORKERS = 2

pytestmark = pytest.mark.nightly


@dataclass(frozen=True)
class Cluster:
    """A standalone cluster and the arguments for jobs on it."""

    master: str
    folder: Path
    jars: str

    @contextlib.contextmanager
    def running(
        self, settings: LakeSettings, layer: str, *options: str, job: Sequence[str] = ()
    ) -> Iterator[subprocess.Popen[str]]:
        """Run a layer as a job, and kill it at the end if it is still running.

        Its Python code comes from a wheel, Spark's configuration from the file, and its settings
        from the environment. If the topic file is that of a project, the job runs in its folder,
        and learns of the topic file there.
        """
        settings.home.mkdir(parents=True, exist_ok=True)
        folder = settings.topics.parent
        is_project = (folder / "lakehouse.toml").exists()
        with subprocess.Popen(
            [
                SPARK / "spark-submit",
                *("--master", self.master),
                *("--conf", "spark.executor.memory=1g", "--conf", "spark.executor.cores=1"),
                *("--properties-file", CONF / "spark-defaults.conf"),
                *options,
                self.folder / f"job_{layer}.py",
                *job,
            ],
            env={
                **os.environ,
                "PYSPARK_PYTHON": sys.executable,
                "LAKEHOUSE_HOME": str(settings.home),
                "LAKEHOUSE_LAKE": settings.tables,
                **({} if is_project else {"LAKEHOUSE_TOPICS": str(settings.topics)}),
                **({"LAKEHOUSE_S3_ENDPOINT": settings.s3_endpoint} if settings.s3_endpoint else {}),
                "LAKEHOUSE_PULSAR_URL": settings.pulsar_url,
                "LAKEHOUSE_PULSAR_ADMIN_URL": settings.pulsar_admin_url,
                "LAKEHOUSE_PULSAR_NAMESPACE": settings.pulsar_namespace,
                "LAKEHOUSE_STOP_SECONDS": "120",  # a batch is slow on a slow machine
            },
            cwd=folder if is_project else settings.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # spark-submit mixes the two outputs of Python
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def submit(self, settings: LakeSettings, layer: str, *options: str) -> str:
        """Run a layer until it has caught up, and return its output and exit code."""
        with self.running(settings, layer, *options, job=["--available-now"]) as process:
            return ending(process)

    def running_executors(self) -> list[psutil.Process]:
        """Return the Java processes started by the workers."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if (self.folder / "work") in Path(
                    process.cwd()
                ).parents and process.name() == "java":
                    found.append(process)
        return found

    def executors(self) -> list[set[str]]:
        """Return the files that each executor of all jobs received."""
        folders = self.folder.glob("work/*/*")
        return [{file.name for file in folder.iterdir()} for folder in folders]


def ending(process: subprocess.Popen[str]) -> str:
    """Wait for a job to end, and return its output and exit code."""
    said, _ = process.communicate()
    return f"{said}\nexit code {process.returncode}"


@pytest.fixture(scope="module")
def cluster(
    suite_settings: LakeSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with pytest.MonkeyPatch.context() as patched:
        for name in ("JAVA_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_IP"):
            patched.setenv(name, os.environ.get(name, ""))  # restored afterwards
        if not os.environ["JAVA_HOME"]:
            patched.delenv("JAVA_HOME")
        prepare_spark(load_settings())
        for layer in ("bronze", "silver"):
            job = (ROOT / layer / "__main__.py").read_text()
            (folder / f"job_{layer}.py").write_text(job)
        jars = ",".join(str(jar) for jar in fetch_jars(suite_settings, "spark").glob("*.jar"))
        port, page = str(free_port()), free_port()
        here = ("--host", "127.0.0.1", "--webui-port")
        with contextlib.ExitStack() as stack:
            stack.enter_context(running(folder, "master.Master", "--port", port, *here, str(page)))
            master = f"spark://127.0.0.1:{port}"
            for _ in range(WORKERS):
                size = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work"))
                stack.enter_context(running(folder, "worker.Worker", *size, *here, "0", master))
            until(lambda: workers(page) == WORKERS, "the workers of the cluster")
            yield Cluster(master, folder, jars)


@contextlib.contextmanager
def running(folder: Path, name: str, *arguments: str) -> Iterator[None]:
    command = [SPARK / "spark-class", f"org.apache.spark.deploy.{name}", *arguments]
    with (
        (folder / "cluster.log").open("a") as log,
        subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as process,
    ):
        try:
            yield
        finally:
            process.terminate()


def workers(page: int) -> int:
    """Return the master's number of live workers; it serves HTML before it serves JSON."""
    with contextlib.suppress(httpx.HTTPError, ValueError):
        answer = httpx.get(f"http://127.0.0.1:{page}/json/").raise_for_status()
        return int(answer.json()["aliveworkers"])
    return 0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


def version(settings: LakeSettings, name: str) -> int:
    """Return the version of a silver table, 0 before it has rows."""
    path = settings.table_path("silver", name)
    return DeltaTable(path).version() if DeltaTable.is_deltatable(path) else 0


def published(settings: LakeSettings, folder: Path) -> Counts:
    """Publish a small shop to the topics, and return the counts of its rows."""
    topics = load_topics(settings.topics)
    counts = generate_shop(folder, scale=0.001)
    create_topics(Lake(settings, topics))
    publish(Lake(settings, topics), folder)
    return counts


def with_a_function(folder: Path) -> Path:
    """Write a project with the shop's topics and a function, whose file is not sent with the jobs.

    Returns:
        The topic file.
    """
    called = '{ type = "string", personal = "mask", function = "provider", of = ["emailAddress"] }'
    text = SHOP_TOPICS.read_text().replace(
        "[topics.users.fields]", f"[topics.users.fields]\nprovider = {called}"
    )
    (folder / "own").mkdir(parents=True)
    (folder / "own" / "mail.py").write_text(
        "def provider(mail):\n    return mail.rpartition('@')[2]\n"
    )
    (folder / "topics.toml").write_text(
        f'{text}\n[functions.provider]\npython = "own.mail:provider"\n'
    )
    (folder / "lakehouse.toml").write_text('topics = "topics.toml"\n')
    return folder / "topics.toml"


def test_the_layers_run_on_a_cluster_and_finish_their_batch_when_told_to_stop(
    broker: Broker, settings: LakeSettings, cluster: Cluster, wheel: Path, tmp_path: Path
) -> None:
    settings = settings.model_copy(update={"topics": with_a_function(tmp_path / "project")})
    counts = published(settings, tmp_path / "shop")
    options = ("--jars", cluster.jars, "--py-files", str(wheel))
    with cluster.running(settings, "bronze", *options, job=["--available-now"]) as bronze:
        until(lambda: len(cluster.running_executors()) == WORKERS, "the executors")
        cluster.running_executors()[0].kill()
        said = ending(bronze)
    assert said.endswith("exit code 0"), said[-3000:]
    for topic, count in vars(counts).items():
        assert DeltaTable(settings.table_path("bronze", topic)).count() == count, topic
    with cluster.running(settings, "silver", *options) as silver:
        until(lambda: version(settings, "users_state") > 0, "the first table that a batch changes")
        silver.send_signal(signal.SIGTERM)  # to Java, within the batch
        said = ending(silver)
    assert said.endswith("exit code 0"), said[-3000:]
    assert "stopping after the current batches" in said
    checkpoint = claim(settings, "silver")
    assert checkpoint.unfinished is None
    checkpoint.release()
    assert newest_batch(settings, "silver") == 0
    enriched = DeltaTable(settings.table_path("silver", "enriched_orders"))
    assert enriched.to_pyarrow_table().num_rows == counts.orders
    state = DeltaTable(settings.table_path("silver", "users_state"))
    users = pa.table(state.scan(columns=["email_address", "provider"])).to_pylist()
    assert len(users) == counts.users
    assert all(row["provider"] == row["email_address"].split("@")[-1] for row in users)
    executors = cluster.executors()
    assert len(executors) > 2 * WORKERS, "another executor replaces the killed one"
    have_wheel = sum(wheel.name in files for files in executors)
    assert have_wheel >= 2 * WORKERS, "only the killed executor may lack the wheel"


def test_the_layers_run_on_a_cluster_with_their_tables_in_a_bucket(
    broker: Broker, bucket: LakeSettings, cluster: Cluster, wheel: Path, tmp_path: Path
) -> None:
    counts = published(bucket, tmp_path / "shop")
    jars = [cluster.jars, *map(str, fetch_jars(bucket, "s3").glob("*.jar"))]
    for layer in ("bronze", "silver"):
        said = cluster.submit(bucket, layer, "--jars", ",".join(jars), "--py-files", str(wheel))
        assert said.endswith("exit code 0"), said[-3000:]
        assert SECRET not in said
    enriched = open_table(bucket, bucket.table_path("silver", "enriched_orders"))
    assert enriched.count() == counts.orders
    assert not {*bucket.lake_dir.rglob("*.parquet")}, "no table files are on this machine"


def test_the_error_for_a_spark_without_delta_names_the_submit_options(
    broker: Broker, settings: LakeSettings, cluster: Cluster
) -> None:
    said = cluster.submit(settings, "bronze")
    assert said.endswith("exit code 2")
    assert "This Spark does not include Delta. Submit the job with `--packages io.delta:" in said
    assert "Traceback" not in said
