"""Pulsar's Java client, for what the Python client cannot send: null values, transactions, types.

Spoken to through py4j, in a JVM of its own with the embedded broker's jars.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from bronze.settings import LakeSettings
from lakehouse.broker import OPENS
from lakehouse.jars import fetch_jars
from lakehouse.java import find_java


@contextmanager
def java_gateway(settings: LakeSettings) -> Iterator[JavaGateway]:
    jars = fetch_jars(settings, "pulsar")
    [py4j] = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    port = launch_gateway(
        jarpath=str(py4j),
        classpath=f"{jars}/*",
        java_path=str(find_java()),
        javaopts=[f"--add-opens={package}" for package in OPENS],
        die_on_exit=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    try:
        yield gateway
    finally:
        gateway.shutdown()


class JavaClient:
    """A Java client of the broker of some settings."""

    def __init__(self, gateway: JavaGateway, url: str, *, transactions: bool = False) -> None:
        self.jvm: Any = gateway.jvm
        self._client = (
            self.jvm.org.apache.pulsar.client.api.PulsarClient.builder()
            .serviceUrl(url)
            .enableTransaction(transactions)
            .build()
        )

    def schema(self, kind: str) -> Any:
        """A schema of `org.apache.pulsar.client.api.Schema`, by its name there."""
        return getattr(self.jvm.org.apache.pulsar.client.api.Schema, kind)

    def producer(self, topic: str, kind: str = "BYTES") -> Any:
        return self._client.newProducer(self.schema(kind)).topic(topic).create()

    def transaction(self) -> Any:
        minute = self.jvm.java.util.concurrent.TimeUnit.MINUTES
        return self._client.newTransaction().withTransactionTimeout(5, minute).build().get()

    def close(self) -> None:
        self._client.close()
