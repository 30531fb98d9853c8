"""Measures how good the recommendations are, by what accounts bought last.

The last invoice of each account is held out. The models of `dbt_project` compute recommendations
from the other invoices, in a schema of their own. The recommendations are then compared with what
was bought. The SQL that is measured is therefore that of the marts. The held-out invoice of an
account may be older than the invoices of others that its recommendations are based on. The measure
therefore compares recommenders, and does not predict sales.
"""

import contextlib
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from gold.catalog import drop_schema
from gold.dbt.process import run_dbt
from gold.dbt.results import read_results
from gold.errors import GoldError
from gold.lock import alone
from gold.sql_client import query_endpoint
from gold.tables import OWN
from lake.quoting import literal
from lake.tables.lake import Lake

SCHEMA = f"{OWN}evaluation"
AT = 10  # recommendations per account
SEED = 1

Ranking = Mapping[int, Sequence[int]]


@dataclass(frozen=True)
class Quality:
    """How well a recommender has predicted what accounts bought last.

    accounts: number of accounts that were evaluated. The last invoice of each has an item that
        could have been recommended: a known item that the account did not own.
    """

    recommender: str
    accounts: int
    hit_rate: float
    reciprocal_rank: float


def evaluate_recommendations(lake: Lake) -> list[Quality]:
    """Measure `user_recommendations` and two recommenders that know nothing about the account.

    `popularity` recommends the items in most baskets, and `random` recommends any items. Neither
    recommends items that the account owns. Uses the running SQL endpoint, and leaves nothing
    behind.

    Raises:
        GoldError: another evaluation is running, dbt failed, or there is nothing to measure by.
    """
    with alone(lake.settings, SCHEMA), _schema(lake):
        _build(lake)
        held_out: dict[int, set[int]] = defaultdict(set)
        for row in _rows(lake, "held_out_purchases", "account_id", "item_id", "is_findable"):
            if row["is_findable"]:
                held_out[row["account_id"]].add(row["item_id"])
        items = sorted(row["item_id"] for row in _rows(lake, "stg_items", "item_id"))
        bought = _rows(lake, "int_purchases", "invoice_id", "account_id", "item_id")
        ranked = _rows(lake, "user_recommendations", "account_id", "rank", "item_id")
    if not held_out:
        message = (
            "No account bought a new item with its last invoice, so the recommendations cannot be "
            "measured. Publish more orders."
        )
        raise GoldError(message)
    owned: dict[int, set[int]] = {account: set() for account in held_out}
    for row in bought:
        owned.get(row["account_id"], set()).add(row["item_id"])
    ours: dict[int, list[int]] = defaultdict(list)
    for row in sorted(ranked, key=lambda row: (row["account_id"], row["rank"])):
        ours[row["account_id"]].append(row["item_id"])
    invoices = Counter(item for _, item in {(row["invoice_id"], row["item_id"]) for row in bought})
    popular = sorted(items, key=lambda item: (-invoices[item], item))
    return [
        judge("user_recommendations", ours, held_out),
        judge("popularity", _first_new(popular, owned), held_out),
        judge("random", _any_new(items, owned), held_out),
    ]


def judge(
    recommender: str, recommended: Ranking, held_out: Mapping[int, set[int]], at: int = AT
) -> Quality:
    """Compute the hit rate and the mean reciprocal rank of a recommender.

    Args:
        recommender: the name of the recommender.
        recommended: by account, the recommended items, best first. An absent account has none.
        held_out: by account, the items to find.
        at: how many items of each ranking count.
    """
    ranks = [
        first_hit(recommended.get(account, ())[:at], found) for account, found in held_out.items()
    ]
    return Quality(recommender, len(ranks), hit_rate(ranks), mean_reciprocal_rank(ranks))


def first_hit(recommended: Sequence[int], found: set[int]) -> int | None:
    """The rank, from 1, of the first recommended item that is in `found`; None if none is."""
    return next((rank for rank, item in enumerate(recommended, 1) if item in found), None)


def hit_rate(ranks: Sequence[int | None]) -> float:
    """Share of the rankings that have a hit.

    Deshpande and Karypis, "Item-based top-N recommendation algorithms", ACM Transactions on
    Information Systems 22(1), 2004, section 5.1, define it for one held-out item. Here, one of
    several suffices.
    """
    return sum(rank is not None for rank in ranks) / len(ranks)


def mean_reciprocal_rank(ranks: Sequence[int | None]) -> float:
    """Mean of 1 / rank of the first hit, or of 0 if there is no hit.

    Voorhees, "The TREC-8 question answering track report", TREC 1999.
    """
    return sum(1 / rank for rank in ranks if rank is not None) / len(ranks)


def _first_new(ranking: Sequence[int], owned: Mapping[int, set[int]]) -> Ranking:
    def few(mine: set[int]) -> list[int]:
        return [item for item in ranking[: AT + len(mine)] if item not in mine]

    return {account: few(mine) for account, mine in owned.items()}


def _any_new(items: Sequence[int], owned: Mapping[int, set[int]]) -> Ranking:
    rng = random.Random(SEED)  # noqa: S311 - repeatable, no secret

    def few(mine: set[int]) -> list[int]:
        drawn = rng.sample(items, min(AT + len(mine), len(items)))
        return [item for item in drawn if item not in mine]

    return {account: few(mine) for account, mine in sorted(owned.items())}


@contextlib.contextmanager
def _schema(lake: Lake) -> Iterator[None]:
    """Create an empty schema, and drop it at the end. Drops leftovers of a killed run first."""
    drop_schema(lake.settings, SCHEMA)
    place = literal(f"{lake.settings.tables}/{SCHEMA}")
    query_endpoint(lake.settings, f"create schema {SCHEMA} location {place}")
    try:
        yield
    finally:
        drop_schema(lake.settings, SCHEMA)


def _build(lake: Lake) -> None:
    target = lake.settings.home_dir / "dbt-evaluation"
    results = target / "run_results.json"
    results.unlink(missing_ok=True)
    variables = {"hold_out_last_invoice": True, "recommendations_per_account": AT}
    command = ["run", "--vars", json.dumps(variables), "--select", "+user_recommendations"]
    code, log = run_dbt(lake.settings, target, command, SCHEMA)
    if code:
        failed = read_results(results).failed if results.exists() else []
        said = "; ".join(map(str, failed)) or f"dbt ended with {code}"
        message = f"The recommendations could not be built: {said}. See {log}."
        raise GoldError(message)


def _rows(lake: Lake, name: str, *columns: str) -> list[dict[str, Any]]:
    table = lake.named(SCHEMA, name).log()
    rows: list[dict[str, Any]] = pa.table(table.scan(list(columns))).to_pylist()
    return rows
