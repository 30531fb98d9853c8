"""Serves `/metrics`, `/livez` and `/readyz` from a process that works, if `metrics_port` is set.

A layer's metrics are read when Prometheus asks: from the logs of Delta tables, a few small tables
and the broker, never with a Spark job. Reading takes at most a twentieth of the time, however large
the lake is: after a slow read, the result is repeated for a while.

Probes of Kubernetes and other supervisors ask `/livez` and `/readyz`. The answer is 200 if the
process is alive or ready, else 503 with the reasons (`health.py`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import structlog
from prometheus_client import REGISTRY, make_wsgi_app, start_http_server
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from lake.observe.health import HEALTH
from lake.observe.metrics import COLLECTOR_UP
from lake.settings.settings import LakeSettings
from pulsar_spark.errors import SettingsError

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

REST = 19  # pause between two reads, as a multiple of the time that the first one took

log = structlog.get_logger()


class LayerCollector(Collector):
    """The metrics of a layer, obtained by calling `read`.

    If `read` fails, the only metric is `lakehouse_collector_up` with the value 0.
    """

    def __init__(self, layer: str, read: Callable[[], Iterable[Family]]) -> None:
        self._layer = layer
        self._read = read
        self._lock = threading.Lock()
        self._found: list[Family] = []
        self._due = 0.0

    def describe(self) -> list[Family]:
        """No names: otherwise the registry would read the lake when the collector is registered."""
        return []

    def collect(self) -> list[Family]:
        """The current metrics, or those of the last read while it is recent enough.

        Called by the Prometheus client for each request.
        """
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
        except Exception as error:  # noqa: BLE001 - one table must not hide other layers
            log.warning(
                "metrics not read", layer=self._layer, why=f"{type(error).__name__}: {error}"
            )
            return [COLLECTOR_UP.of({(self._layer,): 0})]
        return [*found, COLLECTOR_UP.of({(self._layer,): 1})]


@contextlib.contextmanager
def serving(
    settings: LakeSettings, *collectors: LayerCollector, needs: Sequence[str] = ("streams",)
) -> Iterator[None]:
    """Serve metrics and probes while the block runs. Does nothing if `metrics_port` is not set.

    Args:
        settings: the host and the port.
        collectors: the metrics of the layers.
        needs: what the process must have to be ready: `streams`, `sql`.

    Raises:
        SettingsError: the host and port cannot be listened on.
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
    HEALTH.need(needs)
    server.set_app(_with_probes(make_wsgi_app(), settings.stuck_seconds))
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


def _with_probes(metrics: WSGIApplication, stuck_seconds: float) -> WSGIApplication:
    """The application that serves metrics, with the paths of the probes."""

    def app(request: WSGIEnvironment, respond: StartResponse) -> Iterable[bytes]:
        path = request.get("PATH_INFO")
        if path not in ("/livez", "/readyz"):
            return metrics(request, respond)
        problems = HEALTH.stuck(stuck_seconds)
        if path == "/readyz":
            problems += HEALTH.unready()
        respond(
            "503 Service Unavailable" if problems else "200 OK",
            [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")],
        )
        return ["".join(f"{line}\n" for line in problems or ["ok"]).encode()]

    return app
