"""Tests that logs have the requested format and never contain a secret."""

import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from gold.__main__ import app as gold_job
from lake.observe.logs import configure_logs
from lake.streams.command import exit_with
from lakehouse import cli
from lakehouse.runtime.terminal import err, step
from pulsar_spark.broker.connection import Connection
from pulsar_spark.errors import LakehouseError

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJqb2IifQ.sflKxwRJSMeKKF2QT4"  # pragma: allowlist secret
SECRETS = ("s3cret-of-the-issuer", JWT, "hunter22")


@pytest.fixture(autouse=True)
def text_again() -> Iterator[None]:
    logging.captureWarnings(False)  # pytest has reset them since an earlier test
    yield
    configure_logs()


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return [json.loads(line) for line in captured.err.splitlines()]


@pytest.mark.filterwarnings("default:an old setting")
def test_json_logs_have_one_object_per_line_whichever_library_logs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logs("json")
    structlog.get_logger().info("batch refined", batch=7, topics=["users"], note="größer\nzwei")
    logging.getLogger("httpx").warning("retrying %s", "users")
    warnings.warn("an old setting", stacklevel=1)
    with step("Starting the streams"):
        err.print("[red]Error:[/red] " + "long " * 100)
    found = lines(capsys)
    assert [list(event)[:3] for event in found] == [["timestamp", "level", "event"]] * len(found)
    assert {**found[0], "timestamp": ""} == {
        "timestamp": "",
        "level": "info",
        "event": "batch refined",
        "batch": 7,
        "topics": ["users"],
        "note": "größer\nzwei",
    }
    assert (found[1]["event"], found[1]["level"]) == ("retrying users", "warning")
    assert found[1]["logger"] == "httpx"
    assert "an old setting" in str(found[2]["event"])
    assert found[3]["event"] == ("Error: " + "long " * 100).strip()
    assert str(found[4]["event"]).startswith("Starting the streams ")


def test_text_without_a_terminal_is_logfmt(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs()
    structlog.get_logger().warning("columns added", table="silver.users_state")
    said = capsys.readouterr().err
    assert 'level=warning event="columns added" table=silver.users_state\n' in said


def test_an_error_that_ends_a_command_is_also_an_event(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("json")

    def command() -> None:
        place = "pulsar://shop:hunter22@host"  # pragma: allowlist secret
        message = f"The broker at {place} refused {JWT}."
        raise LakehouseError(message)

    with pytest.raises(SystemExit) as end:
        exit_with(command, traces=lambda: True)
    assert end.value.code == 2
    [event] = lines(capsys)
    assert (event["level"], event["event"], event["exit_code"]) == ("error", "failed", 2)
    assert event["error"] == "The broker at pulsar://***@host refused ***."
    assert "Traceback" in str(event["exception"])
    assert not any(secret in json.dumps(event) for secret in SECRETS)


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_secret_gets_into_a_log(
    form: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A secret is found by field name, by its shape, or because it was read to connect."""
    configure_logs("json" if form == "json" else "text")
    file = tmp_path / "token"
    file.write_text("s3cret-of-the-issuer\n")
    Connection("pulsar://a:1", "http://a:2", token_file=str(file)).token()
    log = structlog.get_logger()
    nested = {"client_secret": "any", "seen": [JWT]}  # pragma: allowlist secret
    log.info("asked", **{"pulsar_token": "any"}, nested=nested)
    url = "https://shop:hunter22@host/x?token=any"  # pragma: allowlist secret
    log.info("Authorization: Bearer abcdefghijkl", url=url)
    logging.getLogger("pulsar").error("sent s3cret-of-the-issuer, then %s", JWT)
    try:
        raise ValueError(JWT)
    except ValueError:
        log.exception("failed", password=None, pulsar_token_file=str(file))
    said = capsys.readouterr().err
    assert said.count("***") >= 7
    assert str(file) in said
    for secret in (*SECRETS, "any", "abcdefghijkl"):
        assert secret not in said, secret


def test_the_format_can_be_set_by_option_environment_or_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def run(command: Callable[[], object], *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["lakehouse", *arguments])
        with pytest.raises(SystemExit, match="2"):
            command()
        return capsys.readouterr().err

    def gold() -> None:
        exit_with(gold_job)

    assert json.loads(run(cli.main, "--log-format", "json", "report"))["event"] == "failed"
    assert run(gold, "--available-now").startswith("Error: ")
    monkeypatch.setenv("LAKEHOUSE_LOG_FORMAT", "json")
    assert json.loads(run(gold, "--available-now"))["event"] == "failed"
    monkeypatch.delenv("LAKEHOUSE_LOG_FORMAT")
    (tmp_path / "lakehouse.toml").write_text('log_format = "json"')
    assert json.loads(run(cli.main, "report"))["event"] == "failed"
    assert run(cli.main, "--log-format", "text", "report").startswith("Error: ")
    monkeypatch.setenv("LAKEHOUSE_LOG_FORMAT", "xml")
    assert "'log_format'" in run(gold, "--available-now")
