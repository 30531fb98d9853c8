"""Tests passwords and TLS of the SQL endpoint, with canary secrets and a separate endpoint."""

import json
import secrets
import socket
import ssl
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from certificates import issue, sql_tls
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
from pyhive import hive
from shop_lake import ShopLake
from sqlalchemy import NullPool, create_engine, text
from tenacity import Retrying, stop_after_delay, wait_fixed
from thrift.transport.TSocket import TSocket
from thrift.transport.TSSLSocket import TSSLSocket
from thrift.transport.TTransport import TTransportException

from gold.build import build_gold, prepare_build
from gold.dbt.process import run_dbt
from gold.errors import GoldError
from gold.sql_client import SqlError, connect, endpoint_running, plain_sasl, query_endpoint
from gold.tables import BUILT
from lake.settings.settings import LakeSettings
from lake.tables.lake import Lake
from lakehouse import cli
from lakehouse.runtime.ports import free_port
from lakehouse.sql import certificate
from lakehouse.sql.endpoint import start_endpoint
from lakehouse.sql.users import add_user, remove_user
from pulsar_spark import log_masking

PASSWORD = f"canary {secrets.token_urlsafe(16)} $ä:"
BEAS = "of Bea, 17 years"
BEA = f"""\
dn: dc=org
objectClass: dcObject
dc: org

dn: ou=people,dc=org
objectClass: organizationalUnit
ou: people

dn: uid=bea,ou=people,dc=org
objectClass: inetOrgPerson
uid: bea
userPassword: {BEAS}
memberOf: cn=bi,ou=groups,dc=org

dn: uid=ole,ou=people,dc=org
objectClass: inetOrgPerson
uid: ole
userPassword: {BEAS}

dn: uid=nele,ou=people,dc=org
objectClass: inetOrgPerson
uid: nele
userPassword: {BEAS}

dn: ou=groups,dc=org
objectClass: organizationalUnit
ou: groups

dn: cn=engineers,ou=groups,dc=org
objectClass: groupOfNames
cn: engineers
member: uid=ole,ou=people,dc=org

"""


@pytest.fixture(autouse=True)
def _secrets_of_this_test_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the known secrets; the password `none` would be masked in logs of other tests."""
    monkeypatch.setattr(log_masking, "_known", set(log_masking._known))  # noqa: SLF001


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate authority, and the endpoint's certificate for `localhost` only."""
    folder = tmp_path_factory.mktemp("certificates")
    (folder / "password").touch(mode=0o600)
    (folder / "password").write_text(f"{PASSWORD}\n")
    return folder


@pytest.fixture(scope="module")
def secured(shop_lake: ShopLake, certificates: Path) -> Iterator[LakeSettings]:
    """Settings of an authorized client; the endpoint uses the suite's session and lake."""
    own = {
        **sql_tls(certificates),
        "sql_port": free_port(),
        "sql_authentication": "password",
        "sql_users_file": certificates / "users",
        "sql_user": "anna",
        "sql_password_file": certificates / "password",
    }
    settings = shop_lake.settings.model_copy(update=own)
    add_user(settings, "anna", PASSWORD, "owner")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificate, "CHECK_SECONDS", 0.2)
        serving = start_endpoint(shop_lake.spark, settings)
        yield settings
        serving.stop()


def changed(settings: LakeSettings, **update: object) -> LakeSettings:
    return settings.model_copy(update=update)


def knowing(settings: LakeSettings, user: str, password: str, folder: Path) -> LakeSettings:
    """Return settings of a client that logs in with this user and password."""
    file = folder / secrets.token_hex(4)
    file.touch(mode=0o600)
    file.write_text(password)
    return changed(settings, sql_user=user, sql_password_file=file)


def refusal(settings: LakeSettings) -> str:
    with pytest.raises(SqlError) as error:
        endpoint_running(settings)
    return str(error.value)


def test_the_right_password_is_accepted(secured: LakeSettings, shop_lake: ShopLake) -> None:
    count = "select count(*) as orders from silver.enriched_orders"
    for _ in range(2):  # the second time without hashing
        assert query_endpoint(secured, count) == (["orders"], [(len(shop_lake.enriched()),)])
    engine = create_engine("hive://", creator=lambda: connect(secured), poolclass=NullPool)
    with engine.connect() as connection:
        assert connection.execute(text(count)).scalar_one() == len(shop_lake.enriched())


WRONG = {
    "an end that lacks": ("anna", PASSWORD[:-1]),
    "one more": ("anna", f"{PASSWORD} "),
    "what our clients say where none is asked": ("anna", "none"),
    "another case": ("Anna", PASSWORD),
    "another user": ("bert", PASSWORD),
    "who nobody is": ("bert", "nobody"),
    "no name": ("", PASSWORD),
    "a name with a hash": ("anna:pbkdf2_sha256$1$a", "x"),
}


