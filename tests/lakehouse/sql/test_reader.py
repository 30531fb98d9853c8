"""Tests what the console's statements may do: what a reader may, at an endpoint without passwords.

Everybody is an owner of that endpoint. All tests share the generated shop's lake and its gold.
"""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shop_lake import ShopLake
from sql_attacks import ALL, OF_ANALYSTS
from tenacity import Retrying, retry_if_not_result, stop_after_delay, wait_fixed

from gold.dbt.results import BuildResult
from lake.settings.settings import load_settings
from lake.topics.topic_file import load_topics
from lakehouse.sql.access import policy
from lakehouse.sql.reader import OFFER, STOPPED, Answer, Reader, Refusal

SLOW = "select count(*) from range(100000) a join range(100000) b on a.id + b.id > 3"
SECRET = "the content of a file"  # noqa: S105 - which nobody may read  # pragma: allowlist secret


@pytest.fixture(scope="module")
def reader(shop_lake: ShopLake, gold: BuildResult) -> Iterator[Reader]:
    found = Reader(shop_lake.spark, shop_lake.settings)
    with OFFER.of(found):
        assert OFFER.reader is found
        yield found
    assert OFFER.reader is None


@pytest.fixture
def run(reader: Reader, shop_lake: ShopLake) -> Any:
    """A function that runs a statement, with columns to mask."""

    def running(sql: str, *personal: str, key: str = "k") -> Answer | Refusal:
        return reader.run(shop_lake.topics, [*personal], key, sql, "127.0.0.1")

    return running


def answer(found: Answer | Refusal) -> Answer:
    assert isinstance(found, Answer), found
    return found


def why(found: Answer | Refusal) -> str:
    assert isinstance(found, Refusal), f"was let through: {found}"
    return found.why


def test_values_come_as_text(run: Any) -> None:
    found = answer(
        run(
            "select 1 as a, cast(null as int) as a, array(1, 2) as b, named_struct('x', 'y') as c, "
            "cast('A' as binary) as d, date '2026-01-31' as e, '<b>' as `f g`"
        )
    )
    assert found.names == ["a", "a", "b", "c", "d", "e", "f g"]
    assert found.types[:4] == ["int", "int", "array<int>", "struct<x:string>"]
    assert found.rows == [["1", None, "[1, 2]", "{y}", "41", "2026-01-31", "<b>"]]
    assert not found.is_cut
    assert answer(run("select * from gold.reward_points where false")).rows == []
    assert ["gold"] in answer(run("show schemas")).rows
    assert ["silver"] not in answer(run("show schemas")).rows


def test_a_result_is_cut_at_the_most_rows_and_long_values_too(run: Any, reader: Reader) -> None:
    found = answer(run("select id from range(5000) order by id"))
    assert [row[0] for row in found.rows] == [str(n) for n in range(reader.most_rows)]
    assert found.is_cut
    assert not answer(run(f"select id from range({reader.most_rows})")).is_cut
    long = answer(run("select repeat('x', 50000)"))
    assert long.has_long
    [[cell]] = long.rows
    assert cell is not None
    assert len(cell) == found.longest + 1
    assert not found.has_long


@pytest.mark.parametrize(
    ("sql", "says", "place"),
    [
        ("select 1,\n  nothing from\n gold.reward_points", "nothing", (2, 3)),
        ("select *\nfrom gold.reward_points\nwher points > 1", "PARSE_SYNTAX_ERROR", (3, 6)),
        ("select 1,\n 1 / 0", "DIVIDE_BY_ZERO", (2, 2)),
        ("select * from silver.users", "The role 'reader' may not read silver.users", None),
        ("delete from gold.reward_points", "The role 'reader' may not run", None),
        ("select * from gold.none", "TABLE_OR_VIEW_NOT_FOUND", (1, 15)),
    ],
)
def test_errors_say_where_and_what(
    run: Any, sql: str, says: str, place: tuple[int, int] | None
) -> None:
    found = run(sql)
    assert says in why(found)
    assert (found.line, found.column) == (place or (None, None))
    assert "'Project" not in found.why  # a plan
    assert not found.is_cancelled


