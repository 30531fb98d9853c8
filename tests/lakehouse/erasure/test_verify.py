"""Tests that the proof finds a person in every place with values, but not others' equal values."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from personal import hashed, protection

from gold.dbt.process import target_path
from lake.settings.settings import LakeSettings, load_settings
from lake.tables.lake import Lake
from lake.topics.topic_file import load_topics
from lakehouse.erasure.person import Person
from lakehouse.erasure.verify import Proof

NAME = 'Zoë "Zed"'
ADDRESS = "her.address@a-very-long-name-of-a-host.example.org"
KEY = 42


@pytest.fixture
def settings(tmp_path: Path) -> LakeSettings:
    own = protection(tmp_path / "outside")
    return load_settings(home=tmp_path / "home").model_copy(update=own)


def found(settings: LakeSettings) -> dict[str, set[str]]:
    topics = load_topics(settings.topics)
    values = {"firstName": {NAME}, "lastName": set[str](), "emailAddress": {ADDRESS}}
    proof = Proof(Lake(settings, topics), Person(topics.topics["users"], {str(KEY): "-1"}, values))
    assert proof.values == ["emailAddress", "firstName"]
    return {part.where: {what for _, what in part.found} for part in proof.search() if part.found}


def declare(settings: LakeSettings, **people: dict[str, str]) -> None:
    """Write a manifest of dbt in which columns of models declare whose keys they hold."""
    nodes = {
        f"model.shop.{model}": {
            "resource_type": "model",
            "alias": model,
            "columns": {c: {"config": {"meta": {"person": who}}} for c, who in columns.items()},
        }
        for model, columns in people.items()
    }
    target = target_path(settings)
    target.mkdir(parents=True, exist_ok=True)
    (target / "manifest.json").write_text(json.dumps({"nodes": nodes}))


def put(settings: LakeSettings, table: str, **columns: object) -> None:
    path = Path(settings.table_path(*table.split(".")))
    path.mkdir(parents=True, exist_ok=True)
    write_deltalake(path, pa.table({n: [value] for n, value in columns.items()}), mode="append")


def test_values_and_keys_are_found_in_columns_logs_and_texts(settings: LakeSettings) -> None:
    put(settings, "bronze.users", key=str(KEY), payload=b"")
    put(settings, "bronze.orders", key="1", payload=b'{"userId" : 42, "itemId": 1}')
    put(settings, "silver.users_state", id=KEY, first_name=None)
    put(settings, "silver.enriched_orders", user_id=-1, user={"id": KEY, "first_name": "x"})
    put(settings, "silver.other", texts=[{"deep": f"to {ADDRESS}!"}])
    put(settings, "silver.marked", tags={"who": NAME})
    put(settings, "gold.mails", email_address=hashed(ADDRESS))
    put(settings, "gold.points", account_id=KEY)
    declare(settings, points={"account_id": "users"})
    places = settings.lake_dir / "_checkpoints"
    places.mkdir()
    add = {"add": {"stats": json.dumps({"minValues": {"email_address": ADDRESS[:32]}})}}
    (places / "0.json").write_text(json.dumps(add))
    logs = settings.home_dir / "logs"
    logs.mkdir()
    said = json.dumps({"stats": json.dumps({"maxValues": {"first_name": NAME}})})
    (logs / "a.log").write_text(said + "\n" + json.dumps({"predicate": '["(user_id#7L = 42)"]'}))
    assert found(settings) == {
        "bronze.users": {"key"},
        "bronze.orders": {"key"},
        "silver.users_state": {"key"},
        "silver.enriched_orders": {"key"},
        "silver.other": {"emailAddress"},
        "silver.marked": {"firstName"},
        "gold.mails": {"emailAddress"},
        "gold.points": {"key"},
        "_checkpoints": {"emailAddress"},
        "logs": {"firstName", "key"},
    }


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.string(), pa.large_string(), pa.string_view(), pa.binary_view()),
        *(pa.binary(len(ADDRESS)), pa.dictionary(pa.int8(), pa.string())),
        *(pa.list_(pa.string(), 1), pa.struct([("x", pa.large_list(pa.string_view()))])),
    ],
    ids=str,
)
def test_values_are_found_in_columns_of_any_type(settings: LakeSettings, kind: pa.DataType) -> None:
    value: object = ADDRESS
    if pa.types.is_fixed_size_list(kind):
        value = [ADDRESS]
    elif pa.types.is_struct(kind):
        value = {"x": [ADDRESS]}
    elif "binary" in str(kind):
        value = ADDRESS.encode()
    folder = Path(settings.table_path("silver", "other"))
    folder.mkdir(parents=True)
    rows = pa.table({"n": pa.array([value], kind)})
    pq.write_table(rows, folder / "x.parquet", compression="gzip", write_statistics=False)
    assert ADDRESS.encode() not in (folder / "x.parquet").read_bytes()
    assert found(settings) == {"silver.other": {"emailAddress"}}


def test_the_same_number_or_a_longer_word_is_not_the_person(settings: LakeSettings) -> None:
    put(settings, "bronze.items", key="42", payload=b'{"id": 42, "name": "Zo"}')
    put(settings, "bronze.orders", key="42", payload=b'{"userId": 421, "itemId": 42}')
    put(settings, "silver.items_state", id=KEY, name=f"x{ADDRESS}x")
    put(settings, "silver.enriched_orders", user_id=1, item_id=KEY, item={"id": KEY})
    put(settings, "gold.points", account_id=421, points=KEY)
    put(settings, "gold.stock", account_id=KEY, user_id=KEY)
    declare(settings, points={"account_id": "users"}, stock={"user_id": "items"})
    broker = settings.home_dir / "pulsar"
    broker.mkdir()
    (broker / "ledger").write_text(ADDRESS)  # reported as not searched
    assert found(settings) == {}
