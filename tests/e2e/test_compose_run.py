"""Runs docker-compose.yaml: the shop, and a project that is mounted, through kills and a restart.

Run it with `make test-compose`. It needs Docker, Compose v2 and root, and builds stand-ins for base
images that cannot be pulled (support/containers.py).
"""

import csv
import secrets
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import gold_model
import pytest
from containers import ROOT, Compose, require_images, required
from live_shop import until
from project import Project
from pyhive import hive
from shop_lake import joined, read_shop

from lake.settings.settings import load_settings
from lakehouse.runtime.ports import free_port
from shop.generate import generate_shop

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(2400)]
READINGS = """
    select measured_at::date::varchar, coalesce(site, 'unknown'), count(*), min(value), max(value),
        round(avg(value), 2)::decimal(12, 2)
    from read_csv('{sample}/readings.csv', types = {{'value': 'decimal(10, 2)'}})
    left join read_csv('{sample}/sensors.csv') as sensors on sensor_id = sensors.id
    group by 1, 2 order by 1, 2"""
ANALYST, PASSWORD = "anna", secrets.token_urlsafe(12)  # pragma: allowlist secret
SERVICES = ("pulsar", "streams", "gold")
LINES = """
    select invoice_id, line_item_id, price, `user` is null, `item` is null
    from silver.enriched_orders"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for files, with all images at hand."""
    required()
    made = tmp_path_factory.mktemp("compose")
    require_images(load_settings(home=made / "home"), made)
    return made


@pytest.fixture
def port() -> int:
    return free_port()


@contextmanager
def running(folder: Path, port: int, project: Path = ROOT) -> Iterator[Compose]:
    """Run a project in Compose. Its containers and volumes are deleted at the end."""
    made = Compose(f"lake-{uuid.uuid4().hex[:8]}", folder, port, {"PROJECT": str(project)})
    try:
        made("up", "--detach", "--build")
        add = ("lakehouse", "sql-user", "add", ANALYST, "--role", "analyst")
        made("exec", "--no-TTY", "streams", *add, types=f"{PASSWORD}\n")
        yield made
    finally:
        made("--profile", "shop", "down", "--volumes")


def rows(port: int, statement: str) -> list[tuple[Any, ...]] | None:
    """Return the rows of a statement; None while nothing answers it."""
    try:
        with hive.connect(
            "127.0.0.1", port, username=ANALYST, password=PASSWORD, auth="LDAP"
        ) as connection:
            cursor = connection.cursor()
            cursor.execute(statement)
            found: list[tuple[Any, ...]] = cursor.fetchall()
            return found
    except Exception:  # noqa: BLE001 - PyHive raises Thrift's, the socket's and its own errors
        return None


def split_orders(whole: Path, folder: Path, parts: int) -> list[Path]:
    """Spread the files of a shop over folders: users and items to the first, orders to all."""
    with (whole / "orders.csv").open(newline="") as file:
        header, *lines = list(csv.reader(file))
    made = []
    for part in range(parts):
        to = folder / f"part{part}"
        to.mkdir()
        with (to / "orders.csv").open("w", newline="") as file:
            csv.writer(file).writerows([header, *lines[part::parts]])
        made.append(to)
    for name in ("users.csv", "items.csv"):
        (whole / name).rename(made[0] / name)
    return made


def publish(compose: Compose, data: Path) -> None:
    command = f"lakehouse publish --data {data}"
    compose("run", "--rm", "--volume", f"{data}:{data}:ro", "shop", command)


def test_the_shop_survives_kills_of_each_service_and_a_restart(
    folder: Path, port: int, tmp_path: Path
) -> None:
    with running(folder, port) as compose:
        check_the_shop(compose, port, tmp_path)


def test_a_mounted_project_runs_as_it_is(folder: Path, port: int, tmp_path: Path) -> None:
    project = Project(tmp_path / "plant")
    project.run("gold", "sources")
    tmp_path.chmod(0o755)
    sample = project.folder / "sample"
    expected = duckdb.sql(READINGS.format(sample=sample)).fetchall()
    with running(folder, port, project.folder) as compose:
        publish(compose, sample)
        marts = "select * from gold.readings_by_day"
        until(lambda: len(rows(port, marts) or []) == len(expected), "gold of the project", 600)
        assert rows(port, f"{marts} order by 1, 2") == expected


def check_the_shop(compose: Compose, port: int, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    generate_shop(whole, scale=0.03, seed=11)
    tmp_path.chmod(0o755)
    shop = read_shop(whole)
    expected = {
        (*key, row["price"], row["user"] is None, row["item"] is None)
        for key, row in joined(shop).items()
    }
    first, *others = split_orders(whole, tmp_path, parts=len(SERVICES) + 1)
    publish(compose, first)
    for service, data in zip(SERVICES, others, strict=True):
        compose.kill(service)
        compose("up", "--detach", "--wait", "pulsar")
        publish(compose, data)

    def silver() -> list[tuple[Any, ...]]:
        return rows(port, LINES) or []

    def gold() -> dict[int, tuple[int, str]]:
        found = rows(port, "select account_id, points, tier from gold.reward_points") or []
        return {account: (points, tier) for account, points, tier in found}

    points = gold_model.reward_points(joined(shop), {row["id"]: row for row in shop["users"]})
    until(lambda: len(silver()) >= len(expected), "silver to have all order lines", 600)
    assert sorted(silver()) == sorted(expected)
    until(lambda: gold() == points, "gold to have the points of all accounts", 600)
    compose("down")
    compose("up", "--detach")
    until(lambda: rows(port, "select 1") is not None, "SQL to be served again", 300)
    assert sorted(silver()) == sorted(expected)
    assert gold() == points
