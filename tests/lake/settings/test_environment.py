"""Tests that the environment of started processes contains none of our secrets."""

from pathlib import Path

import pytest
from live_shop import until
from pydantic import SecretStr
from s3_server import CREDENTIALS

from gold.build import prepare_build
from lake.settings.settings import LakeSettings, load_settings
from lake.tables.lake import Lake
from lakehouse.runtime.broker import Broker, start_broker
from pulsar_spark.errors import SettingsError

CANARY = "canary-4711"
SECRETS = [
    f"LAKEHOUSE_{name.upper()}"
    for name, field in LakeSettings.model_fields.items()
    if SecretStr in getattr(field.annotation, "__args__", ())
]
OTHERS = [
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    *("OPENLINEAGE_API_KEY", "DATABRICKS_TOKEN", "GITHUB_TOKEN", "PGPASSWORD", "HTTPS_PROXY"),
    *("AZURE_CLIENT_SECRET", "GOOGLE_APPLICATION_CREDENTIALS", "MY_COMPANYS_VAULT"),
]


def environment_of(pid: int) -> dict[str, str]:
    file = Path(f"/proc/{pid}/environ")
    until(lambda: "PATH=" in file.read_text(), "the environment")  # empty while it starts
    pairs = file.read_text().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if pair)


@pytest.mark.programs
def test_dbt_gets_the_password_of_the_endpoint_and_no_other_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {"LAKEHOUSE_PULSAR_TOKEN", "LAKEHOUSE_SQL_PASSWORD"} <= {*SECRETS}
    for name in (*SECRETS, *OTHERS):
        monkeypatch.setenv(name, CANARY)
    monkeypatch.setenv("LAKEHOUSE_SQL_PASSWORD", "of-the-endpoint")
    monkeypatch.setenv("DBT_PARTIAL_PARSE", "false")
    with prepare_build(Lake(load_settings(home=tmp_path))) as build:
        found = environment_of(build.process.pid)
    assert [name for name, value in found.items() if CANARY in value] == []
    known = [name for name, value in found.items() if value == "of-the-endpoint"]
    assert known == ["DBT_ENV_SECRET_LAKEHOUSE_SQL_PASSWORD"]
    assert found["DBT_PARTIAL_PARSE"] == "false"
    assert found["LAKEHOUSE_DBT_SCHEMA"] == "gold_build"


def test_the_embedded_broker_gets_no_secret(broker: Broker) -> None:
    found = environment_of(broker.pid)
    assert "PATH" in found
    assert not CREDENTIALS.keys() & found.keys()  # the suite has set them


def test_a_home_whose_name_pulsar_cannot_handle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError, match="Pulsar does not accept ' ' in a path. Set LAKEHOUSE_HOME"
    ):
        start_broker(load_settings(home=tmp_path / "my home"))
