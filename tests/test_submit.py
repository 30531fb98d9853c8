"""`bronze` and `silver` as jobs of spark-submit, each in a Spark of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from deltalake import DeltaTable

from bronze.settings import LakeSettings, load_settings
from bronze.topics import load_topics
from lakehouse.broker import Broker
from lakehouse.generate import generate_shop
from lakehouse.jars import fetch_jars
from lakehouse.java import prepare_spark
from lakehouse.publish import create_topics, publish

ROOT = Path(__file__).parents[1]


def submit(settings: LakeSettings, layer: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a layer as on a cluster: Spark's configuration from the file, settings from outside."""
    return subprocess.run(
        [
            Path(pyspark.__file__).parent / "bin" / "spark-submit",
            *("--master", "local[2]"),
            *("--properties-file", ROOT / "lakehouse" / "conf" / "spark-defaults.conf"),
            *options,
            ROOT / layer / "__main__.py",
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


@pytest.fixture
def jars(settings: LakeSettings, monkeypatch: pytest.MonkeyPatch) -> str:
    for name in ("JAVA_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # put back afterwards
    if not os.environ["JAVA_HOME"]:
        monkeypatch.delenv("JAVA_HOME")
    prepare_spark(load_settings())
    settings.home.mkdir(parents=True)
    return ",".join(str(jar) for jar in fetch_jars(settings, "spark").glob("*.jar"))


def test_the_layers_run_under_spark_submit(
    broker: Broker, settings: LakeSettings, jars: str, tmp_path: Path
) -> None:
    topics = load_topics(settings.topics)
    counts = generate_shop(tmp_path / "shop", scale=0.001)
    create_topics(settings, topics)
    publish(settings, topics, tmp_path / "shop")
    for layer in ("bronze", "silver"):
        done = submit(settings, layer, "--jars", jars)
        assert done.returncode == 0, done.stdout[-3000:]
    enriched = DeltaTable(settings.table_path("silver", "enriched_orders"))
    assert enriched.to_pyarrow_table().num_rows == counts.orders


def test_a_spark_without_delta_is_told_what_to_submit_with(
    broker: Broker, settings: LakeSettings, jars: str
) -> None:
    done = submit(settings, "bronze")
    assert done.returncode == 2
    assert "This Spark has no Delta. Submit the job with `--packages io.delta:" in done.stdout
    assert "Traceback" not in done.stdout
