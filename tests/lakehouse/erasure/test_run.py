"""Tests the erasure of a planted person; the test itself searches every byte below the lake."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from messages import item, message, order, user
from model import LakeModel, Message
from personal import SECRET
from pyspark.sql import SparkSession
from s3_server import KEEPING, S3Server
from silver_lake import SilverLake
from topic import declared

from lake.settings.settings import SHOP_TOPICS, load_settings
from lake.streams.checkpoint import claim
from lake.tables.lake import Lake
from lake.tables.storage import in_bucket
from lakehouse.erasure.object_versions import sdk
from lakehouse.erasure.run import forget
from lakehouse.erasure.verify import UNREADABLE, Proof
from lakehouse.operate.status import lake_status
from pulsar_spark.errors import CheckpointError, SettingsError
from silver.rebuild import rebuild
from silver.records.pseudonymize import FORGOTTEN, pseudonym

CANARY, MERGED = 987_654_321_987, 987_654_321_986
FIRST = "canary.person@a-very-long-name-of-a-host.example.org"
SECOND = 'cañary"second@example.org'
TRACES = ("canary", "cañary", "ca\\u00f1ary", str(CANARY), str(MERGED))
VIEW = """
[views.spent]
description = "What each user has spent. Grain: one user with orders"
key = ["user_id"]
columns = { user_id = "bigint", email_address = "string", revenue = "decimal(22,2)" }
sql = '''
SELECT user_id, max(user.email_address) AS email_address, sum(price) AS revenue
FROM enriched_orders GROUP BY user_id
'''