@pytest.mark.parametrize(("user", "password"), WRONG.values(), ids=WRONG)
def test_wrong_credentials_are_rejected(
    secured: LakeSettings, tmp_path: Path, user: str, password: str
) -> None:
    said = refusal(knowing(secured, user, password, tmp_path))
    assert f"rejected the user '{user}'" in said
    assert "LAKEHOUSE_SQL_PASSWORD_FILE" in said
    assert PASSWORD[:-1] not in said


def test_a_missing_password_is_rejected(secured: LakeSettings) -> None:
    assert "rejected the user 'anna'" in refusal(changed(secured, sql_password_file=None))
    context = ssl.create_default_context(cafile=secured.sql_tls_trust_certs_file)
    plain = TSSLSocket("localhost", secured.sql_port, ssl_context=context)
    with pytest.raises(TTransportException, match="Error validating the login"):
        hive.Connection(username="anna", thrift_transport=plain_sasl(plain, "anna", ""))


def test_users_can_be_added_and_removed_while_the_endpoint_runs(
    secured: LakeSettings, tmp_path: Path
) -> None:
    carl = knowing(secured, "carl", "an entirely other one", tmp_path)
    assert "rejected the user 'carl'" in refusal(carl)
    add_user(secured, "carl", "an entirely other one")
    assert endpoint_running(carl)
    add_user(secured, "carl", "and now a third one")
    assert "rejected the user 'carl'" in refusal(carl)
    add_user(secured, "carl", "an entirely other one")
    assert endpoint_running(carl)
    remove_user(secured, "carl")
    assert "rejected the user 'carl'" in refusal(carl)


def test_only_a_certificate_for_the_host_from_a_known_authority_is_trusted(
    secured: LakeSettings, certificates: Path
) -> None:
    stranger = changed(secured, sql_tls_trust_certs_file=certificates / "stranger.pem")
    said = refusal(stranger)
    assert "unable to get local issuer certificate" in said
    assert "stranger.pem" in said
    assert "LAKEHOUSE_SQL_TLS_TRUST_CERTS_FILE" in refusal(
        changed(secured, sql_tls_trust_certs_file=None)
    )
    by_number = refusal(changed(secured, sql_host="127.0.0.1"))
    assert "certificate is not valid for '127.0.0.1'" in by_number
    assert "LAKEHOUSE_SQL_HOST" in by_number


