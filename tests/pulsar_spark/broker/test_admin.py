"""Tests that redirects to a topic's owner are followed within the cluster, and nowhere else.

The servers answer as Pulsar 4.2 brokers do: 307 with the owner's address and `authoritative`.
"""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from certificates import issue

from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.broker.connection import Connection
from pulsar_spark.errors import BrokerError

TOPIC = "persistent://public/default/orders"
TOKEN = "canary"  # noqa: S105 - no secret


class FakeBroker(ThreadingHTTPServer):
    """Answers for its own topics, redirects to `owner` otherwise, and records the requests."""

    def __init__(self, host: str, tls: ssl.SSLContext | None = None) -> None:
        super().__init__((host, 0), _Answers)
        self.scheme = "https" if tls else "http"
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.host = host
        self.owner: FakeBroker | None = None
        self.listed: list[str] | None = []
        self.status = 200
        self.asked: list[tuple[str, str, bytes, str | None]] = []

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.server_address[1]}"


class _Answers(BaseHTTPRequestHandler):
    server: FakeBroker

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        shown = self.headers.get("Authorization")
        if self.path == "/admin/v2/brokers":
            listed = self.server.listed
            self._send(403 if listed is None else 200, listed or [])
            return
        self.server.asked.append((self.command, self.path, body, shown))
        if self.server.owner:
            mark = "&" if "?" in self.path else "?"
            path = self.path.partition("authoritative")[0].rstrip("?&")
            self._send(307, {}, f"{self.server.owner.url}{path}{mark}authoritative=true")
        else:
            self._send(self.server.status, {"partitions": 2})

    def _send(self, status: int, content: Any, location: str | None = None) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = _answer

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def answering(broker: FakeBroker) -> Iterator[FakeBroker]:
    thread = threading.Thread(target=broker.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield broker
    broker.shutdown()
    thread.join()
    broker.server_close()


@pytest.fixture
def asked() -> Iterator[FakeBroker]:
    with answering(FakeBroker("127.0.0.1")) as broker:
        yield broker


@pytest.fixture
def owner(asked: FakeBroker) -> Iterator[FakeBroker]:
    """Another broker on another host."""
    with answering(FakeBroker("127.0.0.2")) as broker:
        asked.owner = broker
        yield broker


def admin(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, hosts: str | None = None, **tls: Any
) -> PulsarAdmin:
    monkeypatch.setenv("CANARY", TOKEN)
    service = "pulsar://127.0.0.1:1"
    return PulsarAdmin(
        Connection(service, broker.url, admin_hosts=hosts, token_env="CANARY", **tls)  # noqa: S106
    )


@pytest.mark.parametrize("known", ["listed", "named"])
def test_a_redirect_to_a_broker_of_the_cluster_keeps_method_body_and_parameters(
    asked: FakeBroker, owner: FakeBroker, monkeypatch: pytest.MonkeyPatch, known: str
) -> None:
    asked.listed = [f"127.0.0.2:{owner.server_address[1]}"] if known == "listed" else None
    with admin(asked, monkeypatch, "127.0.0.2, other" if known == "named" else None) as client:
        assert client.partitions(TOPIC) == [f"{TOPIC}-partition-0", f"{TOPIC}-partition-1"]
        client.delete_topic(TOPIC)
        client.retain_for_ever(TOPIC)
    path, bearer = "/admin/v2/persistent/public/default/orders", f"Bearer {TOKEN}"
    for_ever = b'{"retentionTimeInMinutes":-1,"retentionSizeInMB":-1}'
    assert owner.asked == [
        ("GET", f"{path}/partitions?authoritative=true", b"", bearer),
        ("GET", f"{path}/partitions?authoritative=true", b"", bearer),
        ("DELETE", f"{path}/partitions?force=true&authoritative=true", b"", bearer),
        ("POST", f"{path}/retention?authoritative=true", for_ever, bearer),
    ]


def test_a_broker_outside_the_cluster_gets_no_credentials(
    asked: FakeBroker, owner: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked.listed = ["127.0.0.3:8080"]
    says = "redirects us to http://127.0.0.2.*not in the broker's list of brokers.*adminHosts"
    with admin(asked, monkeypatch) as client, pytest.raises(BrokerError, match=says) as error:
        client.partitions(TOPIC)
    assert owner.asked == []
    assert TOKEN not in str(error.value)


def test_a_redirect_from_tls_to_plain_text_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key.pem").write_bytes(issue(tmp_path, "broker"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "broker.pem", tmp_path / "key.pem")
    secure, plain = FakeBroker("localhost", context), FakeBroker("localhost")
    with answering(secure), answering(plain):
        secure.owner = plain
        trusted = {"tls_trust_certs_file": str(tmp_path / "ca.pem")}
        with (
            admin(secure, monkeypatch, **trusted) as client,
            pytest.raises(BrokerError, match="redirects us to http://localhost.*the protocol"),
        ):
            client.partitions(TOPIC)
    assert plain.asked == []


def test_a_redirect_loop_is_not_taken_for_a_broker_that_is_not_ready(
    asked: FakeBroker, owner: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.owner = asked
    with (
        admin(asked, monkeypatch, "127.0.0.2") as client,
        pytest.raises(BrokerError, match="in a circle: .*advertisedAddress of its own"),
    ):
        client.partitions(TOPIC)
    assert len(asked.asked) + len(owner.asked) < 10


def test_policies_that_the_role_may_not_read_count_as_none(
    asked: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked.status = 403
    with admin(asked, monkeypatch) as client:
        assert client.drops_unread(TOPIC) is False


def test_a_broker_that_does_not_answer_is_not_taken_for_one_without_policies(
    asked: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulsar_spark.broker.admin.DEADLINE_SECONDS", 0.3)
    asked.status = 503
    with admin(asked, monkeypatch) as client, pytest.raises(BrokerError):
        client.drops_unread(TOPIC)
