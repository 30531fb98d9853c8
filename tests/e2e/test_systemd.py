"""Tests that the units in deploy/systemd are valid and refer only to things that exist."""

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from lake.settings.settings import LakeSettings
from lakehouse import cli
from lakehouse.runtime.broker import STOP_SECONDS

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNITS = sorted(FOLDER.iterdir())
SERVICES = [unit for unit in UNITS if unit.suffix == ".service"]
PROGRAM = "/opt/lakehouse/.venv/bin/lakehouse"
LAKEHOUSE = Path(sys.executable).with_name("lakehouse")
HARDENED = {
    *("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "ProtectKernelModules"),
    *("ProtectKernelTunables", "ProtectControlGroups", "LockPersonality", "RestrictSUIDSGID"),
}


def parts(unit: Path) -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=False, interpolation=None, delimiters="=")
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read(unit)
    return found


def verify(folder: Path) -> str:
    """Return the complaints of systemd about an instance of each unit in a folder."""
    named = [str(unit).replace("@.", "@shop.") for unit in sorted(folder.iterdir())]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *named],
        capture_output=True,
        text=True,
        check=False,
    )
    return "".join(
        line for line in done.stderr.splitlines(keepends=True) if "lakehouse" in line
    ) + (f"exit code {done.returncode}" if done.returncode else "")


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    """The units, with the program that is installed here."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text().replace(PROGRAM, str(LAKEHOUSE)))
    return tmp_path


def test_systemd_accepts_the_units(copies: Path) -> None:
    assert verify(copies) == ""


def test_systemd_notices_a_misspelt_key(copies: Path) -> None:
    unit = copies / "lakehouse@.service"
    unit.write_text(unit.read_text().replace("KillMode=", "KilMode="))
    assert "KilMode" in verify(copies)


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_commands_and_settings_exist(unit: Path) -> None:
    text = unit.read_text()
    command = re.search(rf"^ExecStart={re.escape(PROGRAM)} (\w+)", text, re.MULTILINE)
    assert command
    known = get_command(cli.app).commands  # type: ignore[attr-defined]
    assert command[1] in known
    options = {name for each in known[command[1]].params for name in each.opts}
    [line] = [line for line in text.splitlines() if line.startswith(f"ExecStart={PROGRAM}")]
    assert {word for word in line.split() if word.startswith("--")} <= options
    settings = {name.lower() for name in re.findall(r"LAKEHOUSE_([A-Z_]+)", text)}
    assert settings <= LakeSettings.model_fields.keys()


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_services_are_hardened_alike(unit: Path) -> None:
    service = parts(unit)["Service"]
    assert {name for name in HARDENED if service.get(name) == "yes"} == HARDENED
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""
    assert service["User"] == "lakehouse"
    assert "MemoryDenyWriteExecute" not in service, "Java could not compile"


def test_a_stop_gives_batches_and_the_broker_their_time() -> None:
    service = parts(FOLDER / "lakehouse@.service")["Service"]
    stop = LakeSettings.model_fields["stop_seconds"].default
    assert int(service["TimeoutStopSec"]) >= stop + 2 * STOP_SECONDS + 10
    assert service["KillMode"] == "mixed"
    assert service["Type"] == "notify"


def test_each_timer_starts_an_existing_service() -> None:
    timers = [unit for unit in UNITS if unit.suffix == ".timer"]
    assert timers
    for timer in timers:
        assert timer.with_suffix(".service") in SERVICES