def test_a_renewed_certificate_is_used_without_a_restart(
    secured: LakeSettings, certificates: Path
) -> None:
    files = [certificates / name for name in ("ca.pem", "sql.pem", "sql.key")]
    before = [file.read_bytes() for file in files]
    with connect(secured) as open_before:
        key = issue(certificates, "sql")  # of another authority, which replaces `ca.pem`
        (certificates / "sql.key").write_bytes(key)

        def connects() -> None:
            connect(secured).close()

        Retrying(stop=stop_after_delay(20), wait=wait_fixed(0.1), reraise=True)(connects)
        with open_before.cursor() as cursor:
            cursor.execute("select 1")
            assert cursor.fetchall() == [(1,)]
    for file, content in zip(files, before, strict=True):
        file.write_bytes(content)
    Retrying(stop=stop_after_delay(20), wait=wait_fixed(0.1), reraise=True)(connects)


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1"])
def test_old_versions_of_tls_are_refused(secured: LakeSettings, version: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that they are deprecated
        context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    with (
        socket.create_connection(("localhost", secured.sql_port)) as plain,
        pytest.raises((ssl.SSLError, OSError)),
    ):
        context.wrap_socket(plain)


def lets_in(settings: LakeSettings, user: str, password: str, address: str) -> bool:
    """Whether the endpoint lets in a user who connects from one of the loopback addresses."""
    context = ssl.create_default_context(cafile=settings.sql_tls_trust_certs_file)
    place, client = ("localhost", settings.sql_port), TSocket("localhost", settings.sql_port)
    with socket.create_connection(place, 10, source_address=(address, 0)) as plain:
        client.setHandle(context.wrap_socket(plain, server_hostname="localhost"))
        try:
            hive.Connection(username=user, thrift_transport=plain_sasl(client, user, password))
        except TTransportException as error:
            if "Error validating the login" not in str(error):
                raise
            return False
        finally:
            client.close()
    return True


def becomes(condition: Callable[[], bool]) -> None:
    def holds() -> None:
        assert condition()

    Retrying(stop=stop_after_delay(15), wait=wait_fixed(0.3), reraise=True)(holds)


HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"


def test_who_guesses_a_password_is_slowed_down_but_not_its_user_elsewhere(
    secured: LakeSettings,
) -> None:
    emils = "the one that is right"
    add_user(secured, "emil", emils, "owner")
    assert lets_in(secured, "emil", emils, HERE)
    for number in range(6):
        assert not lets_in(secured, "emil", f"wrong password {number}", ELSEWHERE)
    # A guess is not looked at in a pause, although the endpoint knows the password by now.
    assert not lets_in(secured, "emil", emils, ELSEWHERE)
    assert not lets_in(secured, "emil", emils, "127.0.0.3")
    for _ in range(3):
        assert lets_in(secured, "emil", emils, HERE)
    assert not lets_in(secured, "emil", emils, ELSEWHERE)  # the logins of Emil are no help
    becomes(lambda: lets_in(secured, "emil", emils, ELSEWHERE))


def test_who_guesses_a_password_at_the_address_of_its_user_is_slowed_down(
    secured: LakeSettings,
) -> None:
    freds = "of Fred, who is new"
    add_user(secured, "fred", freds, "owner")
    for number in range(7):
        assert lets_in(secured, "fred", freds, HERE) is (number < 5)
        assert not lets_in(secured, "fred", f"wrong password {number}", HERE)
    becomes(lambda: lets_in(secured, "fred", freds, HERE))


def test_attempts_at_the_same_moment_are_looked_at_one_by_one(secured: LakeSettings) -> None:
    guses = "of Gus, with many connections"
    add_user(secured, "gus", guses, "owner")
    with ThreadPoolExecutor(24) as pool:
        right = [pool.submit(lets_in, secured, "gus", guses, HERE) for _ in range(12)]
        assert all(each.result() for each in right)  # as of a pool of connections
        wrong = [
            pool.submit(lets_in, secured, "gus", f"wrong password {number}", ELSEWHERE)
            for number in range(24)
        ]
        assert not any(each.result() for each in wrong)
    # Had all been looked at, the pause would be a minute.
    becomes(lambda: lets_in(secured, "gus", guses, ELSEWHERE))


def test_tls_and_plain_text_cannot_connect_to_each_other(
    secured: LakeSettings, endpoint: LakeSettings
) -> None:
    assert "accepts only TLS. Set LAKEHOUSE_SQL_TLS=true" in refusal(
        changed(secured, sql_tls=False)
    )
    trust = {"sql_tls_trust_certs_file": secured.sql_tls_trust_certs_file}
    assert "does not speak TLS" in refusal(changed(endpoint, sql_tls=True, **trust))


def test_jdbc_clients_can_connect(
    secured: LakeSettings, certificates: Path, tmp_path: Path
) -> None:
    add_user(secured, "dora", "a-dozen-of-letters")
    (tmp_path / "password").write_text("a-dozen-of-letters")
    known = x509.load_pem_x509_certificate((certificates / "ca.pem").read_bytes())
    (tmp_path / "trust").write_bytes(
        pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(known, b"ca")], BestAvailableEncryption(b"changeit")
        )
    )
    address = f"jdbc:hive2://localhost:{secured.sql_port}/silver;ssl=true"
    trust = f";sslTrustStore={tmp_path / 'trust'};trustStorePassword=changeit"
    statement = ["--silent=true", "--outputformat=csv2", "-e", "select 1 as one;"]
    who = ["-n", "dora", "-w", tmp_path / "password"]
    beeline = Path(sys.executable).with_name("beeline")

    def run(url: str) -> subprocess.CompletedProcess[str]:
        command = [beeline, "-u", url, *who, *statement]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    let_in = run(address + trust)
    assert let_in.stdout == "one\n1\n", let_in.stderr
    assert "unable to find valid certification path" in run(address).stderr


