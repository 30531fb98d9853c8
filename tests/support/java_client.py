"""Pulsar's Java client, for null values, transactions and types that the Python client lacks.

It runs in its own JVM with the embedded broker's jars and is called through py4j.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from lake.settings.settings import LakeSettings
from lakehouse.runtime.broker import OPENS
from lakehouse.runtime.jars import fetch_jars
from lakehouse.runtime.java import find_java


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
    """A Java client of the broker at a URL."""

    def __init__(self, gateway: JavaGateway, url: str) -> None:
        self.jvm: Any = gateway.jvm
        self._client = (
            self.jvm.org.apache.pulsar.client.api.PulsarClient.builder()
            .serviceUrl(url)
            .enableTransaction(True)
            .build()
        )

    def producer(self, topic: str, *, batched: bool = False, checked: bool = False) -> Any:
        """Create a producer of bytes; if `checked`, the bytes must match the topic's schema."""
        schema = self.jvm.org.apache.pulsar.client.api.Schema
        kind = schema.AUTO_PRODUCE_BYTES() if checked else schema.BYTES
        builder = self._client.newProducer(kind).topic(topic).enableBatching(batched)
        return builder.batchingMaxPublishDelay(50, self._unit("MILLISECONDS")).create()

    def transaction(self) -> Any:
        builder = self._client.newTransaction().withTransactionTimeout(5, self._unit("MINUTES"))
        return builder.build().get()

    def _unit(self, name: str) -> Any:
        return getattr(self.jvm.java.util.concurrent.TimeUnit, name)

    def close(self) -> None:
        self._client.close()
