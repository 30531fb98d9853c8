"""Tests that docker-compose.yaml is valid and refers only to things that exist; nothing is run."""

import re
from pathlib import Path

import pytest
import yaml
from compose_spec import PyCompose
from typer.main import get_command

from lake.settings.settings import LakeSettings
from lakehouse import cli

ROOT = Path(__file__).parents[2]
# Compose puts the values of variables in; the validator does not, and here none is set.
TEXT = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", (ROOT / "docker-compose.yaml").read_text())
MERGED = yaml.safe_dump(yaml.safe_load(TEXT))  # the validator does not support YAML merge keys
SERVICES = yaml.safe_load(TEXT)["services"]


def test_the_file_conforms_to_the_compose_specification() -> None:
    services = PyCompose.from_yaml(MERGED).service_names()
    assert set(services) == {"pulsar", "topics", "users", "streams", "gold", "shop"}


def test_the_validation_can_fail() -> None:
    with pytest.raises(Exception, match="healthcheck|helthcheck"):
        PyCompose.from_yaml(MERGED.replace("healthcheck:", "helthcheck:"))


def test_services_wait_only_for_services_that_report_when_they_are_ready() -> None:
    for service in SERVICES.values():
        for other, wait in service.get("depends_on", {}).items():
            ready = wait["condition"] == "service_completed_successfully"
            assert ready or "healthcheck" in SERVICES[other], other


def test_commands_and_settings_exist_in_the_lakehouse() -> None:
    commands = set(get_command(cli.app).commands)  # type: ignore[attr-defined]
    one_word = ("topics", "users", "streams", "gold")
    named = {SERVICES[name]["command"].split()[0] for name in one_word}
    named |= set(re.findall(r"lakehouse ([a-z-]+) --", SERVICES["shop"]["command"][0]))
    assert named == {"create-topics", "sql-user", "up", "gold", "generate", "publish"}
    assert named <= commands
    settings = set(re.findall(r"LAKEHOUSE_([A-Z_]+):", TEXT))
    assert {name.lower() for name in settings} <= set(LakeSettings.model_fields)


def test_the_broker_has_the_version_of_the_embedded_one() -> None:
    lock = (ROOT / "lakehouse" / "runtime" / "jars.lock").read_text()
    version = re.search(r"pulsar-broker:([\d.]+)", lock)
    assert version
    assert SERVICES["pulsar"]["image"] == f"apachepulsar/pulsar:{version[1]}"


def test_the_image_has_the_locked_packages_without_the_tools_of_developers() -> None:
    pin = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)
    everything, image = (
        dict(pin.findall((ROOT / f"{name}.lock").read_text()))
        for name in ("requirements", "requirements-image")
    )
    assert image.items() <= everything.items()
    assert {"pyspark", "openlineage-python", "psycopg"} <= image.keys()
    assert not {"pytest", "mypy", "playwright", "duckdb"} & image.keys()