def test_lakehouse_sql_uses_the_password_from_the_environment(
    secured: LakeSettings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("host", "port", "tls", "tls_trust_certs_file", "user"):
        monkeypatch.setenv(f"LAKEHOUSE_SQL_{name}".upper(), str(getattr(secured, f"sql_{name}")))
    monkeypatch.setattr(sys, "argv", ["lakehouse", "sql", "--format", "csv", "select 1 as one"])

    def run(password: str) -> tuple[object, str, str]:
        monkeypatch.setenv("LAKEHOUSE_SQL_PASSWORD", password)
        with pytest.raises(SystemExit) as end:
            cli.main()
        return (end.value.code, *capsys.readouterr())

    assert run(PASSWORD) == (0, "one\n1\n", "")
    code, out, err = run("something other")
    assert (code, out) == (2, "")
    assert "rejected the user 'anna'" in err
    assert "something other" not in err


@pytest.mark.nightly
def test_dbt_builds_with_password_and_tls_and_nothing_shows_the_password(
    secured: LakeSettings, certificates: Path, tmp_path: Path
) -> None:
    # Anna has to wait at this address after the wrong passwords of the tests before.
    add_user(secured, "dbt", PASSWORD, "owner")
    secured = knowing(secured, "dbt", PASSWORD, tmp_path)
    with prepare_build(Lake(secured), select="stg_orders") as build:
        children = psutil.Process().children(recursive=True)
        # A process that has ended but was not waited for has no command line.
        commands = [child.as_dict(["cmdline"], ad_value=[])["cmdline"] for child in children]
        assert any("gold.dbt" in word for command in commands for word in command)
        assert not any(PASSWORD in word for command in commands for word in command)
        assert [model.name for model in build.run().models] == ["stg_orders"]
    shown = [str(row) for sql in ("set", "set -v") for row in query_endpoint(secured, sql)[1]]
    assert not any(words in row for row in shown for words in (PASSWORD, "sql.p12"))
    files = [file.read_bytes() for file in secured.home_dir.rglob("*") if file.is_file()]
    assert any(b"stg_orders" in file for file in files)
    for secret in (PASSWORD.encode(), json.dumps(PASSWORD)[1:-1].encode()):
        assert not any(secret in file for file in files)


def test_dbt_does_not_connect_to_an_untrusted_server(
    secured: LakeSettings, certificates: Path, tmp_path: Path
) -> None:
    stranger = changed(secured, sql_tls_trust_certs_file=certificates / "stranger.pem")
    with pytest.raises(GoldError, match="unable to get local issuer"):
        build_gold(Lake(stranger), select="stg_orders")
    outcomes = []
    for settings in (secured, stranger):
        code, log = run_dbt(settings, tmp_path / "debug", ["debug", "--connection"], BUILT)
        outcomes.append((code, "Connection test: [OK" in log.read_text()))
    assert outcomes == [(0, True), (1, False)]


@pytest.fixture(scope="module")
def directory() -> Iterator[int]:
    """The port of an LDAP server with the user Bea."""
    server = Path(__file__).parents[2] / "support" / "ldap_server.py"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, server], **pipes) as process:  # type: ignore[call-overload]
        process.stdin.write(BEA)
        process.stdin.close()
        yield int(process.stdout.readline())
        process.terminate()


def test_ldap_decides_who_can_connect(
    shop_lake: ShopLake, directory: int, certificates: Path, tmp_path: Path
) -> None:
    own = {
        "sql_port": free_port(),
        "sql_authentication": "ldap",
        "sql_ldap_url": f"ldap://127.0.0.1:{directory}",
        "sql_ldap_user": "uid=%s,ou=people,dc=org",
    }
    settings = knowing(changed(shop_lake.settings, **own), "bea", BEAS, tmp_path)
    serving = start_endpoint(shop_lake.spark, settings)
    try:
        assert query_endpoint(settings, "select 1 as one") == (["one"], [(1,)])
        for user, password in (("bea", "another one"), ("bert", BEAS), ("*", BEAS)):
            said = refusal(knowing(settings, user, password, tmp_path))
            assert f"rejected the user '{user}'" in said
        assert "rejected the user" in refusal(changed(settings, sql_password_file=None))
    finally:
        serving.stop()


def test_ldap_groups_give_roles(
    shop_lake: ShopLake, directory: int, certificates: Path, tmp_path: Path
) -> None:
    own = {
        "sql_port": free_port(),
        "sql_authentication": "ldap",
        "sql_ldap_url": f"ldap://127.0.0.1:{directory}",
        "sql_ldap_user": "uid=%s,ou=people,dc=org",
        "sql_ldap_roles": {"cn=bi,ou=groups,dc=org": "reader", "Engineers": "owner"},
        "sql_ldap_group_base": "ou=groups,dc=org",
    }
    settings = changed(shop_lake.settings, **own)
    ole, bea, nele = (knowing(settings, name, BEAS, tmp_path) for name in ("ole", "bea", "nele"))
    serving = start_endpoint(shop_lake.spark, ole)
    try:
        bronze = "select count(*) >= 0 from bronze.users"
        assert query_endpoint(ole, bronze)[1] == [(True,)]
        with pytest.raises(SqlError, match="The role 'reader' may not read bronze.users"):
            query_endpoint(bea, bronze)
        assert "rejected the user 'nele'" in refusal(nele)  # no group of hers has a role
    finally:
        serving.stop()
