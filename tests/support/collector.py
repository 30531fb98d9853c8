"""A collector of OpenLineage events on loopback, which keeps the events posted to it."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from lake.observe.lineage_events import the_emitter

Event = dict[str, Any]
PATIENCE = 60


class Collector:
    """An HTTP server for lineage events.

    events: the events received, in order. answer: the HTTP status of the response; events are not
    kept if it is 400 or above.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.answer = 201
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if collector.answer < 400:
                    collector.events.append(json.loads(body))
                self.send_response(collector.answer)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def of(self, job: str) -> list[Event]:
        """Return the events of a job, once all pending events have arrived."""
        the_emitter().flush(PATIENCE)
        return [event for event in self.events if event["job"]["name"] == job]


@contextmanager
def collecting(**environment: str) -> Iterator[Collector]:
    """Yield a collector that receives this process's lineage while the block runs."""
    collector = Collector()
    with pytest.MonkeyPatch.context() as patch:
        forget_configuration(patch)
        patch.setenv("OPENLINEAGE_URL", collector.url)
        patch.setenv("OPENLINEAGE__TRANSPORT__URL", collector.url)  # if a type is configured
        for name, value in environment.items():
            patch.setenv(name, value)
        yield collector
        the_emitter().flush(PATIENCE)
    the_emitter.cache_clear()
    collector.stop()


def forget_configuration(patch: pytest.MonkeyPatch) -> None:
    """Remove all OpenLineage configuration from the environment."""
    if the_emitter.cache_info().currsize:
        the_emitter().flush(PATIENCE)
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
        patch.delenv(name)
    the_emitter.cache_clear()