def test_no_attack_changes_or_reads_anything(run: Any, shop_lake: ShopLake, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "out").mkdir()
    lake = str(shop_lake.settings.lake_dir)
    places = {
        "file": tmp_path / "secret",
        "out": tmp_path / "out",
        "lake": lake.replace("`", "``"),
        "quoted": lake.replace("'", "\\'"),
    }
    files = {file for file in Path(lake).rglob("*") if file.is_file()}
    said = {each: why(run(each.format(**places))) for each in [*ALL, *OF_ANALYSTS]}
    assert len(said) > 250
    assert not any(SECRET in text for text in said.values())
    assert len([text for text in said.values() if "The role 'reader' may not" in text]) > 230
    assert {file for file in Path(lake).rglob("*") if file.is_file()} == files
    assert not [*(tmp_path / "out").iterdir()]


def test_nothing_that_a_statement_sets_is_left_for_the_next_one(run: Any) -> None:
    answer(run("set time zone 'Asia/Tehran'"))
    answer(run("use gold"))
    [[zone]] = answer(run("select current_timezone()")).rows
    assert zone != "Asia/Tehran"
    assert answer(run("show current namespace")).rows == [["spark_catalog", "default"]]


def test_personal_columns_are_masked_in_gold_below_everything_else(
    run: Any, shop_lake: ShopLake
) -> None:
    table = "gold.reward_points"
    tiers = shop_lake.spark.sql(f"select distinct tier from {table}").count()
    assert tiers > 1
    assert len(answer(run(f"select distinct tier from {table}")).rows) == tiers
    hidden = answer(run(f"select distinct tier as other from {table}", "tier")).rows
    assert hidden == [["***"]]
    count = f"select count(*) from {table} where tier <> '***' or points is not null"
    assert answer(run(count, "Tier", "points")).rows == [["0"]]
    then = f"{table} version as of {shop_lake.newest_version('gold', 'reward_points')}"
    assert answer(run(f"select count(points) from {then}", "points")).rows == [["0"]]
    nested = "select named_struct('tier', tier) from gold.reward_points limit 1"
    assert answer(run(nested, "tier")).rows == [["{***}"]]


def test_a_statement_is_cancelled_and_runs_in_the_pool_of_readers(
    run: Any, reader: Reader, shop_lake: ShopLake
) -> None:
    found: list[Answer | Refusal] = []
    thread = threading.Thread(target=lambda: found.append(run(SLOW, key="slow")))
    thread.start()
    context = shop_lake.spark.sparkContext._jsc.sc()  # noqa: SLF001

    def runs() -> bool:
        pool = context.getPoolForName("reader")
        return bool(pool.isDefined() and pool.get().runningTasks() > 0)

    Retrying(retry=retry_if_not_result(bool), stop=stop_after_delay(60), wait=wait_fixed(0.05))(
        runs
    )
    begun = time.monotonic()
    reader.cancel("slow")
    thread.join(20)
    assert time.monotonic() - begun < 10
    assert isinstance(found[0], Refusal)
    assert found[0].is_cancelled
    reader.cancel("before it begins")
    assert run(SLOW, key="before it begins").is_cancelled
    assert answer(run("select 1")).rows == [["1"]]


def test_sessions_of_owners_stay_as_they_are(run: Any, shop_lake: ShopLake) -> None:
    answer(run("select 1"))
    session = shop_lake.spark.newSession()
    assert session.sql("select count(*) from silver.users").collect()[0][0] > 0
    assert session.sql("set spark.sql.shuffle.partitions").collect()
    with OFFER.of(Reader(shop_lake.spark, shop_lake.settings)):
        other = OFFER.reader
    assert other is not None
    assert why(other.run(shop_lake.topics, [], "k", "select 1", "")) == STOPPED


def test_masked_columns_are_added_to_those_of_the_topic_file(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path)
    topics = load_topics(settings.topics)
    fields = topics.topics["users"].fields
    spec = fields["firstName"].model_copy(update={"personal": "hash"})
    users = topics.topics["users"].model_copy(update={"fields": fields | {"firstName": spec}})
    hashed = topics.model_copy(update={"topics": topics.topics | {"users": users}})
    plain = json.loads(policy(settings, hashed, []))
    assert plain["masks"]["silver.users_state"]["first_name"] == "hash"
    assert "*" not in plain["masks"]
    masks = json.loads(policy(settings, hashed, ["First_Name", "city"]))["masks"]
    everywhere = {"first_name": "mask", "city": "mask", "*": ""}
    assert masks["*"] == everywhere
    assert masks["silver.users_state"] == plain["masks"]["silver.users_state"] | everywhere
