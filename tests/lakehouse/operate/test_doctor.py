"""Tests that each check of `lakehouse doctor` finds its problem."""

import datetime as dt
import importlib.metadata
import platform
import re
import shutil
import socket
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from landed_lake import QUERY, landed_lake
from live_shop import until
from quiet_lake import QuietLake
from shop_lake import ShopLake
from topic import GOOD, LiveTopic, Outgoing, declared, events

from bronze.ingest import subscription
from gold.sql_client import SqlError
from lake.settings.settings import SHOP_DBT, LakeSettings, load_settings
from lake.streams.checkpoint import IDENTITY, UNFINISHED, claim
from lake.streams.given_up import GIVEN_UP
from lake.tables.lake import Lake
from lake.tables.spec import bronze_table
from lakehouse.console.server import console
from lakehouse.operate import doctor
from lakehouse.operate.doctor import GIB, Finding, kept
from lakehouse.runtime.broker import Broker
from lakehouse.runtime.jars import COMPLETE, jar_folder, read_lock
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.offsets import START

ELSEWHERE = {
    "pulsar_url": "pulsar://192.0.2.1:6650",
    "pulsar_admin_url": "http://192.0.2.1:8080",
    "sql_host": "192.0.2.1",
    "console": False,
}


def only(found: Iterable[Finding], state: str, *says: str) -> None:
    """Check that there is one finding, with this state and these words."""
    [finding] = found
    assert finding.state == state, finding
    assert bool(finding.remedy) is (state != "ok")
    for words in says:
        assert words in f"{finding.found} {finding.remedy}"


def test_an_unsuitable_python_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    only(doctor.python(), "ok")
    monkeypatch.setattr(platform, "python_version", lambda: "3.8.1")
    only(doctor.python(), "fail", "3.8.1, but", ">=3.10")


def test_missing_packages_and_wrong_versions_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    only(doctor.packages(), "ok", "pyspark 4.2.0")
    wanted = ["pyspark==1.0", "no-such-thing>=2", "rich", "ruff==0; extra == 'dev'"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: wanted)
    version = importlib.metadata.version("pyspark")
    says = (f"pyspark {version} (==1.0 is needed); no-such-thing is missing (>=2", "lock")
    only(doctor.packages(), "fail", *says)


def test_an_unsuitable_java_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    only(doctor.java(), "fail", "has no working bin/java", "unset it")
    monkeypatch.setattr(doctor, "find_java", lambda: tmp_path / "java")
    only(doctor.java(), "fail", "does not run", "Install Java 17, 21 or 25")


def test_jars_that_differ_from_the_lock_are_reported(tmp_path: Path) -> None:
    settings = load_settings(cache=tmp_path, **ELSEWHERE)
    locked = read_lock("spark")
    folder = jar_folder(settings, "spark", locked)
    only(doctor.jars(settings), "warn", f"{len(locked)} of {len(locked)} are not fetched yet")
    folder.mkdir(parents=True)
    (folder / COMPLETE).touch()
    only(doctor.jars(settings), "fail", f"missing: {locked[0].file_name}", str(folder))
    (folder / locked[0].file_name).write_bytes(b"something else")
    only(doctor.jars(settings), "fail", f"different from jars.lock: {locked[0].file_name}")
    (folder / locked[0].file_name).rename(folder / "more.jar")
    only(doctor.jars(settings), "fail", "different from jars.lock: more.jar")


def test_an_unknown_variable_is_reported_with_the_nearest_setting() -> None:
    profiles = (SHOP_DBT / "profiles.yml").read_text()
    read_by_dbt = dict.fromkeys(re.findall(r"LAKEHOUSE_\w+", profiles), "x")
    only(doctor.variables({**read_by_dbt, "LAKEHOUSE_RESTARTS": "1", "PATH": "x"}), "ok")
    says = ("LAKEHOUSE_RESTART is not a setting", "Did you mean LAKEHOUSE_RESTARTS?")
    only(doctor.variables({"LAKEHOUSE_RESTART": "1"}), "warn", *says)


def test_unwritable_folders_are_reported(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path / "home", cache=tmp_path)
    only(doctor.folders(settings), "ok")
    assert not settings.home_dir.exists()
    refused = settings.model_copy(update={"lake": Path("/proc/lake")})
    only(doctor.folders(refused), "fail", "not writable: /proc/lake (", "LAKEHOUSE_LAKE")


@pytest.mark.parametrize(("free", "state"), [(0.5, "fail"), (2, "warn"), (100, "ok")])
def test_a_full_disk_is_reported_before_it_stops_the_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: float, state: str
) -> None:
    usage = SimpleNamespace(free=free * GIB)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    only(doctor.disk(load_settings(home=tmp_path)), state, f"{free:.1f} GiB free")


