"""Tests that a topic has the rows of a table of PostgreSQL, whatever happens to either of them."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from imported import DISTRICTS, VARIABLE, Imported
from live_shop import kept, until
from postgres_server import PASSWORD, PostgresServer
from structlog.testing import capture_logs

from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import claim
from lake.streams.given_up import given_up
from lake.tables.lake import Lake
from lakehouse.imports import filled_topic, importer
from lakehouse.imports.importer import chosen, run_imports
from lakehouse.runtime.broker import Broker
from lakehouse.sinks.postgres.database import DatabaseError, check_addresses
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.errors import BrokerError, CheckpointError, LakehouseError, SettingsError

Make = Callable[..., Imported]
ROOT = Path(__file__).parents[3]


@pytest.fixture
def make(broker: Broker, settings: LakeSettings, postgres: PostgresServer, tmp_path: Path) -> Make:
    def make_it(**options: Any) -> Imported:
        return Imported(settings, tmp_path, postgres.create_database(), **options)

    return make_it


def test_new_changed_and_deleted_rows_are_published_and_nothing_else(make: Make) -> None:
    table = make()
    table.create()
    table.run()
    assert table.messages() == []
    table.query("INSERT INTO districts VALUES (1, 'a'), (2, 'b'), (3, NULL)")
    table.run()
    assert table.held() == table.rows()
    table.query("UPDATE districts SET name = 'B' WHERE id = 2")
    table.query("DELETE FROM districts WHERE id = 1")
    table.query("INSERT INTO districts VALUES (30, 'ü')")
    table.run()
    with capture_logs() as logs:
        table.run()
    assert not [line for line in logs if line["event"] == "imported"]
    assert table.messages()[3:] == [
        ("1", None),
        ("2", {"id": 2, "name": "B"}),
        ("30", {"id": 30, "name": "ü"}),
    ]
    assert table.held() == table.rows()
    table.query("TRUNCATE districts")
    table.run()
    assert table.held() == {}


@pytest.mark.parametrize("partitions", [1, pytest.param(3, marks=pytest.mark.nightly)])
def test_the_copy_may_be_lost_or_old(
    make: Make, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    """As after `lakehouse reset`. What the topic holds is then read from it again."""
    for each in (importer, filled_topic):
        monkeypatch.setattr(each, "MOST", (7, 100))  # many portions
    kind = 'kind = "changelog"'
    table = make(topics=DISTRICTS.replace(kind, f"{kind}\npartitions = {partitions}"))
    table.create()
    table.query("INSERT INTO districts SELECT n, 'n' || n FROM generate_series(1, 50) n")
    table.run()
    old = table.file.read_bytes()
    table.query("UPDATE districts SET name = 'new' WHERE id % 2 = 0")
    table.query("DELETE FROM districts WHERE id % 10 = 1")
    table.run()
    assert table.held() == table.rows()
    before = len(table.messages())
    table.query("UPDATE districts SET name = 'n' || id WHERE id = 2")  # as the old copy knows it
    table.query("DELETE FROM districts WHERE id = 3")
    table.file.write_bytes(old)
    table.run()
    assert len(table.messages()) == before + 2
    table.query("DELETE FROM districts WHERE id = 5")
    table.file.unlink()
    table.run()
    assert len(table.messages()) == before + 3
    assert table.held() == table.rows()


def test_a_topic_that_was_deleted_gets_all_rows_again(make: Make) -> None:
    table = make()
    table.create()
    table.query("INSERT INTO districts VALUES (1, 'a'), (2, 'b')")
    table.run()
    with PulsarAdmin(table.settings.connection) as admin:
        admin.unload(table.topic)
        table.run()
        assert len(table.messages()) == 2
        admin.delete_topic(table.topic)
    table.run()
    assert table.held() == table.rows()


SCRIPT = """
import os, signal, sys
from pathlib import Path
import psycopg, pulsar
from imported import Imported
from lake.settings.settings import load_settings
from lakehouse.imports import filled_topic, importer
from lakehouse.imports.published import Published

home, url, admin, namespace = sys.argv[1:5]
settings = load_settings(
    home=Path(home), pulsar_url=url, pulsar_admin_url=admin, pulsar_namespace=namespace
)
table = Imported(settings, Path(sys.argv[5]), os.environ["{variable}"])
importer.MOST = filled_topic.MOST = (10, 1 << 20)
point, count = sys.argv[6], 0

