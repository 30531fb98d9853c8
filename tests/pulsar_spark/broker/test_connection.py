"""Tests TLS, tokens and OAuth2 against a broker that requires them, with canary secrets."""

import base64
import json
import secrets
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import _pulsar
import jwt
import pulsar
import pytest
from certificates import issue
from cryptography.hazmat.primitives import serialization
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from topic import LiveTopic, Outgoing

from bronze.ingest import ingest
from lake.settings.settings import TOKEN_ENV, LakeSettings, load_settings
from lake.streams.job import await_streams
from lake.tables.lake import Lake
from lakehouse.runtime.broker import start_broker
from lakehouse.runtime.ports import free_port
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.broker.connection import Connection
from pulsar_spark.errors import BrokerError, LakehouseError, SettingsError
from pulsar_spark.options import PulsarOptions

KEY = secrets.token_bytes(32)
URLS = {"service_url": "pulsar://127.0.0.1:6650", "admin_url": "http://127.0.0.1:8080"}


def token(role: str = "admin") -> str:
    return jwt.encode({"sub": role}, KEY, "HS256")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate authority, and the broker's certificate for `localhost` only."""
    folder = tmp_path_factory.mktemp("certificates")
    key = serialization.load_pem_private_key(issue(folder, "broker"), None)
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "broker.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    return folder


@pytest.fixture(scope="module")
def secured(
    suite_settings: LakeSettings, certificates: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LakeSettings]:
    """Settings of a broker that accepts only TLS and requires a token."""
    settings = suite_settings.model_copy(
        update={
            "home": tmp_path_factory.mktemp("secured"),
            "pulsar_url": f"pulsar+ssl://localhost:{free_port()}",
            "pulsar_admin_url": f"https://localhost:{free_port()}",
            "pulsar_tls_trust_certs_file": certificates / "ca.pem",
            "pulsar_token_file": certificates / "token",
        }
    )
    (certificates / "token").write_text(token() + "\n")
    extra = {
        "advertisedAddress": "localhost",
        "authenticationEnabled": "true",
        "authenticationProviders": (
            "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
        ),
        "tokenSecretKey": f"data:;base64,{base64.b64encode(KEY).decode()}",
        "authorizationEnabled": "true",
        "superUserRoles": "admin",
        "brokerClientAuthenticationPlugin": (
            "org.apache.pulsar.client.impl.auth.AuthenticationToken"
        ),
        "brokerClientAuthenticationParameters": f"token:{token()}",
        "brokerClientTlsEnabled": "true",
        "brokerClientTrustCertsFilePath": str(certificates / "ca.pem"),
        "tlsCertificateFilePath": str(certificates / "broker.pem"),
        "tlsKeyFilePath": str(certificates / "broker.key"),
        "tlsTrustCertsFilePath": str(certificates / "ca.pem"),
    }
    broker = start_broker(settings, extra=extra)
    yield settings
    broker.stop()


@pytest.fixture
def own(secured: LakeSettings, tmp_path: Path) -> LakeSettings:
    """Settings of the secured broker, with a lake and namespace of their own."""
    namespace = f"public/{secrets.token_hex(8)}"
    return secured.model_copy(update={"home": tmp_path / "home", "pulsar_namespace": namespace})


def land(spark: SparkSession, topic: LiveTopic) -> list[bytes]:
    await_streams(ingest(spark, Lake(topic.settings, topic.topics), available_now=True))
    table = DeltaTable(topic.settings.table_path("bronze", "orders")).to_pyarrow_table()
    return sorted(table["payload"].to_pylist())