def test_a_port_in_use_is_reported_unless_we_serve_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gold.sql_client.CONNECT_SECONDS", 0.1)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        taken = listener.getsockname()[1]
        own = {**ELSEWHERE, "sql_host": "127.0.0.1"}
        settings = load_settings(sql_port=taken, **own)
        only(doctor.ports(settings, answers=False), "fail", f"{taken} is in use", "SQL_PORT")
        connect = load_settings(connect_port=taken, **ELSEWHERE)
        only(doctor.ports(connect, answers=False), "fail", "LAKEHOUSE_CONNECT_PORT")
        urls = {
            "pulsar_url": f"pulsar://127.0.0.1:{taken}",
            "pulsar_admin_url": f"http://127.0.0.1:{taken}",
        }
        local = load_settings(sql_host="192.0.2.1", console=False, **urls)
        monkeypatch.setattr(doctor, "endpoint_running", lambda _: True)
        assert [each.state for each in doctor.ports(local, answers=False)] == ["fail"] * 2
        assert [each.state for each in doctor.ports(local, answers=True)] == ["ok"] * 2
        only(doctor.ports(settings, answers=False), "ok", "in use by the running lakehouse")
    only(doctor.ports(settings, answers=False), "ok", "free")


def test_the_port_of_the_console_may_be_in_use_by_the_console_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("gold.sql_client.CONNECT_SECONDS", 0.1)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        own = {**ELSEWHERE, "home": tmp_path, "console": True, "console_port": port}
        settings = load_settings(**own)
        only(doctor.ports(settings, answers=False), "fail", f"{port} is in use", "CONSOLE_PORT")
    with console(Lake(settings)):
        only(doctor.ports(settings, answers=False), "ok", "in use by the running lakehouse")


def test_an_endpoint_that_rejects_us_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: LakeSettings) -> bool:
        what = "It rejected the user 'anna'."
        raise SqlError(what, "Set LAKEHOUSE_SQL_PASSWORD_FILE.")

    monkeypatch.setattr(doctor, "endpoint_running", refuse)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        settings = load_settings(**{**ELSEWHERE, "sql_host": "127.0.0.1", "sql_port": port})
        client, served = doctor.ports(settings, answers=False)
    assert (client.state, client.found) == ("warn", "It rejected the user 'anna'")
    assert client.remedy == "Set LAKEHOUSE_SQL_PASSWORD_FILE."
    assert (served.state, served.check) == ("ok", f"port {port}")


def test_a_missing_broker_and_an_untested_version_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = load_settings(**ELSEWHERE)
    only(doctor.broker(away, answers=False), "fail", "http://192.0.2.1:8080", "PULSAR_ADMIN_URL")
    only(doctor.broker(load_settings(), answers=False), "warn", "`lakehouse up` starts one")
    for version, state in (("4.2.4", "ok"), ("2.11.0", "warn"), ("unknown", "warn")):
        monkeypatch.setattr(PulsarAdmin, "version", lambda _, v=version: v)
        only(doctor.broker(away, answers=True), state, f"Pulsar {version}")


@pytest.fixture
def landed(tmp_path: Path) -> LakeSettings:
    return landed_lake(tmp_path)


def test_a_checkpoint_and_a_table_that_agree_are_ok(landed: LakeSettings, tmp_path: Path) -> None:
    tables = [bronze_table("o")]
    only(doctor.streams(Lake(landed), QUERY, tables), "ok", "agrees with its tables, batch 3")
    new = load_settings(home=tmp_path / "new")
    only(doctor.streams(Lake(new), QUERY, tables), "ok", "has not run yet")
    assert not new.lake_dir.exists()


def test_a_disagreement_and_a_stream_that_was_given_up_are_reported(landed: LakeSettings) -> None:
    folder = Path(landed.checkpoint_path(QUERY))
    note = '{"at": "2026-01-02T03:04:05+00:00", "reason": "gone."}'
    (folder / GIVEN_UP).write_text(note)
    found = doctor.streams(Lake(landed), QUERY, [bronze_table("o")])
    only(found, "fail", "given up at 2026-01-02 03:04:05 UTC: gone.")
    (folder / GIVEN_UP).unlink()
    (folder / UNFINISHED).write_text("lakehouse replay")
    found = doctor.streams(Lake(landed), QUERY, [bronze_table("o")])
    only(found, "fail", "`lakehouse replay` was interrupted")