def counted(cls, name):
    called = getattr(cls, name)

    def step(self, *arguments, **options):
        global count
        for when in ("before", "after"):
            count += 1
            if point in (str(count), f"{when} {name}"):
                os.kill(os.getpid(), signal.SIGKILL)
            if when == "before":
                found = called(self, *arguments, **options)
        return found

    setattr(cls, name, step)

counted(Published, "keep")
counted(Published, "positions")
counted(Published, "note_compared")
counted(pulsar.Producer, "send_async")
counted(pulsar.Producer, "flush")
counted(psycopg.Connection, "execute")
table.run()
""".replace("{variable}", VARIABLE)


def was_killed(table: Imported, point: str) -> bool:
    """Run the import in a process of its own, with a `kill -9` at one point, if it comes there."""
    paths = os.pathsep.join(str(ROOT / each) for each in ("tests/support", "tests/oracles", "."))
    script = table.folder / "script.py"
    script.write_text(SCRIPT)
    settings = table.settings
    places = (settings.home_dir, settings.pulsar_url, settings.pulsar_admin_url)
    arguments = map(str, (*places, settings.pulsar_namespace, table.folder, point))
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert PASSWORD not in done.stdout + done.stderr
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


def history(table: Imported, rng: random.Random) -> None:
    for _ in range(rng.randrange(1, 30)):
        key, name = rng.randrange(40), rng.choice("abc")
        table.query(
            "INSERT INTO districts VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET name = %s",
            *(key, name, name),
        )
    table.query("DELETE FROM districts WHERE id = ANY (%s)", rng.sample(range(40), 5))


def assert_published(table: Imported, states: dict[str, list[Any]]) -> None:
    """Check that the topic has the table, and that each key went through its states in order."""
    assert table.held() == table.rows()
    at: dict[str, int] = {}
    for key, row in table.messages():
        at[key] = states[key].index(row, at.get(key, 0))


@pytest.mark.parametrize(
    "points",
    [
        ("after flush", "before note_compared"),
        pytest.param(map(str, range(1, 1000)), marks=pytest.mark.nightly),
    ],
    ids=["some", "all"],
)
def test_wherever_it_is_killed_no_change_is_lost_and_none_comes_too_late(
    make: Make, points: Iterable[str]
) -> None:
    """Each kill is followed by changes, such as back to the value that the copy still knows."""
    table, rng = make(), random.Random(1)
    table.create()
    states: dict[str, list[Any]] = {}  # of each key, all rows that it has had
    kills = 0

    def note() -> None:
        rows = table.rows()
        for key in {*rows, *states}:
            states.setdefault(key, []).append(rows.get(key))

    for point in points:
        history(table, rng)
        former = table.rows()
        note()
        table.run()
        table.query("UPDATE districts SET name = name || '!' WHERE id % 2 = 0")
        history(table, rng)
        note()
        if not was_killed(table, point):
            break
        kills += 1
        if kills == 1 or rng.random() < 0.5:  # what may have been published is undone
            table.query("TRUNCATE districts")
            for row in former.values():
                table.query("INSERT INTO districts VALUES (%s, %s)", row["id"], row["name"])
            note()
        table.run()
        assert_published(table, states)
    assert kills >= 2


def test_it_goes_on_after_the_database_and_the_topic_have_restarted(
    make: Make, postgres: PostgresServer
) -> None:
    table = make()
    quick = table.settings.model_copy(update={"restarts": 50, "restart_delay": 0.1})
    table.lake = Lake(quick, table.lake.topics)
    table.create()
    with kept(run_imports(table.lake, [table.declared])):
        for turn, mode in enumerate(("fast", "immediate")):
            table.query(
                "INSERT INTO districts SELECT n, %s FROM generate_series(1, 3000) n "
                "ON CONFLICT (id) DO UPDATE SET name = excluded.name",
                f"turn {turn}",
            )
            postgres.stop(mode)
            postgres.start()
            table.query("DELETE FROM districts WHERE id = %s", turn + 1)
            with PulsarAdmin(table.settings.connection) as admin:
                until(lambda: bool(table.held()), "the first rows")
                admin.unload(table.topic)
            until(lambda: table.held() == table.rows(), "all rows")


def test_two_importers_do_not_publish_to_one_topic(make: Make) -> None:
    table = make()
    table.create()
    held = claim(table.settings, "import.districts")
    with pytest.raises(CheckpointError, match=r"import\.districts already runs in another process"):
        table.run()
    held.release()
    first, second = table.importer(), table.importer()
    try:
        assert first.compare()
        with pytest.raises(BrokerError, match="has another producer, and an import must be the"):
            second.compare()
    finally:
        first.close()
        second.close()
    table.run()


def test_messages_of_others_are_refused_but_not_their_tombstones(make: Make) -> None:
    table = make()
    table.create()
    table.query("INSERT INTO districts VALUES (1, 'a'), (2, 'b')")
    table.run()
    table.send("1", b"")
    table.run()
    assert table.messages()[2:] == [("1", None), ("1", {"id": 1, "name": "a"})]
    table.send("3", b'{"id": 3}')
    with pytest.raises(SettingsError, match="holds messages that no import has published.*Name an"):
        table.run()
    assert "import.districts" in str(given_up(table.settings, "import.districts"))


def test_a_comparison_that_is_stopped_is_made_up_for(make: Make) -> None:
    table = make()
    table.create()
    running = table.importer()
    assert running.compare()
    assert not running.compare()  # only after a second
    table.query("INSERT INTO districts VALUES (1, 'a')")
    running.cancel()
    with pytest.raises(LakehouseError, match=r"import\.districts was stopped while"):
        until(running.compare, "the next comparison")
    running.close()
    table.query("UPDATE districts SET name = 'b'")
    table.run()
    assert table.messages() == [("1", {"id": 1, "name": name}) for name in "ab"]


@pytest.mark.parametrize(
    ("url", "error", "says"),
    [
        ("postgresql://u:{p}@127.0.0.1:1/db", DatabaseError, "no connection to 127.0.0.1:1/db"),
        ("{a}x", DatabaseError, "database .* does not exist"),
        ("{w}", DatabaseError, "password authentication failed"),
        ("{a}", SettingsError, "has no table or view public.districts"),
    ],
)
def test_what_is_wrong_is_said_without_the_password(
    make: Make, monkeypatch: pytest.MonkeyPatch, url: str, error: type[LakehouseError], says: str
) -> None:
    table = make()
    wrong = table.address.replace(PASSWORD, f"{PASSWORD}x")
    monkeypatch.setenv(VARIABLE, url.format(p=PASSWORD, a=table.address, w=wrong))
    with capture_logs() as logs, pytest.raises(error, match=rf"import\.districts: .*{says}") as got:
        table.run()
    assert PASSWORD not in str(got.value)
    assert PASSWORD not in str(logs)
    assert PASSWORD not in str(given_up(table.settings, "import.districts"))


def test_a_missing_permission_is_said(make: Make, postgres: PostgresServer) -> None:
    table = make()
    table.create()
    table.query("CREATE ROLE reader LOGIN PASSWORD 'canary-reader'")  # pragma: allowlist secret
    try:
        address = table.address.replace(f"{postgres.user}:{PASSWORD}", "reader:canary-reader")
        os.environ[VARIABLE] = address
        with pytest.raises(SettingsError, match="import.districts: the database refuses: permis"):
            table.run()
    finally:
        table.query("DROP ROLE reader")


def test_a_name_chooses_imports(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make()
    assert chosen(table.lake) == chosen(table.lake, ["districts"]) == [table.declared]
    with pytest.raises(SettingsError, match="no import 'other'. It has districts"):
        chosen(table.lake, ["other"])
    with pytest.raises(SettingsError, match="declares no imports"):
        chosen(Lake(table.settings))
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(SettingsError, match=rf"import\.districts\.url_env: .*{VARIABLE} is not se"):
        check_addresses([table.declared])


def test_the_command_needs_no_java(make: Make) -> None:
    table = make()
    table.create()
    table.query("INSERT INTO districts VALUES (1, 'a')")
    settings = table.settings
    program = Path(sys.executable).with_name("lakehouse")
    environment = {
        **os.environ,
        "JAVA_HOME": "/nowhere",
        "LAKEHOUSE_PULSAR_URL": settings.pulsar_url,
        "LAKEHOUSE_PULSAR_ADMIN_URL": settings.pulsar_admin_url,
        "LAKEHOUSE_PULSAR_NAMESPACE": settings.pulsar_namespace,
    }
    place = ("--home", str(settings.home_dir), "--topics", str(table.folder / "topics.toml"))
    command = [program, *place, "imports", "districts", "--available-now"]
    done = subprocess.run(
        command, env=environment, cwd=table.folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    assert table.held() == table.rows()
