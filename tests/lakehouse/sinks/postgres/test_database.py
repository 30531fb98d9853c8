"""Tests how the address of a database is read, and which errors pass, without a database."""

import sys
from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from lake.topics.sink import Export
from lakehouse.sinks.postgres.database import (
    DatabaseError,
    address_of,
    explained,
    is_of_a_row,
    is_temporary,
    require_driver,
    shown,
)
from pulsar_spark.errors import SettingsError

SINK = {"name": "x", "from": "gold.x", "table": "public.x", "key": ["id"]}
ADDRESS = "postgresql://u:canary@db:5433/d?sslmode=require"  # pragma: allowlist secret


@pytest.mark.parametrize("text", [ADDRESS, "host=db port=5433 dbname=d user=u password=canary"])
def test_an_address_may_be_in_a_file_or_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    file = tmp_path / "address"
    file.touch(mode=0o600)
    file.write_text(text + "\n")
    monkeypatch.setenv("X_DB", text)
    for place in ({"url_env": "X_DB"}, {"url_file": str(file)}):
        address = address_of(Export.model_validate({**SINK, **place}))
        assert shown(address) == "db:5433/d"
        assert (address["user"], address["password"]) == ("u", "canary")
        assert address["connect_timeout"] == "10"
    file.chmod(0o644)
    with pytest.raises(SettingsError, match=r"export\.x\.url_file.*chmod 600"):
        address_of(Export.model_validate({**SINK, "url_file": str(file)}))


@pytest.mark.parametrize(
    ("error", "passes", "of_a_row"),
    [
        (psycopg.OperationalError("server closed the connection"), True, False),
        (errors.AdminShutdown("terminating connection"), True, False),
        (errors.DeadlockDetected("deadlock"), True, False),
        (errors.DiskFull("disk full"), True, False),
        (errors.ReadOnlySqlTransaction("a standby"), True, False),
        (errors.UniqueViolation("duplicate key"), False, True),
        (errors.StringDataRightTruncation("too long"), False, True),
        (errors.RaiseException("of a trigger"), False, True),
        (errors.ProgramLimitExceeded("index row size"), False, True),
        (errors.InsufficientPrivilege("permission denied"), False, False),
        (errors.UndefinedColumn("no column"), False, False),
    ],
)
def test_errors_are_of_the_connection_of_a_row_or_last(
    error: psycopg.Error, passes: bool, of_a_row: bool
) -> None:
    assert (is_temporary(error), is_of_a_row(error)) == (passes, of_a_row)
    kind = DatabaseError if passes else SettingsError
    with pytest.raises(kind) as caught, explained(Export.model_validate({**SINK, "url_env": "X"})):
        raise error
    assert caught.value.may_pass == passes


def test_a_missing_driver_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)  # makes its import fail
    with pytest.raises(SettingsError, match=r"extra `postgres`.*orders-lakehouse\[postgres\]"):
        require_driver()
