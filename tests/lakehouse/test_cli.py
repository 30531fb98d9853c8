"""Tests that the command line reports errors with one sentence, exit code 2 and no traceback."""

import io
import json
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import pytest
from typer.main import get_command

from gold.errors import BuildError
from lake.settings.settings import SHOP_TOPICS, LakeSettings
from lake.topics.topic_file import load_topics
from lakehouse import cli
from lakehouse.erasure.person import Found, Person
from lakehouse.erasure.verify import Proof
from lakehouse.runtime.java import SUPPORTED, java_version
from lakehouse.runtime.ports import free_port


class Outcome(NamedTuple):
    exit_code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs `lakehouse` in an empty folder, without a broker or an endpoint."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEHOUSE_PULSAR_URL", f"pulsar://127.0.0.1:{free_port()}")
    monkeypatch.setenv("LAKEHOUSE_PULSAR_ADMIN_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("LAKEHOUSE_SQL_PORT", str(free_port()))

    def run_it(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["lakehouse", *arguments])
        code = None
        try:
            cli.main()
        except SystemExit as end:
            code = end.code
        assert code is None or isinstance(code, int)
        return Outcome(code or 0, *capsys.readouterr())

    return run_it


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def assert_refused(outcome: Outcome, *says: str) -> None:
    assert outcome.exit_code == 2, outcome
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    plain = " ".join(re.sub(r"[│╭╮╰╯─]|\x1b\[[0-9;]*m", " ", outcome.err).split())
    for words in says:
        assert words in plain


def test_every_command_and_each_of_its_options_has_help(run: Run) -> None:
    group = get_command(cli.app)
    commands = group.commands  # type: ignore[attr-defined]
    assert set(commands) == {
        *("demo", "up", "bronze", "silver", "gold", "publish", "generate", "create-topics"),
        *("publish-table", "replay", "quarantine", "savepoint", "status", "sql", "report"),
        *("doctor", "java-home", "forget", "reset", "sql-user", "metastore", "warm-up"),
        *("init", "plan", "produce", "consume", "backup", "restore", "pause", "resume", "sinks"),
        *("console", "imports"),
    }
    parts = [
        each
        for name in ("gold", "metastore", "quarantine", "savepoint", "sql-user")
        for each in commands[name].commands.items()
    ]
    for name, command in [("lakehouse", group), *commands.items(), *parts]:
        assert command.help, name
        assert [option.name for option in command.params if not option.help] == []
    assert "Usage: lakehouse publish" in run("publish", "--help").out


def test_an_unknown_option_is_refused_by_name(run: Run) -> None:
    assert_refused(run("status", "--colour"), "No such option: --colour")
    assert_refused(run("bronze", "--availablenow"), "No such option", "--available-now")


def test_the_error_of_a_replay_names_what_it_needs(run: Run) -> None:
    assert_refused(run("replay", "--table", "gold.x", "--from", "0"), "'gold.x' cannot be replayed")
    assert_refused(run("replay", "--table", "bronze.orders"), "--from", "bronze.orders")
    assert_refused(run("replay", "--table", "silver", "--to", "0"), "Remove --to")
    assert_refused(
        run("replay", "--table", "silver", "--from", "3"), "silver.cuts does not exist yet"
    )


def test_metastore_init_needs_the_address_of_a_database(run: Run) -> None:
    assert_refused(
        run("metastore", "init"), "LAKEHOUSE_METASTORE (not set) does not name a PostgreSQL"
    )


def test_an_unknown_command_is_refused_by_name(run: Run) -> None:
    assert_refused(run("silver-plate"), "No such command 'silver-plate'")


def test_an_unknown_format_is_refused_with_the_valid_ones(run: Run) -> None:
    assert_refused(run("status", "--format", "xml"), "'xml' is not one of 'table', 'csv', 'json'")


@pytest.mark.parametrize("command", ["demo", "publish"])
def test_a_missing_data_folder_is_reported(run: Run, command: str) -> None:
    assert_refused(run(command, "--data", "nowhere"), "nowhere is not a folder", "--data")


def test_the_error_for_an_empty_data_folder_names_the_files_it_needs(
    run: Run, tmp_path: Path
) -> None:
    outcome = run("publish", "--data", str(tmp_path))
    assert_refused(outcome, "at least one of users.csv, items.csv, orders.csv")


def test_a_topic_that_is_not_json_is_not_published_as_json(run: Run, tmp_path: Path) -> None:
    declared = Path(cli.__file__).parents[1] / "shop" / "topics.toml"
    topics = tmp_path / "topics.toml"
    topics.write_text(
        declared.read_text().replace('key = ["id"]', 'key = ["id"]\nschema = "registry"', 1)
    )
    (tmp_path / "users.csv").write_text("id\n")
    outcome = run("--topics", str(topics), "publish", "--data", str(tmp_path))
    assert_refused(outcome, "users.csv: the topic users is declared with schema = 'registry'")


def test_only_a_bronze_table_is_replayed_from_an_instant(run: Run) -> None:
    since = ("--from", "2026-01-01T00:00:00Z")
    outcome = run("replay", "--table", "gold.users", *since)
    assert_refused(outcome, "'gold.users' cannot be replayed", "bronze.users, bronze.items")
    outcome = run("replay", "--table", "silver.users", *since)
    assert_refused(outcome, "silver.users is always rebuilt from the beginning. Remove --from")
    outcome = run("replay", "--table", "silver.nothing")
    assert_refused(outcome, "'silver.nothing' cannot be rebuilt", "silver.users_state")
    outcome = run("replay", "--table", "bronze.users", "--from", "yesterday")
    assert_refused(outcome, "--from: 'yesterday' is neither ISO 8601 nor epoch milliseconds")


def test_a_missing_topic_file_is_reported(run: Run) -> None:
    assert_refused(run("--topics", "none.toml", "status"), "none.toml", "--topics")


def test_a_home_that_is_a_file_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert_refused(run("--home", "file", "status"), "'home'", "file is a file, not a folder")


def test_data_is_generated_for_topics_without_an_application(run: Run, tmp_path: Path) -> None:
    bank = str(Path(cli.__file__).parents[1] / "examples" / "bank" / "topics.toml")
    outcome = run("--topics", bank, "generate", "--out", "new", "--scale", "0.001")
    assert outcome.exit_code == 0
    said = r"\d+ districts, \d+ accounts, \d+ customers, 50 transactions: new\n"
    assert re.fullmatch(said, outcome.out)
    assert {file.name for file in (tmp_path / "new").iterdir()} == {
        *("districts.csv", "accounts.csv", "customers.csv", "transactions.csv")
    }
    topics = tmp_path / "topics.toml"
    topics.write_text('[topics.a]\nkind = "events"\nkey = ["b"]\nfields = { b = "string" }')
    outcome = run("--topics", str(topics), "generate", "--out", "new", "--late", "0.1")
    assert outcome.err == "a has no late events, because it declares no event_time.\n"


def test_an_application_generates_neither_late_nor_broken_data(run: Run) -> None:
    outcome = run("generate", "--out", "new", "--late", "0.1", "--broken", "0.1")
    assert_refused(outcome, "--late and --broken cannot be used", "shop.application generates")


def test_an_output_folder_that_is_a_file_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert_refused(run("generate", "--out", "file", "--scale", "0.001"), "file: File exists")


@pytest.mark.parametrize(
    "command",
    [
        *(("bronze",), ("create-topics",), ("publish", "--data", "."), ("consume", "users")),
        ("produce", "users", "--tombstone", "--key", "7"),
    ],
)
def test_a_missing_broker_is_reported_with_a_remedy(
    run: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "users.csv").write_text("id\n")
    assert_refused(run(*command), "No Pulsar broker answers at http://127.0.0.1", "lakehouse up")


def test_up_does_not_start_a_broker_in_place_of_a_configured_one(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOUSE_PULSAR_ADMIN_URL", "http://192.0.2.1:8080")
    for module in ("run", "broker"):
        monkeypatch.setattr(f"lakehouse.runtime.{module}.broker_answers", lambda _: False)
    assert_refused(run("up"), "No Pulsar broker answers at http://192.0.2.1:8080")


@pytest.mark.parametrize("command", ["up", "demo"])
@pytest.mark.parametrize("setting", ["LAKEHOUSE_SQL_PORT", "LAKEHOUSE_CONNECT_PORT"])
def test_a_port_in_use_is_reported_with_its_setting(
    run: Run, monkeypatch: pytest.MonkeyPatch, taken_port: int, command: str, setting: str
) -> None:
    monkeypatch.setenv(setting, str(taken_port))
    monkeypatch.setattr("gold.sql_client.CONNECT_SECONDS", 0.1)
    assert_refused(run(command), f"Port {taken_port} is in use", setting)


def test_a_wrong_java_is_refused_with_a_remedy(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert_refused(
        run("sql", "select 1"), "JAVA_HOME=", "Spark needs Java 17, 21 or 25", "unset it"
    )


def test_a_demo_does_not_empty_a_lake_that_it_did_not_create(run: Run, tmp_path: Path) -> None:
    mine = tmp_path / ".lakehouse" / "lake"
    mine.mkdir(parents=True)
    assert_refused(run("demo"), "contains a lake that the demo did not create", "--home")
    assert mine.is_dir()


def test_silver_without_bronze_says_what_to_run_first(run: Run) -> None:
    assert_refused(run("silver", "--available-now"), "lakehouse bronze --available-now")


def test_gold_without_silver_says_what_to_run_first(run: Run) -> None:
    assert_refused(run("gold", "--available-now"), "lakehouse silver --available-now")
    assert_refused(run("gold", "--every", "often"), "'often' is not a duration", "30s, 5m or 1h")


def test_a_report_without_a_lake_says_what_to_run_first(run: Run) -> None:
    assert_refused(run("report"), "There are no tables in", "lakehouse up", "lakehouse demo")
    assert_refused(run("report", "--docs"), "gold has not been built yet", "lakehouse gold")


def test_status_works_without_broker_and_lake(run: Run) -> None:
    outcome = run("status", "--format", "csv")
    assert outcome.exit_code == 0
    lines = outcome.out.splitlines()
    assert lines[0] == "table,rows,newest message,lag (messages),note"
    assert lines[1] == "bronze.users,,,,no broker answers"


def test_doctor_reports_a_failure_by_its_exit_code(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAKEHOUSE_CACHE", str(tmp_path))
    assert run("doctor").exit_code == 0
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    outcome = run("doctor", "--format", "json")
    assert outcome.exit_code == 1
    states = {each["check"]: each["state"] for each in json.loads(outcome.out)}
    assert states["java"] == "fail"
    assert states["broker"] == states["jars of spark"] == "warn"


def test_java_home_prints_sparks_java_and_repeats_it_if_java_home_is_set(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = run("java-home").out.strip()
    assert java_version(Path(home, "bin", "java")) in SUPPORTED
    monkeypatch.setenv("JAVA_HOME", home)
    assert run("java-home").out.strip() == home


def test_reset_says_if_there_is_nothing_to_delete(run: Run) -> None:
    assert run("reset").out == "There is nothing to delete.\n"


def test_a_trace_is_shown_only_when_asked_for(run: Run) -> None:
    assert "Traceback" in run("--debug", "publish", "--data", "nowhere").err


def test_forget_reports_what_it_needs_before_spark_starts(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("forget", "42", "--reason", "asked for")
    assert_refused(run("forget", "42"), "Missing option '--reason'")
    assert_refused(run(*asked), "Set LAKEHOUSE_PSEUDONYM_SECRET")
    monkeypatch.setenv("LAKEHOUSE_PSEUDONYM_SECRET", "of the tests, and of no use elsewhere")
    assert_refused(
        run("forget", "me", "--reason", "x"), "'me' is not a valid key of the topic 'users'"
    )
    assert_refused(run(*asked, "--topic", "items"), "--topic is items")


def test_forget_asks_first_and_fails_if_anything_is_left(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOUSE_PSEUDONYM_SECRET", "of the tests, and of no use elsewhere")
    users = load_topics(SHOP_TOPICS).topics["users"]
    who = Person(users, {"42": "-7", "43": "-8"}, {"emailAddress": {"her@example.org"}})
    for name in (
        "lakehouse.erasure.follow.session",
        "gold.catalog.register",
        "lakehouse.up.sql_endpoint",
    ):
        monkeypatch.setattr(name, lambda *_: nullcontext())

    def forgetting(*given: Any, **_: Any) -> Proof | None:
        found = [Found(users, [], [])]
        return Proof(given[1], who) if given[3](who, found) else None

    monkeypatch.setattr("lakehouse.erasure.run.forget", forgetting)
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    refused = run("forget", "42", "--reason", "asked for")
    assert "Merged accounts that are erased too: 1." in refused.err
    assert "Nothing was changed." in refused.err
    asked = ("forget", "42", "--reason", "asked for", "--yes", "--format", "json")
    log = tmp_path / ".lakehouse" / "logs" / "dbt.log"
    log.parent.mkdir(parents=True)
    log.write_text("HER@example.org, another.her@example.org2, user_id: 421")
    clean = run(*asked)
    assert clean.exit_code == 0
    [line] = json.loads(clean.out)
    assert line == {"where": "logs", "files": 1, "bytes": log.stat().st_size, "found": 0}
    log.write_text("<her@example.org>")
    left = run(*asked)
    assert left.exit_code == 1
    assert f"Still there: emailAddress in {log.resolve()}" in left.err
    assert "her@example" not in left.out + left.err, "the value itself is not printed"


def test_gold_leaves_the_sql_port_to_up_unless_asked_to_serve(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[int] = []
    built: list[int] = []

    def serve(_: object, settings: LakeSettings) -> nullcontext[None]:
        served.append(settings.sql_port)
        return nullcontext()

    for name in ("build.require_silver", "catalog.register"):
        monkeypatch.setattr(f"gold.{name}", lambda *_: None)
    monkeypatch.setattr("lakehouse.commands.gold._show_build", lambda *_: None)
    monkeypatch.setattr("lakehouse.runtime.run.spark_session", lambda *_: nullcontext())
    monkeypatch.setattr("lakehouse.up.sql_endpoint", serve)
    monkeypatch.setattr(
        "gold.build.build_gold", lambda lake, **_: built.append(lake.settings.sql_port)
    )
    port = int(os.environ["LAKEHOUSE_SQL_PORT"])
    assert run("gold", "--available-now").exit_code == 0
    assert run("gold", "--available-now", "--serve").exit_code == 0
    assert served == built
    assert served[0] != port
    assert served[1] == port


@pytest.mark.parametrize("in_terminal", [True, False])
@pytest.mark.parametrize("continuous", [True, False])
def test_rows_that_failing_tests_find_are_shown_in_a_terminal_only(
    run: Run, monkeypatch: pytest.MonkeyPatch, continuous: bool, in_terminal: bool
) -> None:
    error = BuildError("Gold was not built: test t: Got 1 result.")
    error.in_terminal = "Gold was not built: test t: Got 1 result, such as Ann."

    def fail(*_: object, **__: object) -> None:
        raise error

    def fail_once(_: object, stop: Event, *__: object) -> Iterator[BuildError]:
        stop.set()
        yield error

    for name in ("build.require_silver", "catalog.register"):
        monkeypatch.setattr(f"gold.{name}", lambda *_: None)
    monkeypatch.setattr("lakehouse.runtime.run.spark_session", lambda *_: nullcontext())
    monkeypatch.setattr("lakehouse.up.sql_endpoint", lambda *_: nullcontext())
    monkeypatch.setattr("gold.build.build_gold", fail)
    monkeypatch.setattr("gold.refresh.keep_fresh", fail_once)
    monkeypatch.setattr("rich.console.Console.is_terminal", in_terminal)
    outcome = run("gold", *([] if continuous else ["--available-now"]))
    assert outcome.exit_code == (130 if continuous else 2)
    assert "test t: Got 1 result" in outcome.err
    assert ("such as Ann" in outcome.err) is in_terminal
    assert "such as Ann" not in outcome.out


@pytest.mark.parametrize(
    "command",
    [
        *("demo", "up", "bronze", "silver", "gold", "gold explain m", "plan", "status", "report"),
        *("reset --yes", "sql select", "forget 1 --reason r --yes", "replay --table silver"),
        *("savepoint create s", "savepoint list", "savepoint restore s", "savepoint drop s"),
        *("quarantine list", "quarantine show", "quarantine replay", "quarantine discard"),
        *("publish-table silver.a t --key id", "doctor", "pause silver", "resume silver"),
    ],
)
def test_the_lake_of_a_newer_release_is_refused(
    run: Run, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Path(".lakehouse", "lake")
    lake.mkdir(parents=True)
    (lake / "format.json").write_text('{"format": 99, "release": "7.3.0"}')
    monkeypatch.setattr("lakehouse.runtime.broker.require_broker", lambda _: None)
    outcome = run(*command.split())
    said = " ".join(f"{outcome.out} {outcome.err}".split())
    assert outcome.exit_code == (1 if command == "doctor" else 2), said
    assert "format 99" in said
    assert "7.3.0" in said
    assert [file.name for file in lake.iterdir()] == ["format.json"]


def test_a_backup_and_a_restore_name_what_is_wrong(run: Run, tmp_path: Path) -> None:
    assert_refused(run("backup", "there"), "No Pulsar broker answers")
    assert_refused(run("restore", "there"), "There is no complete backup in", "backup.json")
    assert_refused(
        run("restore", "there", "--new-broker", "--take-over"), "--take-over", "Leave out one"
    )
    (tmp_path / "backup.json").write_text(json.dumps({"layout": 99, "release": "7.3.0"}))
    assert_refused(run("restore", "."), "release 7.3.0", "does not know", "Nothing was changed")
    assert {file.name for file in tmp_path.iterdir()} == {"backup.json"}


@pytest.mark.parametrize(
    "folder", [".lakehouse/backup", ".lakehouse/lake/backup", ".lakehouse/../.lakehouse"]
)
def test_a_backup_within_the_lake_is_refused(
    run: Run, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakehouse.runtime.broker.require_broker", lambda _: None)
    assert_refused(run("backup", folder), "which the backup is to protect", "outside of it")


def test_streams_are_paused_and_resumed_by_their_names(run: Run) -> None:
    assert run("pause", "silver", "bronze.users").out.splitlines() == [
        "silver is paused. `lakehouse resume silver` lets it continue.",
        "bronze.users is paused. `lakehouse resume bronze.users` lets it continue.",
    ]
    assert run("resume", "silver").out == "silver continues.\n"
    assert run("resume", "silver").out == "silver was not paused.\n"
    assert_refused(run("pause", "users"), "There is no stream 'users'", "bronze.users")