@pytest.mark.jvm
def test_a_topic_lands_over_tls_and_nothing_shows_the_token(
    spark: SparkSession, own: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = token()
    monkeypatch.setenv(TOKEN_ENV, canary)
    # As spark.executorEnv does, because Spark was started before the variable was set.
    monkeypatch.setitem(spark.sparkContext.environment, TOKEN_ENV, canary)
    home = {"home": own.home, "pulsar_token_file": None}
    settings = load_settings(**{**own.model_dump(exclude_none=True), **home})
    assert settings.pulsar_token is not None
    assert canary not in repr(settings)
    topic = LiveTopic(settings, "orders", 2)
    topic.send([Outgoing(b"one"), Outgoing(b"two")])
    assert land(spark, topic) == [b"one", b"two"]
    read = spark.read.format("pulsar").options(**settings.connection.options(), topic=topic.name)
    frame = read.load()
    plan = frame._jdf.queryExecution().toString()  # noqa: SLF001 - Python cannot get it else
    assert frame.count() == 2
    signature = canary.rpartition(".")[2]
    assert signature not in plan
    for file in settings.home_dir.rglob("*"):
        assert file.is_dir() or signature.encode() not in file.read_bytes(), file


@pytest.mark.jvm
def test_metadata_that_is_not_utf_8_is_read_over_tls_with_the_token(
    spark: SparkSession, own: LakeSettings
) -> None:
    topic = LiveTopic(own, "orders", 1)
    client = own.connection.client()
    try:
        producer = client.create_producer(f"{topic.name}-partition-0")
        message = _pulsar.MessageBuilder().content(b"one").property(b"name", b"\xff").build()
        producer._producer.send(message)  # noqa: SLF001 - the public one takes text alone
    finally:
        client.close()
    assert land(spark, topic) == [b"one"]
    table = DeltaTable(own.table_path("bronze", "orders")).to_pyarrow_table()
    (row,) = table.select(["raw_properties", "undecoded"]).to_pylist()
    assert row == {
        "raw_properties": [{"name": b"name", "value": b"\xff"}],
        "undecoded": "properties",
    }


@pytest.mark.jvm
def test_a_token_is_read_again_for_every_connection(own: LakeSettings) -> None:
    assert own.pulsar_token_file
    with PulsarAdmin(own.connection) as admin:
        assert admin.is_healthy()
        own.pulsar_token_file.write_text("rotated away")
        assert not admin.is_healthy()
        own.pulsar_token_file.write_text(token())
        assert admin.is_healthy()


@pytest.mark.jvm
def test_a_role_without_rights_is_refused_without_showing_its_token(
    own: LakeSettings, tmp_path: Path
) -> None:
    stranger = token("stranger")
    (tmp_path / "token").write_text(stranger)
    update = {"pulsar_token_file": tmp_path / "token"}
    refused = own.model_copy(update=update).connection
    with PulsarAdmin(refused) as admin, pytest.raises(BrokerError, match="40[13]") as error:
        admin.ensure_namespace(own.pulsar_namespace)
    assert stranger not in str(error.value)
    client = refused.client()
    with pytest.raises(pulsar.PulsarException) as refusal:
        client.create_reader("persistent://public/default/x", pulsar.MessageId.earliest)
    client.close()
    assert stranger not in str(refusal.value)


@pytest.mark.jvm
@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"pulsar_tls_trust_certs_file": "stranger.pem"}, False),
        (
            {
                "pulsar_tls_trust_certs_file": "stranger.pem",
                "pulsar_tls_allow_insecure_connection": True,
                "pulsar_tls_validate_hostname": False,
            },
            True,
        ),
        ({"host": "127.0.0.1"}, False),
        ({"host": "127.0.0.1", "pulsar_tls_validate_hostname": False}, True),
    ],
)
def test_the_brokers_certificate_is_checked(
    own: LakeSettings, certificates: Path, change: dict[str, Any], fits: bool
) -> None:
    """Both clients check the certificate's authority and, by default, its host name."""
    if "pulsar_tls_trust_certs_file" in change:
        file = certificates / change["pulsar_tls_trust_certs_file"]
        change = {**change, "pulsar_tls_trust_certs_file": file}
    host = change.pop("host", "localhost")
    urls = {
        n: getattr(own, n).replace("localhost", host) for n in ("pulsar_url", "pulsar_admin_url")
    }
    connection = own.model_copy(update={**urls, **change}).connection
    with PulsarAdmin(connection) as admin:
        assert admin.is_healthy() is fits
    assert reaches(connection) is fits


def reaches(connection: Connection) -> bool:
    client = connection.client()
    try:
        client.get_topic_partitions("persistent://public/default/x")
    except pulsar.PulsarException:
        return False
    finally:
        client.close()
    return True