[joins.orders_of_user]
left = "orders"
right = "orders"
prefix = "other"
on = { userId = "userId" }
within = { before = "1 day", after = "1 day" }
"""


OTHER = b'{"id": "of another", "lastName": "Shared"}'


def first_batch() -> list[Message]:
    return [
        *(message("users", n, n, user(n, lastName="Shared")) for n in range(1, 4)),
        message("users", 4, CANARY, canary(emailAddress=FIRST)),
        message("users", 5, MERGED, canary(id=MERGED, mergedAt=5, parentUserId=CANARY)),
        # Merged only for a while, in which an order arrives.
        message("users", 6, 3, user(3, lastName="Shared", mergedAt=6, parentUserId=CANARY)),
        message("items", 0, 7, item(7)),
        *(message("orders", n, n, order(n, 1, n, 7)) for n in range(1, 4)),
        message("orders", 4, 4, order(4, 1, CANARY, 7, price=13.75, note=f"for {FIRST}")),
        message("orders", 5, 5, order(5, 1, MERGED, 7)),
        message("orders", 6, 6, order(6, 1, CANARY, 7, price="canary's, and no price")),
    ]


def second_batch() -> list[Message]:
    return [
        message("users", 10, CANARY, canary(emailAddress=SECOND)),
        message("users", 11, 2, user(2, firstName="Grace", lastName="Shared")),
        message("users", 12, CANARY, b'{"broken": '),
        message("users", 13, "odd", json.dumps({"emailAddress": FIRST}).encode()),
        message("users", 14, 9, OTHER),
        message("users", 15, 3, user(3, lastName="Shared")),
        message("orders", 10, 10, order(10, 1, CANARY, 7)),
        message("orders", 11, 11, order(11, 1, 77, 7)),
    ]


def late() -> list[Message]:
    return [
        message("users", 20, CANARY, canary(emailAddress=FIRST)),
        message("users", 21, 3, user(3, lastName="Changed")),
        message("orders", 20, 20, order(20, 1, CANARY, 7)),
        message("orders", 21, 21, order(21, 1, 3, 7)),
    ]


def canary(**fields: Any) -> bytes:
    return user(CANARY, **{"firstName": "Canaryfirst", "lastName": "Shared", **fields})


class Kept(SilverLake):
    """A lake and all places with its files."""

    places: tuple[Path, ...]


@pytest.fixture(params=["folder", "bucket"])
def lake(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Kept:
    settings, places = load_settings(home=tmp_path / "home"), [tmp_path / "home"]
    if request.param == "bucket":
        server: S3Server = request.getfixturevalue("s3")
        keep_old_versions(spark)
        own = {"lake": f"s3://{KEEPING}/some/prefix", "s3_endpoint": server.address}
        settings = settings.model_copy(update=own)
        places.append(server.objects)
    (tmp_path / "secret").write_text(SECRET)
    history = "history = { except = ['lastName'] }"
    text = SHOP_TOPICS.read_text().replace("merged_into", f"{history}\nmerged_into", 1)
    lake = Kept(spark, settings, declared(tmp_path, text + VIEW))
    lake.places = tuple(places)
    own = {"pseudonym_secret_file": tmp_path / "secret"}
    lake.settings = lake.settings.model_copy(update=own)
    for batch in (first_batch(), second_batch()):
        lake.put(batch)
        lake.refine()
    return lake


def keep_old_versions(spark: SparkSession) -> None:
    """Let the bucket keep deleted objects."""
    client, model = sdk(spark, f"s3://{KEEPING}/")
    enabled = model.VersioningConfiguration.builder().status("Enabled").build()
    request = model.PutBucketVersioningRequest.builder().bucket(KEEPING)
    client.putBucketVersioning(request.versioningConfiguration(enabled).build())


def test_a_person_is_gone_from_every_file_and_everything_else_continues(
    lake: Kept, monkeypatch: pytest.MonkeyPatch, is_nightly: bool
) -> None:
    settings = lake.settings
    assert traces(lake).keys() >= {"bronze", "silver"}, "there is something to forget"
    refuses_while_it_must(lake)

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    for step in ("rewrite.Removal._write_audit", "run.redact")[: 1 + is_nightly]:
        with monkeypatch.context() as patch:
            patch.setattr(f"lakehouse.erasure.{step}", dies)
            with pytest.raises(KeyboardInterrupt):
                run(lake)
    with pytest.raises(CheckpointError, match="`lakehouse forget` was interrupted"):
        lake.refine()
    torn = settings.lake_dir / "silver" / "items_state" / "part-9.parquet"
    torn.parent.mkdir(parents=True, exist_ok=True)
    if not in_bucket(settings):  # where a killed writer leaves no part of an object
        torn.write_bytes(b"PAR1" + SECOND.encode())

    proof = run(lake)
    assert proof is not None
    assert proof.values == ["emailAddress", "firstName"], "others have the same last name"
    assert traces(lake) == {}
    assert [part.found for part in proof.search() if part.found] == []
    torn.write_bytes(b"PAR1")
    assert [part.found for part in proof.search() if part.found] == [[(str(torn), UNREADABLE)]]
    torn.unlink()
    assert_others_are_as_they_were(lake, [*first_batch(), *second_batch()])
    assert_books_agree(lake, {"bronze.users": 12, "bronze.orders": 8})
    note = Lake(settings).table(FORGOTTEN).arrow.rows(["topic", "reason", "messages"])
    assert note == [{"topic": "users", "reason": "asked for", "messages": 10}] * 2
    open_ = lake.rows("quarantine", "status = 'open'")
    assert [row["payload"] for row in open_] == [OTHER]

    lake.put(late())
    lake.refine()
    sent = [*first_batch(), *second_batch(), *late()]
    assert_others_are_as_they_were(lake, sent)
    assert traces(lake).keys() == {"bronze"}, "silver accepts none of her data"
    assert_books_agree(lake, {"bronze.users": 14, "bronze.orders": 10})
    left = {part.where for part in proof.search() if part.found}
    assert left == {"bronze.users", "bronze.orders"}, "the proof reports what is left in bronze"
    if not is_nightly:  # what a second run does is tested at night
        return
    assert run(lake) is not None
    assert traces(lake) == {}
    note = Lake(settings).table(FORGOTTEN).arrow.rows(["person", "messages"])
    assert run(lake) is not None
    again = Lake(settings).table(FORGOTTEN).arrow.rows(["person", "messages"])
    assert again == note, "a run that finds nothing adds no record"
    if in_bucket(settings):  # its server cannot delete folders with old versions
        return
    state = contents(lake)
    rebuild(lake.spark, Lake(settings, lake.topics))
    assert contents(lake) == state, "a rebuilt silver has the same contents"
    assert traces(lake) == {}


def run(lake: Kept, **other: Any) -> Proof | None:
    settings = lake.settings.model_copy(update=other)
    return forget(
        lake.spark,
        Lake(settings, lake.topics),
        str(CANARY),
        lambda who, found: str(CANARY) in who.pseudonyms,
        reason="asked for",
    )


def refuses_while_it_must(lake: Kept) -> None:
    with pytest.raises(
        SettingsError, match="keyed hash with this secret.*Set LAKEHOUSE_PSEUDONYM_SEC"
    ):
        run(lake, pseudonym_secret_file=None)
    following = lake.settings.lake_dir / "_checkpoints" / "publish.silver.users_state.out"
    following.mkdir()
    with pytest.raises(SettingsError, match="publish.silver.users_state.out"):
        run(lake)
    following.rmdir()
    savepoint = lake.settings.lake_dir / "_savepoints" / "kept.json"
    savepoint.parent.mkdir()
    empty = {"silver_batch": 0, "versions": {}, "places": {}}
    savepoint.write_text(json.dumps({"name": "kept", "created_at": "2026-01-01T00:00Z", **empty}))
    with pytest.raises(
        SettingsError, match=r"old versions of all tables: kept\. .*Drop them first"
    ):
        run(lake)
    savepoint.unlink()
    running = claim(lake.settings, "bronze.users")
    with pytest.raises(CheckpointError, match="bronze.users already runs"):
        run(lake)
    running.release()


def assert_others_are_as_they_were(lake: Kept, sent: list[Message]) -> None:
    """Compare with the oracle, for which the person's messages are tombstones of pseudonyms."""
    topic = lake.topics.topics["users"]
    names = {key: int(pseudonym(SECRET.encode(), topic, str(key))) for key in (CANARY, MERGED)}
    right = LakeModel()
    for begin, end in ((0, len(first_batch())), (len(first_batch()), len(sent))):
        right.batch([concealed(each, names) for each in sent[begin:end]])
    assert lake.current("users") == right.current("users")
    assert lake.current("items") == right.current("items")
    found = lake.enriched()
    assert found.keys() == right.enriched.keys()
    for key, row in found.items():
        expected = right.enriched[key]
        if row["user_id"] in names.values():
            assert row["user"]["is_deleted"]
            assert {n for n, v in row["user"].items() if v is not None} == {
                "id",
                "resolved_id",
                "is_deleted",
            }
            expected = {**expected, "user": row["user"], "user_position": row["user_position"]}
        assert row == expected
    spent = {row["user_id"]: row["email_address"] for row in lake.rows("spent")}
    assert spent.keys() == {row["user_id"] for row in found.values()}
    assert {spent[name] for name in names.values() if name in spent} == {None}
    pairs = {
        (row["user_id"], row["other_user_id"], row["invoice_id"], row["other_invoice_id"])
        for row in lake.rows("orders_of_user")
    }
    assert pairs == {
        (row["user_id"], row["user_id"], row["invoice_id"], other["invoice_id"])
        for row in found.values()
        for other in found.values()
        if row["user_id"] == other["user_id"]
    }
    history = lake.rows("users_history", "NOT is_deleted")
    assert {row["id"] for row in history} == lake.current("users").keys()


