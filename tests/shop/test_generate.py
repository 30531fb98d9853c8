"""Tests that the generated shop has the promised statistics, and that a seed fixes its bytes."""

import csv
from collections import Counter
from pathlib import Path

import pytest

from lake.settings.settings import SHOP_TOPICS
from lake.topics.topic_file import load_topics
from lakehouse.messages.encode import RowEncoder
from shop.generate import generate_shop
from shop.vocabulary import CATEGORIES

FILES = ("users.csv", "items.csv", "orders.csv")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    generate_shop(folder)
    return folder


def test_there_are_as_many_users_as_in_the_real_shop(shop: Path) -> None:
    users = rows(shop / "users.csv")
    assert len(users) == len({user["id"] for user in users}) == 117_178
    assert sum(user["deleted_at"] == "" for user in users) == 114_290
    assert sum(user["parent_user_id"] != "" for user in users) == 6_408
    ids = {user["id"] for user in users}
    assert "0" in ids
    assert all(user["parent_user_id"] in ids for user in users if user["parent_user_id"])


def test_there_are_as_many_items_per_category_as_in_the_real_shop(shop: Path) -> None:
    items = rows(shop / "items.csv")
    assert len(items) == len({item["id"] for item in items}) == 2_198
    counted = Counter(item["category"] for item in items)
    assert counted == {name: count for name, (count, _) in CATEGORIES.items()}
    assert counted["dongle"] == 211
    assert counted["gadget"] == 233


def test_orders_are_skewed_and_have_one_to_four_lines_per_invoice(shop: Path) -> None:
    orders = rows(shop / "orders.csv")
    assert len(orders) == 47_402
    assert len({(line["invoice_id"], line["line_item_id"]) for line in orders}) == 47_402
    invoices = Counter(line["invoice_id"] for line in orders)
    assert set(invoices.values()) == {1, 2, 3, 4}
    buyers = Counter(line["user_id"] for line in orders)
    top = sum(count for _, count in buyers.most_common(1_172))  # one user in a hundred
    assert 0.15 < top / len(orders) < 0.6
    known = {user["id"] for user in rows(shop / "users.csv")}
    assert sum(line["user_id"] not in known for line in orders) == 37
    items = {item["id"] for item in rows(shop / "items.csv")}
    assert sum(line["item_id"] not in items for line in orders) == 23
    assert any(len(line["price"]) > 10 for line in orders), "prices with float rounding errors"


def test_the_same_seed_gives_the_same_bytes_and_another_seed_different_ones(tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        generate_shop(tmp_path / name, 0.01, seed)
    for file in FILES:
        one = (tmp_path / "one" / file).read_bytes()
        assert one == (tmp_path / "again" / file).read_bytes()
        assert one != (tmp_path / "other" / file).read_bytes()


@pytest.mark.parametrize("scale", [0.0001, 0.003, 0.02])
def test_any_scale_gives_files_that_can_be_published(tmp_path: Path, scale: float) -> None:
    counts = generate_shop(tmp_path, scale)
    topics = load_topics(SHOP_TOPICS).topics
    for name, count in (
        ("users", counts.users),
        ("items", counts.items),
        ("orders", counts.orders),
    ):
        found = rows(tmp_path / f"{name}.csv")
        assert len(found) == count > 0
        encoder = RowEncoder(topics[name], list(found[0]), name)
        assert all(encoder.encode(row, line) for line, row in enumerate(found, start=2))
