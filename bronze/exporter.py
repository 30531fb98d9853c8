"""Serves `/metrics` for Prometheus, where `metrics_port` is set, from the process of the streams.

What a layer has to tell is read when Prometheus asks, from the logs of Delta tables, a few small
tables and the broker: never with a Spark job. However large the lake, reading takes at most a
twentieth of the time: after a slow look the next answers repeat it for a while.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import structlog
from prometheus_client import REGISTRY, start_http_server
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from bronze.errors import SettingsError
from bronze.metrics import COLLECTOR_UP
from bronze.settings import LakeSettings

REST = 19  # times as long as it took to read

log = structlog.get_logger()


class LayerCollector(Collector):
    """The metrics of a layer, as `read` finds them; none of them where it fails."""

    def __init__(self, layer: str, read: Callable[[], Iterable[Family]]) -> None:
        self._layer = layer
        self._read = read
        self._lock = threading.Lock()
        self._found: list[Family] = []
        self._due = 0.0

    def describe(self) -> list[Family]:
        """Nothing: names are not worth a look at the lake when a collector is registered."""
        return []

    def collect(self) -> list[Family]:
        """The metrics as they are now, or were a moment ago."""
        with self._lock:
            begun = time.monotonic()
            if begun >= self._due:
                self._found = self._look()
                now = time.monotonic()
                self._due = now + (now - begun) * REST
            return self._found

    def _look(self) -> list[Family]:
        try:
            found = list(self._read())
        except Exception as error:  # noqa: BLE001 - a table that is replaced takes no others away
            log.warning(
                "metrics not read", layer=self._layer, why=f"{type(error).__name__}: {error}"
            )
            return [COLLECTOR_UP.of({(self._layer,): 0})]
        return [*found, COLLECTOR_UP.of({(self._layer,): 1})]


@contextlib.contextmanager
def serving(settings: LakeSettings, *collectors: LayerCollector) -> Iterator[None]:
    """Serve the metrics while the block runs, if the settings have a port for them.

    Raises:
        SettingsError: nothing can listen there.
    """
    if settings.metrics_port is None:
        yield
        return
    place = f"{settings.metrics_host}:{settings.metrics_port}"
    try:
        server, thread = start_http_server(settings.metrics_port, settings.metrics_host)
    except OSError as error:
        message = (
            f"Metrics cannot be served on {place} ({error.strerror}). Choose another port with "
            "LAKEHOUSE_METRICS_PORT: each process that serves them needs its own, on a host of "
            "this machine (LAKEHOUSE_METRICS_HOST)."
        )
        raise SettingsError(message) from error
    log.info("metrics are served", url=f"http://{place}/metrics")
    for each in collectors:
        REGISTRY.register(each)
    try:
        yield
    finally:
        for each in collectors:
            REGISTRY.unregister(each)
        server.shutdown()
        server.server_close()
        thread.join()