def concealed(each: Message, names: dict[int, int]) -> Message:
    own = {str(key): str(other) for key, other in names.items()}
    if each.topic == "users" and each.key in own and b"broken" not in (each.payload or b""):
        return each._replace(key=own[each.key], payload=None)
    field, payload = "userId" if each.topic == "orders" else "parentUserId", each.payload or b""
    for key, other in names.items():
        payload = payload.replace(f'"{field}": {key}'.encode(), f'"{field}": {other}'.encode())
    return each._replace(payload=payload)


def assert_books_agree(lake: Kept, rows: dict[str, int]) -> None:
    status = {line.table: line for line in lake_status(lake.lake)}
    assert {name: status[name].rows for name in rows} == rows
    booked = status["silver.reconciliation"].note
    assert " = " in booked, booked
    audited = re.search(r"\b(\d+) in\b", booked)
    assert audited, booked
    assert int(audited[1]) == sum(rows.values()) + 1, "each message is audited once"


def traces(lake: Kept) -> dict[str, list[str]]:
    """Return by layer the files that contain data of the person, raw or decoded."""
    found: dict[str, list[str]] = {}
    for file in (file for place in lake.places for file in place.rglob("*")):
        if not file.is_file():
            continue
        texts = [file.read_bytes()]
        if file.suffix == ".parquet":
            rows = pq.ParquetFile(file).read().to_pylist()
            texts.append(str(rows).encode())
        if any(trace.encode() in text.lower() for trace in TRACES for text in texts):
            layer = next((name for name in ("bronze", "silver") if name in file.parts), "elsewhere")
            found.setdefault(layer, []).append(str(file))
    return found


def contents(lake: Kept) -> dict[str, list[str]]:
    """Return silver's rows of users and orders.

    Batch numbers are left out, and so are the user version of each order and, except in the
    person's own orders, the user itself: a recomputed order has the user's latest version.
    """
    apart = ("silver_batch", "arrived_batch", "user_position", "valid_from", "valid_to")
    names = ("users_state", "users_history", "enriched_orders", "spent", "orders_of_user")
    tables = {name: lake.table(name).drop(*apart) for name in names}
    tables["hers"] = tables["enriched_orders"].where("user_id < 0")
    tables["enriched_orders"] = tables["enriched_orders"].drop("user")
    return {name: sorted(map(str, table.collect())) for name, table in tables.items()}
