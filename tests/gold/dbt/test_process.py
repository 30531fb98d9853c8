"""Tests the processes of dbt. That their environment has no secret is tested with the settings."""

import contextlib
import os
import signal
from pathlib import Path

import pytest
from pydantic import SecretStr

from gold.dbt.process import MOST_RUNS, WarmDbt, dbt_environment, target_path
from gold.dbt.results import why_dbt_ended
from lake.settings.settings import load_settings


def test_dbt_is_told_the_endpoint_the_schema_and_the_declared_topics(tmp_path: Path) -> None:
    trust = tmp_path / "authorities.pem"
    settings = load_settings(
        home=tmp_path, sql_port=4711, sql_tls=True, sql_tls_trust_certs_file=trust, sql_user="anna"
    )
    found = dbt_environment(settings, target_path(settings), "gold_build_anna")
    assert found["LAKEHOUSE_SQL_PORT"] == "4711"
    assert found["LAKEHOUSE_SQL_TLS"] == "true"
    assert found["LAKEHOUSE_SQL_TLS_TRUST_CERTS_FILE"] == str(trust)
    assert found["LAKEHOUSE_SQL_USER"] == "anna"
    assert found["LAKEHOUSE_DBT_SCHEMA"] == "gold_build_anna"
    assert found["LAKEHOUSE_DECLARED_TOPICS"].split() == ["users", "items", "orders"]
    assert found["DBT_TARGET_PATH"] == str(tmp_path / "dbt")


@pytest.mark.parametrize("password", [None, "a dozen letters"])
def test_dbt_gets_a_password_only_if_there_is_one(tmp_path: Path, password: str | None) -> None:
    settings = load_settings(home=tmp_path)
    if password:
        settings = settings.model_copy(update={"sql_password": SecretStr(password)})
    found = dbt_environment(settings, tmp_path, "gold_build")
    assert found.get("DBT_ENV_SECRET_LAKEHOUSE_SQL_PASSWORD") == password


@pytest.mark.programs
def test_the_log_says_why_dbt_cannot_be_loaded(tmp_path: Path) -> None:
    log = tmp_path / "dbt.log"
    (tmp_path / "thrift.py").write_text("raise ImportError('thrift is broken')")
    with contextlib.closing(WarmDbt()) as warm:
        process = warm.process(tmp_path, {**os.environ}, log)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert process.run(["--help"], {}) == 1
        assert why_dbt_ended(log.read_text()) == "ImportError: thrift is broken."


@pytest.mark.nightly
@pytest.mark.programs
def test_one_process_runs_dbt_again_and_is_replaced_when_it_cannot(tmp_path: Path) -> None:
    log = tmp_path / "dbt.log"
    places = {"DBT_TARGET_PATH": str(tmp_path / "target"), "DBT_LOG_PATH": str(tmp_path / "logs")}
    given = {**os.environ, **places}
    with contextlib.closing(WarmDbt()) as warm:
        first = warm.process(tmp_path, given, log)
        for command, code, says in (("--help", 0, "Commands:"), ("fly", 2, "No such command")):
            process = warm.process(tmp_path, given, log)
            assert process is first
            assert process.run([command], {}) == code
            assert says in log.read_text()
        assert "Commands:" not in log.read_text(), "the log is that of the last run"

        os.kill(first.pid, signal.SIGKILL)
        assert first.run(["--help"], {}) == -signal.SIGKILL
        second = warm.process(tmp_path, given, log)
        assert second is not first
        assert second.run(["--help"], {}) == 0
        second.runs = MOST_RUNS
        third = warm.process(tmp_path, given, log)
        assert third is not second
        assert warm.process(tmp_path, {**given, "DBT_OTHER": "1"}, log) is not third
        with pytest.raises(ProcessLookupError):
            os.kill(third.pid, 0)
