"""Tests the SQL endpoint through PyHive, SQLAlchemy and `lakehouse sql`, as BI tools use it."""

import datetime as dt
import json
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyhive import hive
from shop_lake import ShopLake, joined, read_shop
from sqlalchemy import NullPool, create_engine, inspect, text

from gold.dbt.results import BuildResult
from gold.sql_client import SqlError, endpoint_running, query_endpoint
from lake.settings.settings import LakeSettings, load_settings
from lakehouse import cli
from lakehouse.runtime.ports import free_port
from lakehouse.sql.endpoint import start_endpoint
from pulsar_spark.errors import SettingsError


@pytest.fixture
def cursor(endpoint: LakeSettings) -> Iterator[hive.Cursor]:
    with hive.connect("127.0.0.1", endpoint.sql_port) as connection, connection.cursor() as found:
        yield found


def names(cursor: hive.Cursor, sql: str, column: int) -> set[str]:
    cursor.execute(sql)
    return {row[column] for row in cursor.fetchall()}


def test_all_layers_have_their_tables_and_views(cursor: hive.Cursor, gold: BuildResult) -> None:
    assert names(cursor, "show databases", 0) >= {"bronze", "silver", "gold"}
    assert names(cursor, "show tables in bronze", 1) >= {"users", "items", "orders"}
    assert names(cursor, "show tables in silver", 1) >= {
        *("users", "items", "users_state", "items_state", "enriched_orders"),
        *("missing_user", "missing_item", "quarantine", "reconciliation"),
    }
    assert gold.published
    assert names(cursor, "show tables in gold", 1) >= gold.published.versions.keys()


def test_an_order_has_its_user_and_item_with_their_types(
    cursor: hive.Cursor, shop_files: Path
) -> None:
    lines = joined(read_shop(shop_files))
    key, line = next((k, v) for k, v in lines.items() if v["user"] and v["item"] and v["paid_at"])
    cursor.execute(
        "select price, created_at, item_name, `user`.email_address, item.price, item.category "
        "from silver.enriched_orders where invoice_id = %(invoice)s and line_item_id = %(line)s",
        {"invoice": key[0], "line": key[1]},
    )
    [(price, created_at, item_name, mail, item_price, category)] = cursor.fetchall()
    assert isinstance(price, Decimal)
    assert (price, item_price) == (line["price"], line["item"]["price"])
    assert isinstance(created_at, dt.datetime)
    assert created_at.replace(tzinfo=dt.timezone.utc) == line["created_at"]
    assert (item_name, mail) == (line["item_name"], line["user"]["email_address"])
    assert category == line["item"]["category"]


def test_missing_users_and_items_are_views(cursor: hive.Cursor, shop_lake: ShopLake) -> None:
    lines = shop_lake.enriched()
    for lookup in ("user", "item"):
        cursor.execute(f"select invoice_id, line_item_id from silver.missing_{lookup}")
        expected = {key for key, line in lines.items() if line[lookup] is None}
        assert set(cursor.fetchall()) == expected


def test_sqlalchemy_reflects_and_reads(endpoint: LakeSettings, gold: BuildResult) -> None:
    address = f"hive://127.0.0.1:{endpoint.sql_port}/gold"
    engine = create_engine(address, poolclass=NullPool)  # leaves no connection open
    with engine.connect() as connection:
        columns = {c["name"] for c in inspect(connection).get_columns("reward_points", "gold")}
        assert columns >= {"account_id", "points"}
        best = connection.execute(text("select max(points) from gold.reward_points")).scalar_one()
        assert best > 0


def test_a_statement_that_fails_says_why_in_one_line(endpoint: LakeSettings) -> None:
    with pytest.raises(SqlError, match="TABLE_OR_VIEW_NOT_FOUND.*nothing_here") as error:
        query_endpoint(endpoint, "select * from gold.nothing_here")
    assert "\n" not in str(error.value)
    with pytest.raises(SqlError, match="PARSE_SYNTAX_ERROR"):
        query_endpoint(endpoint, "selec 1")


def test_a_running_endpoint_is_detected(endpoint: LakeSettings) -> None:
    assert endpoint_running(endpoint)
    assert not endpoint_running(endpoint.model_copy(update={"sql_port": 1}))


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("csv", "a,b,c,d\n1,x,1.50,\n"),
        ("json", '[{"a": 1, "b": "x", "c": "1.50", "d": null}]\n'),
    ],
)
def test_lakehouse_sql_prints_only_the_result(
    endpoint: LakeSettings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    form: str,
    expected: str,
) -> None:
    statement = "select 1 as a, 'x' as b, cast(1.5 as decimal(4,2)) as c, null as d"
    monkeypatch.setenv("LAKEHOUSE_SQL_PORT", str(endpoint.sql_port))
    monkeypatch.setattr(sys, "argv", ["lakehouse", "sql", "--format", form, statement])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert out == expected
    if form == "json":
        assert json.loads(out)[0]["a"] == 1


def test_an_endpoint_that_our_own_client_cannot_reach_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(
        home=tmp_path, sql_port=free_port(), sql_password_file=tmp_path / "absent"
    )
    stopped: list[str] = []
    started = SimpleNamespace(stop=lambda: stopped.append("endpoint"))
    monkeypatch.setattr("lakehouse.sql.endpoint._start_open", lambda *_: started)
    with pytest.raises(SettingsError, match="LAKEHOUSE_SQL_PASSWORD_FILE"):
        start_endpoint(cast(Any, None), settings)
    assert stopped == ["endpoint"]
