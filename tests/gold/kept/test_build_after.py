"""Tells when models wait, and from what they are computed after that."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from gold.kept.build_after import FILE, Computed, LastComputed, pause_of, problems
from gold.tables import GoldSnapshot
from pulsar_spark.errors import LakehouseError

NOW = dt.datetime.now(dt.timezone.utc)
MINUTE = dt.timedelta(minutes=1)


def model(name: str, count: int | None = 15, **config: Any) -> dict[str, Any]:
    after = {"count": count, "period": "minute", "updates_on": config.pop("updates_on", "any")}
    freshness = None if count is None else {"build_after": after}
    return {
        "name": name,
        "alias": name,
        "config": {"materialized": "kept", "freshness": freshness, **config},
    }


def snapshot(at: dt.datetime, version: int) -> GoldSnapshot:
    return GoldSnapshot(at, 1, {}, {"int_lines": version}, {"silver.orders": version}, "p")


def computed(at: dt.datetime, published: GoldSnapshot) -> Computed:
    versions = published.silver_versions, published.built_versions
    return Computed(at.isoformat(), published.published_at.isoformat(), *versions)


@pytest.mark.parametrize(
    ("period", "pause"),
    [("minute", MINUTE), ("hour", 60 * MINUTE), ("day", 24 * 60 * MINUTE)],
)
def test_a_pause_is_that_of_the_configuration(period: str, pause: dt.timedelta) -> None:
    freshness = {"build_after": {"count": 2, "period": period}}
    assert pause_of({"config": {"freshness": freshness}}) == 2 * pause
    for never in ({}, {"freshness": None}, {"freshness": {"build_after": {}}}):
        assert pause_of({"config": never}) is None


def test_a_pause_that_cannot_be_kept_is_refused() -> None:
    good = model("good"), model("other", None, materialized="table")
    bad = model("as_table", materialized="table"), model("of_all", updates_on="all")
    table, every = problems([*good, *bad])
    assert "The model as_table has build_after, which needs materialized='kept'." in table
    assert "The model of_all has build_after with updates_on: all" in every


def test_a_model_that_waited_keeps_what_it_was_computed_from() -> None:
    first, second = snapshot(NOW - 9 * MINUTE, 1), snapshot(NOW - MINUTE, 2)
    names = ("waits", "is_unchanged", "is_computed")
    last = LastComputed(
        first.published_at.isoformat(),
        {name: computed(NOW - 10 * MINUTE, first) for name in names},
    )
    models = [*map(model, names), model("never_waits", None), model("was_not_built")]
    messages = ("WAITS (until 12:00)", "UNCHANGED", "WHOLE (3 rows)")
    done = {**dict(zip(names, messages, strict=True)), "never_waits": "UNCHANGED"}
    after = last.after(second, models, done, NOW)
    assert after.publication == second.published_at.isoformat()
    assert after.models == {
        "waits": computed(NOW - 10 * MINUTE, first),
        "is_unchanged": computed(NOW - 10 * MINUTE, second),
        "is_computed": computed(NOW, second),
    }


def test_a_model_waits_until_its_pause_is_over() -> None:
    now = dt.datetime.now(dt.timezone.utc)
    made = snapshot(now, 1)
    last = LastComputed("", {"late": computed(now - 10 * MINUTE, made)})
    assert last.until(model("late")) == now + 5 * MINUTE
    assert last.until(model("late", 10)) is None
    assert last.until(model("late", None)) is None
    assert last.until(model("unknown")) is None


def test_what_belongs_to_another_publication_or_is_too_old_is_deleted(tmp_path: Path) -> None:
    old, new = snapshot(NOW - dt.timedelta(days=8), 1), snapshot(NOW, 2)
    models = {"aged": computed(NOW, old), "usable": computed(NOW, new)}
    last = LastComputed(new.published_at.isoformat(), models)
    last.write(tmp_path)
    left = LastComputed.restrict(tmp_path, new, 7)
    assert left.models == {"usable": models["usable"]}
    assert LastComputed.read(tmp_path) == left
    for other in (snapshot(NOW + MINUTE, 3), None):
        left.write(tmp_path)
        assert not LastComputed.restrict(tmp_path, other, 7).models
        assert LastComputed.read(tmp_path) is None


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps({})[:1])
    with pytest.raises(LakehouseError, match=FILE):
        LastComputed.read(tmp_path)
