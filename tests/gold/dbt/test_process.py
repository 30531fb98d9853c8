"""Tests the environment in which dbt runs. That it holds no secret is tested with the settings."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from gold.dbt.process import dbt_environment, target_path
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