class Issuer(BaseHTTPRequestHandler):
    """A fake OpenID issuer, which gives `admin` a token for its secret."""

    def do_GET(self) -> None:
        assert self.path == "/.well-known/openid-configuration"
        scheme = "https" if isinstance(self.request, ssl.SSLSocket) else "http"
        self._answer({"token_endpoint": f"{scheme}://{self.headers['Host']}/token"})

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        scheme, _, basic = self.headers.get("Authorization", "").partition(" ")
        shown = asked + (base64.b64decode(basic).decode() if scheme == "Basic" else "")
        known = "client_credentials" in asked and "canary-secret" in shown
        self._answer({"access_token": token("admin" if known else "nobody"), "expires_in": 600})

    def _answer(self, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """The folder of the issuer's own certificate authority."""
    (tmp_path / "issuer").mkdir()
    (tmp_path / "issuer" / "issuer.key").write_bytes(issue(tmp_path / "issuer", "issuer"))
    return tmp_path / "issuer"


@pytest.fixture
def issuer(authority: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("localhost", 0), Issuer)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(authority / "issuer.pem", authority / "issuer.key")
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"https://localhost:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "key.json"
    file.write_text(json.dumps({"client_id": "lakehouse", "client_secret": "canary-secret"}))
    return file


def asking(issuer: str, key_file: Path, **given: Any) -> Connection:
    """Return a connection to a broker without TLS, with a token of the issuer."""
    secret = {"oauth2_issuer_url": issuer, "oauth2_key_file": str(key_file)}
    return Connection(**{**URLS, **secret, **given})


def shown(connection: Connection) -> str:
    """Return the Authorization header of the admin client, and create the binary client, too."""
    connection.client().close()
    with connection.http(5) as client:
        assert client.auth is not None
        sent = next(client.auth.auth_flow(client.build_request("GET", "brokers/version")))
    return str(sent.headers["Authorization"])


@pytest.mark.parametrize("option", ["oauth2_trust_certs_file", "tls_trust_certs_file"])
def test_an_issuer_with_a_configured_authority_gives_a_token(
    issuer: str, authority: Path, key_file: Path, option: str
) -> None:
    named = asking(issuer, key_file, **{option: str(authority / "ca.pem")})
    assert shown(named) == f"Bearer {token('admin')}"


def test_a_public_issuer_needs_no_authority_of_the_broker(
    issuer: str, authority: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The issuer's authority is one of the system's, even if the broker has its own."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "ca.pem"))
    brokers = asking(issuer, key_file, tls_trust_certs_file=str(authority / "stranger.pem"))
    assert shown(brokers) == f"Bearer {token('admin')}"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"tls_trust_certs_file": "stranger.pem"},
        {"tls_allow_insecure_connection": True, "tls_validate_hostname": False},
    ],
)
def test_an_issuer_with_an_unknown_authority_gets_no_secret(
    issuer: str, authority: Path, key_file: Path, given: dict[str, Any]
) -> None:
    """This also holds if the broker's own certificate need not be trusted."""
    if "tls_trust_certs_file" in given:
        given = {"tls_trust_certs_file": str(authority / given["tls_trust_certs_file"])}
    refused = asking(issuer, key_file, **given)
    says = "oauth2IssuerUrl https://localhost.* did not issue a token.*name its authority in"
    with pytest.raises(SettingsError, match=says) as error:
        refused.client()
    assert "canary-secret" not in str(error.value)
    with refused.http(5) as client, pytest.raises(SettingsError, match=says):
        client.get("brokers/version")


@pytest.mark.jvm
def test_oauth2_client_credentials_work_for_the_client_and_the_admin_api(
    own: LakeSettings, issuer: str, authority: Path, key_file: Path
) -> None:
    update = {
        "pulsar_token_file": None,
        "pulsar_oauth2_issuer_url": issuer,
        "pulsar_oauth2_key_file": key_file,
        "pulsar_oauth2_audience": "pulsar",
        "pulsar_oauth2_trust_certs_file": authority / "ca.pem",
    }
    connection = own.model_copy(update=update).connection
    assert "canary-secret" not in repr(connection)
    with PulsarAdmin(connection) as admin:
        admin.ensure_namespace(own.pulsar_namespace)
        assert admin.has_namespace(own.pulsar_namespace)
    assert reaches(connection)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"token_env": "A", "token_file": "b"}, "tokenEnv and tokenFile are different ways to"),
        ({"oauth2_issuer_url": "https://x"}, "set oauth2KeyFile as well"),
        ({"tls_key_file": "x"}, "set tlsCertificateFile as well"),
    ],
)
def test_conflicting_options_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        Connection(**URLS, **given)


def test_a_missing_secret_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NO_TOKEN", raising=False)
    with pytest.raises(SettingsError, match="the environment variable NO_TOKEN is empty"):
        Connection(**URLS, token_env="NO_TOKEN").client()  # noqa: S106 - its name
    with pytest.raises(SettingsError, match="tokenFile: the file .* does not exist"):
        Connection(**URLS, token_file=str(tmp_path / "none")).client()


def test_a_secret_is_neither_an_option_nor_in_the_settings_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = {"serviceUrl": "x", "adminUrl": "x", "topic": "persistent://a/b/c"}
    with pytest.raises(SettingsError, match="'token' would show a secret.*tokenEnv") as refused:
        PulsarOptions.parse({**options, "token": "canary"})
    assert "canary" not in str(refused.value)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(TOKEN_ENV, raising=False)
    (tmp_path / "lakehouse.toml").write_text('pulsar_token = "canary"\n')
    with pytest.raises(LakehouseError, match="belongs in the environment") as refused:
        load_settings()
    assert "canary" not in str(refused.value)


def test_a_connection_survives_conversion_to_options_and_back() -> None:
    connection = Connection(**URLS, token_env="A", tls_validate_hostname=False)  # noqa: S106
    assert connection.options()["tlsValidateHostname"] == "false"
    assert Connection.parse(connection.options()) == connection
    with pytest.raises(SettingsError, match="'perhaps' is neither true nor false"):
        Connection.parse({**connection.options(), "tlsValidateHostname": "perhaps"})
