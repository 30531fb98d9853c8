"""`bronze` and `silver` as jobs of spark-submit on a standalone cluster: master and two workers,
each job's driver and executors, and the broker are processes of their own."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pyspark
import pytest
from deltalake import DeltaTable
from live_shop import until
from ports import free_port

from bronze.settings import LakeSettings, load_settings
from bronze.topics import load_topics
from lakehouse.broker import Broker
from lakehouse.generate import generate_shop
from lakehouse.jars import fetch_jars
from lakehouse.java import prepare_spark
from lakehouse.publish import create_topics, publish

ROOT = Path(__file__).parents[1]
SPARK = Path(pyspark.__file__).parent / "bin"
WORKERS = 2


@dataclass(frozen=True)
class Cluster:
    """A standalone cluster, and what a job on it is submitted with."""

    master: str
    folder: Path
    jars: str

    def submit(self, settings: LakeSettings, layer: str, *options: str) -> str:
        """Run a layer until it has caught up: its Python comes from a wheel, Spark's configuration
        from the file, settings from outside. Returns what it said and its exit code."""
        settings.home.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [
                SPARK / "spark-submit",
                *("--master", self.master),
                *("--conf", "spark.executor.memory=1g", "--conf", "spark.executor.cores=1"),
                *("--properties-file", ROOT / "lakehouse" / "conf" / "spark-defaults.conf"),
                *options,
                self.folder / f"job_{layer}.py",
                "--available-now",
            ],
            env={
                **os.environ,
                "PYSPARK_PYTHON": sys.executable,
                "LAKEHOUSE_HOME": str(settings.home),
                "LAKEHOUSE_PULSAR_URL": settings.pulsar_url,
                "LAKEHOUSE_PULSAR_ADMIN_URL": settings.pulsar_admin_url,
                "LAKEHOUSE_PULSAR_NAMESPACE": settings.pulsar_namespace,
            },
            cwd=settings.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # spark-submit mixes what Python writes to them
            text=True,
            check=False,
        )
        return f"{done.stdout}\nexit code {done.returncode}"

    def executors(self) -> list[set[str]]:
        """The files that came to the executors of all jobs."""
        folders = self.folder.glob("work/*/*")
        return [{file.name for file in folder.iterdir()} for folder in folders]


@pytest.fixture(scope="module")
def cluster(
    suite_settings: LakeSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with pytest.MonkeyPatch.context() as patched:
        for name in ("JAVA_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_IP"):
            patched.setenv(name, os.environ.get(name, ""))  # put back afterwards
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
    """How many the master has."""
    with contextlib.suppress(httpx.HTTPError):
        answer = httpx.get(f"http://127.0.0.1:{page}/json/").raise_for_status()
        return int(answer.json()["aliveworkers"])
    return 0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "build", "--quiet", "--wheel", "--out-dir", folder, ROOT], check=True)
    return next(folder.glob("*.whl"))


def test_the_layers_run_on_a_cluster(
    broker: Broker, settings: LakeSettings, cluster: Cluster, wheel: Path, tmp_path: Path
) -> None:
    topics = load_topics(settings.topics)
    counts = generate_shop(tmp_path / "shop", scale=0.001)
    create_topics(settings, topics)
    publish(settings, topics, tmp_path / "shop")
    for layer in ("bronze", "silver"):
        said = cluster.submit(settings, layer, "--jars", cluster.jars, "--py-files", str(wheel))
        assert said.endswith("exit code 0"), said[-3000:]
    enriched = DeltaTable(settings.table_path("silver", "enriched_orders"))
    assert enriched.to_pyarrow_table().num_rows == counts.orders
    executors = cluster.executors()
    assert len(executors) == 2 * WORKERS
    assert all(wheel.name in files for files in executors)


def test_a_spark_without_delta_is_told_what_to_submit_with(
    broker: Broker, settings: LakeSettings, cluster: Cluster
) -> None:
    said = cluster.submit(settings, "bronze")
    assert said.endswith("exit code 2")
    assert "This Spark has no Delta. Submit the job with `--packages io.delta:" in said
    assert "Traceback" not in said
