"""Tests who can reach the console, and that its settings are checked before anything starts."""

import os
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from pydantic import SecretStr
from quiet_lake import QuietLake
from served_console import quiet_settings, serving

from lake.settings.settings import LakeSettings
from lakehouse.console.server import console, require_access
from lakehouse.runtime.address import console_url
from lakehouse.runtime.ports import free_port
from pulsar_spark.errors import SettingsError

ROOT = Path(__file__).parents[3]
TOKEN = "a-long-enough-token-for-tests"  # noqa: S105 # pragma: allowlist secret


def certificate(folder: Path, *names: str) -> tuple[dict[str, Path], trustme.CA]:
    """Write a certificate with these names and its key; returns the settings and the authority."""
    authority = trustme.CA()
    issued = authority.issue_cert(*names)
    files = {
        "console_tls_certificate_file": folder / "console.pem",
        "console_tls_key_file": folder / "console.key",
    }
    issued.cert_chain_pems[0].write_to_path(files["console_tls_certificate_file"])
    issued.private_key_pem.write_to_path(files["console_tls_key_file"])
    files["console_tls_key_file"].chmod(0o600)
    return files, authority


def with_token(settings: LakeSettings, token: str = TOKEN) -> LakeSettings:
    return settings.model_copy(update={"console_token": SecretStr(token)})


@pytest.mark.parametrize(
    ("own", "says"),
    [
        ({}, "does not ask for a token .* and is not encrypted"),
        ({"console_token": SecretStr(TOKEN)}, "is not encrypted"),
    ],
)
def test_beyond_loopback_it_needs_a_token_and_tls(
    tmp_path: Path, own: dict[str, Any], says: str
) -> None:
    settings = quiet_settings(tmp_path, console_host="0.0.0.0")  # noqa: S104 - refused
    with pytest.raises(SettingsError, match=says):
        require_access(settings.model_copy(update=own))


def test_with_both_it_may_listen_beyond_loopback(tmp_path: Path) -> None:
    files, _ = certificate(tmp_path, "lake.example.org", "10.1.2.3")
    settings = with_token(quiet_settings(tmp_path, console_host="0.0.0.0", **files))  # noqa: S104
    access = require_access(settings)
    assert access.knows_host("lake.example.org:443")
    assert access.knows_host("10.1.2.3")
    assert not access.knows_host("other.example.org")


@pytest.mark.parametrize(
    ("own", "says"),
    [
        ({"console_tls_key_file": Path("none.key")}, "needs .*CERTIFICATE_FILE and .*KEY_FILE"),
        (
            {
                "console_tls_certificate_file": Path("no.pem"),
                "console_tls_key_file": Path("no.key"),
            },
            "no.pem cannot be read as PEM certificates",
        ),
        ({"console_token": SecretStr("short")}, "shorter than 16 characters"),
        ({"console_token_file": Path("absent")}, "absent does not exist"),
    ],
)
def test_wrong_settings_are_refused_with_a_remedy(
    tmp_path: Path, own: dict[str, Any], says: str
) -> None:
    settings = quiet_settings(tmp_path).model_copy(update=own)
    with pytest.raises(SettingsError, match=says) as refused:
        require_access(settings)
    assert refused.value.remedy


def test_a_key_that_does_not_belong_to_the_certificate_is_refused(tmp_path: Path) -> None:
    files, _ = certificate(tmp_path, "localhost")
    (tmp_path / "other").mkdir()
    others, _ = certificate(tmp_path / "other", "localhost")
    own = {**files, "console_tls_key_file": others["console_tls_key_file"]}
    with pytest.raises(SettingsError, match="does not belong to the first certificate"):
        require_access(quiet_settings(tmp_path, **own))


def test_a_token_in_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o644)
    settings = quiet_settings(tmp_path, console_token_file=file)
    with pytest.raises(SettingsError, match="gives other users"):
        require_access(settings)
    file.chmod(0o600)
    assert require_access(settings).is_token(TOKEN)


def test_a_browser_logs_in_by_tls_and_stays_known_over_restarts(tmp_path: Path) -> None:
    files, authority = certificate(tmp_path, "localhost", "127.0.0.1")
    settings = with_token(quiet_settings(tmp_path, console_actions=True, **files))
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    with (
        console(QuietLake(settings).lake) as address,
        httpx.Client(base_url=address, verify=trusted) as client,
    ):
        assert address == console_url(settings)
        assert address.startswith("https://127.0.0.1:")
        page = client.get("/", headers={"Accept": "text/html"})
        assert (page.status_code, page.headers["location"]) == (303, "/login")
        assert client.get("/events").status_code == 401
        assert client.get("/static/console.css").status_code == 200
        origin = {"Origin": address}
        wrong = client.post("/login", data={"token": "wrong" * 5}, headers=origin)
        assert wrong.status_code == 401
        assert "not the token" in wrong.text
        answer = client.post("/login", data={"token": TOKEN}, headers=origin)
        assert answer.status_code == 303
        assert {"HttpOnly", "Secure", "SameSite=strict"} <= {
            *answer.headers["set-cookie"].split("; ")
        }
        assert client.get("/").status_code == 200
        assert "strict-transport-security" in client.get("/").headers
        cookies = client.cookies
    with (
        console(QuietLake(settings).lake) as address,
        httpx.Client(base_url=address, verify=trusted, cookies=cookies) as client,
    ):
        assert client.get("/streams").status_code == 200
        stale = client.post("/streams/pause", data={"csrf": "x"}, headers={"Origin": address})
        assert stale.status_code == 403
    other = with_token(settings, f"{TOKEN}-2")
    with (
        console(QuietLake(other).lake) as address,
        httpx.Client(base_url=address, verify=trusted, cookies=cookies) as client,
    ):
        assert client.get("/streams").status_code == 401
        bearer = {"Authorization": f"Bearer {TOKEN}-2"}
        assert client.get("/streams", headers=bearer).status_code == 200


def test_a_port_in_use_is_refused_with_the_setting_to_change(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        settings = quiet_settings(tmp_path, console_port=listener.getsockname()[1])
        refused = pytest.raises(SettingsError, match="LAKEHOUSE_CONSOLE_PORT")
        with refused, serving(QuietLake(settings)):
            pytest.fail("served")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_it_is_told_to_end(tmp_path: Path, number: signal.Signals) -> None:
    port = free_port()
    with subprocess.Popen(
        [sys.executable, "-m", "lakehouse", "console", "--console-actions"],
        cwd=tmp_path,
        env={**os.environ, "LAKEHOUSE_CONSOLE_PORT": str(port), "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line == f"Console: http://127.0.0.1:{port}  Press Ctrl-C to stop.\n"
        assert httpx.get(f"http://127.0.0.1:{port}/streams").status_code == 200
        process.send_signal(number)
        assert process.stderr.read() == ""
    assert process.returncode == 0
