"""Tests that each project finds its own services, and never those of another project."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lake.settings.ports import DEFAULTS, FILE, expected_port, keep_ports, known_ports
from lake.settings.settings import LakeSettings, load_settings
from lakehouse.runtime import ports
from lakehouse.runtime.ports import choose_ports
from pulsar_spark.errors import LakehouseError


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PULSAR_URL", "PULSAR_ADMIN_URL", "SQL_PORT", "SQL_HOST"):
        monkeypatch.delenv(f"LAKEHOUSE_{name}", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def all_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """The defaults are free, whatever runs on the machine of the tests."""
    monkeypatch.setattr(ports, "_is_usable", lambda port, taken: port not in taken)


def project(tmp_path: Path, name: str, **more: Any) -> LakeSettings:
    return load_settings(home=tmp_path / name / ".lakehouse", cache=tmp_path / "cache", **more)


def of(settings: LakeSettings) -> tuple[int, int, int]:
    broker, admin = settings.pulsar_url, settings.pulsar_admin_url
    return int(broker.rpartition(":")[2]), int(admin.rpartition(":")[2]), settings.sql_port


def test_the_first_project_gets_the_defaults_and_the_others_get_their_own(
    tmp_path: Path, all_free: None
) -> None:
    first = choose_ports(project(tmp_path, "a"), broker=True)
    assert of(first) == (6650, 8080, 10000)
    others = [choose_ports(project(tmp_path, name), broker=True) for name in "bcd"]
    everything = [port for settings in (first, *others) for port in of(settings)]
    assert len({*everything}) == len(everything)
    for settings, name in zip((first, *others), "abcd", strict=True):
        assert of(project(tmp_path, name)) == of(settings), "each command finds them"
        assert of(choose_ports(project(tmp_path, name), broker=True)) == of(settings), "they stay"
        assert settings.pulsar_url.startswith("pulsar://127.0.0.1:")


def test_a_command_before_the_first_start_does_not_find_the_services_of_another_project(
    tmp_path: Path, all_free: None
) -> None:
    assert of(project(tmp_path, "b")) == (6650, 8080, 10000)
    choose_ports(project(tmp_path, "a"), broker=True)
    before = project(tmp_path, "b")
    assert {*of(before)}.isdisjoint({6650, 8080, 10000})
    assert not (before.home_dir / FILE).exists(), "a command that only looks chooses nothing"
    assert of(choose_ports(before, broker=True)) == of(before)


def test_projects_that_start_at_the_same_time_get_different_ports(
    tmp_path: Path, all_free: None
) -> None:
    names = [f"p{n}" for n in range(12)]
    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda n: choose_ports(project(tmp_path, n), broker=True), names))
    everything = [port for settings in found for port in of(settings)]
    assert len({*everything}) == len(everything)


def test_named_ports_are_used_as_they_are(tmp_path: Path, all_free: None) -> None:
    choose_ports(project(tmp_path, "a"), broker=True)
    named = project(tmp_path, "b", pulsar_url="pulsar://broker:6650", sql_port=10000)
    chosen = choose_ports(named, broker=True)
    assert (chosen.pulsar_url, chosen.sql_port) == ("pulsar://broker:6650", 10000)
    assert known_ports(named.home_dir).keys() == {"console"}
    beyond = choose_ports(project(tmp_path, "c", sql_host="0.0.0.0"), broker=True)  # noqa: S104
    assert beyond.sql_port == 10000


def test_variables_and_the_file_of_settings_name_ports(
    tmp_path: Path, all_free: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose_ports(project(tmp_path, "a"), broker=True)
    monkeypatch.setenv("LAKEHOUSE_SQL_PORT", "10000")
    (tmp_path / "lakehouse.toml").write_text('pulsar_admin_url = "http://127.0.0.1:8080"\n')
    found = choose_ports(project(tmp_path, "b"), broker=True)
    assert of(found) == (6650, 8080, 10000)


def test_a_broker_that_runs_already_gets_no_port(tmp_path: Path, all_free: None) -> None:
    """A broker of one's own at the default address is used, by each project."""
    for name in "ab":
        found = choose_ports(project(tmp_path, name), broker=False)
        assert of(found)[:2] == (6650, 8080)
        assert known_ports(found.home_dir).keys() == {"sql", "console"}


def test_a_port_in_use_is_not_chosen(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        taken = listener.getsockname()[1]
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(DEFAULTS, "sql", taken)
            found = choose_ports(project(tmp_path, "a"), broker=False)
    assert found.sql_port != taken
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", found.sql_port))


def test_the_ports_of_a_deleted_project_are_free_again(tmp_path: Path, all_free: None) -> None:
    first = choose_ports(project(tmp_path, "a"), broker=True)
    (first.home_dir / FILE).unlink()
    assert of(choose_ports(project(tmp_path, "b"), broker=True)) == (6650, 8080, 10000)


@pytest.mark.parametrize("torn", ["", "{", "\0"])
def test_a_torn_file_is_refused_with_a_remedy(tmp_path: Path, torn: str) -> None:
    home = tmp_path / "a" / ".lakehouse"
    keep_ports(home, tmp_path / "cache", {"sql": 10000})
    (home / FILE).write_text(torn)
    with pytest.raises(LakehouseError, match=r"ports.json is empty or torn.*chooses ports again"):
        project(tmp_path, "a")


def test_the_expected_ports_of_a_home_differ_and_are_below_the_ephemeral_range() -> None:
    others = dict.fromkeys(DEFAULTS.values(), Path("/other"))
    found = [expected_port(kind, Path("/home/me/.lakehouse"), others) for kind in DEFAULTS]
    assert len({*found}) == len(DEFAULTS)
    assert all(15_000 <= port < 32_000 for port in found)


def test_the_file_is_json_for_other_programs(tmp_path: Path, all_free: None) -> None:
    chosen = choose_ports(project(tmp_path, "a"), broker=True)
    stored = json.loads((chosen.home_dir / FILE).read_text())
    assert stored == {"broker": 6650, "admin": 8080, "sql": 10000, "console": 8090}