def test_a_topic_with_a_torn_checkpoint_is_reported(
    landed: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (Path(landed.checkpoint_path(QUERY)) / IDENTITY).write_text("{")
    monkeypatch.setattr(PulsarAdmin, "partitions", lambda _, topic: [topic])
    found = doctor.declared_topics(Lake(landed, events("o", 1)))
    only(found, "fail", "empty or torn, perhaps by a power cut Restore the table")


@pytest.mark.parametrize(
    ("status", "says"),
    [(403, "refused GET"), (503, "does not answer (503 Service Unavailable)")],
)
def test_a_broker_that_does_not_answer_for_a_topic_is_reported_with_a_remedy(
    landed: LakeSettings, monkeypatch: pytest.MonkeyPatch, status: int, says: str
) -> None:
    monkeypatch.setattr("pulsar_spark.broker.admin.DEADLINE_SECONDS", 0)
    monkeypatch.setattr(PulsarAdmin, "_send", lambda *_, **__: httpx.Response(status))
    only(doctor.declared_topics(Lake(landed, events("o", 1))), "fail", says)


def test_messages_that_a_broker_may_drop_from_a_real_topic_are_reported(
    broker: Broker, settings: LakeSettings
) -> None:
    topics = events("o", 2)
    only(
        doctor.declared_topics(Lake(settings, topics)), "fail", "/o does not exist", "create-topics"
    )
    topic = LiveTopic(settings, "o", 1)
    only(doctor.declared_topics(Lake(settings, topics)), "warn", "1 partitions, but 2 are declared")
    topics = events("o", 1)
    only(
        doctor.declared_topics(Lake(settings, topics)), "ok", "keeps messages that have not landed"
    )
    checkpoint = claim(settings, QUERY)
    path = f"persistent/{settings.pulsar_namespace}/o"
    with PulsarAdmin(settings.connection) as admin:
        name = subscription(checkpoint.id)
        admin.create_subscription(f"{topic.name}-partition-0", name, START)
    checkpoint.release()
    topic.send([Outgoing(b"unread")])
    quota = {"limitSize": 1 << 30, "limitTime": -1, "policy": "consumer_backlog_eviction"}
    with httpx.Client(base_url=f"{settings.pulsar_admin_url}/admin/v2/") as client:
        client.post(f"{path}/messageTTL", params={"messageTTL": 100_000}).raise_for_status()
        client.post(f"{path}/backlogQuota", json=quota).raise_for_status()
        client.post(
            f"{path}/retention", json={"retentionTimeInMinutes": 9000, "retentionSizeInMB": 2048}
        ).raise_for_status()

    def found() -> list[Finding]:
        return list(doctor.declared_topics(Lake(settings, topics)))

    until(lambda: len(found()) == 2 and "0:00:00 old" not in found()[0].found, "the policies")
    assert {each.state for each in found()} == {"warn"}
    assert "expire unread after 1 day, 3:46:40" in found()[0].found
    assert "drops unread messages (consumer_backlog_eviction)" in found()[1].found
    shutil.rmtree(settings.checkpoint_path(QUERY))
    assert "bronze has not started to read the topic" in found()[-1].found


def test_a_healthy_lake_passes_all_checks(shop_lake: ShopLake) -> None:
    found = doctor.examine(shop_lake.lake)
    assert {each.check for each in found} >= {"stream silver", "topic orders", "broker", "disk"}
    assert [each for each in found if each.state != "ok" and each.check != "disk"] == []


def test_messages_that_are_kept_too_long_are_reported(tmp_path: Path) -> None:
    topics = declared(tmp_path, GOOD.replace('kind = "events"', 'kind = "events"\nkeep = "9 days"'))
    quiet = QuietLake(load_settings(home=tmp_path))
    quiet.lake = Lake(quiet.settings, topics)
    now = dt.datetime(2026, 3, 31, 12, tzinfo=dt.timezone.utc)
    assert [*kept(quiet.lake, now)] == []
    quiet.land("orders", [b"{}"], dt.datetime(2026, 3, 22, tzinfo=dt.timezone.utc))
    [found] = kept(quiet.lake, now)
    assert found[:3] == ("keep orders", "ok", "messages published since 2026-03-22 are kept")
    assert [each.state for each in kept(quiet.lake, now + dt.timedelta(days=2))] == ["ok"]
    [found] = kept(quiet.lake, now + dt.timedelta(days=3))
    assert found.state == "ok", "silver has not run yet, so it needs all of them"
    quiet.refuse()
    quiet.enrich("orders", [], now)
    [found] = kept(quiet.lake, now + dt.timedelta(days=3))
    assert found[:3] == (
        *("keep orders", "warn"),
        "1 messages from before 2026-03-23 have not been deleted",
    )
    quiet.enrich("orders", [{"id": 1, "missing_lookups": 1}], now - dt.timedelta(days=9))
    [found] = kept(quiet.lake, now + dt.timedelta(days=3))
    assert found[1:3] == (
        "ok",
        "messages published since 2026-03-25 are kept, and 1 older ones that silver needs",
    )
