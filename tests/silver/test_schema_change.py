"""Tests that fields of a running topic can be added, dropped, renamed or changed."""

from pathlib import Path

import pytest
from messages import PEOPLE_AND_VISITS, json_message
from pyspark.sql import SparkSession
from silver_lake import SilverLake
from topic import declared

from lakehouse.operate.plan import silver_steps as changes
from pulsar_spark.errors import LakehouseError
from silver.contract.tables import DECLARED, enriched_table
from silver.rebuild import rebuild

OPTIONAL = '{ type = "string", required = false }'


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> SilverLake:
    lake = SilverLake(
        spark,
        tmp_path,
        declared(tmp_path, PEOPLE_AND_VISITS.format(people='name = "string"', visits="")),
    )
    lake.put(
        [json_message("people", 1, id=1, name="ada"), json_message("visits", 1, id=1, person=1)]
    )
    lake.refine()
    return lake


def edit(lake: SilverLake, people: str, visits: str = "") -> None:
    lake.topics = declared(
        lake.settings.lake_dir, PEOPLE_AND_VISITS.format(people=people, visits=visits)
    )


def test_a_field_that_is_added_anywhere_exists_from_then_on(lake: SilverLake) -> None:
    edit(
        lake,
        f'town = {OPTIONAL}\nname = "string"',
        visits="minutes = { type = 'int', required = false }",
    )
    lake.put(
        [
            json_message("people", 2, id=2, name="bob", town="bath"),
            json_message("visits", 2, id=2, person=2, minutes=5),
            json_message("visits", 3, id=3, person=1),
        ]
    )
    lake.refine()
    people = {row["id"]: (row["name"], row["town"]) for row in lake.rows("people_state")}
    assert people == {1: ("ada", None), 2: ("bob", "bath")}
    visits = {row["id"]: row for row in lake.rows("enriched_visits")}
    assert visits[2]["minutes"] == 5
    assert visits[2]["visitor"] == {
        "id": 2,
        "town": "bath",
        "name": "bob",
        "is_deleted": False,
    }
    assert visits[3]["visitor"]["name"] == "ada"
    assert visits[1]["visitor"] == {
        "id": 1,
        "town": None,
        "name": "ada",
        "is_deleted": False,
    }


def test_a_dropped_or_retyped_field_stops_with_a_clear_error(
    lake: SilverLake,
) -> None:
    edit(lake, 'name = "long"')
    with pytest.raises(LakehouseError, match=r"'name' of .*people_state is string, .* as bigint"):
        lake.refine()
    wider = PEOPLE_AND_VISITS.format(people='name = "string"', visits="")
    wider = wider.replace('person = "int"', 'person = "long"')
    lake.topics = declared(lake.settings.lake_dir, wider)
    with pytest.raises(LakehouseError, match=r"'person' .* int, .* bigint.*replay --table silver"):
        lake.refine()
    edit(lake, f"full_name = {OPTIONAL}")
    with pytest.raises(LakehouseError, match=r"'name' .* no longer declared.*required = false"):
        lake.refine()
    edit(lake, f"name = {OPTIONAL}\nfull_name = {OPTIONAL}")
    lake.put([json_message("people", 2, id=2, full_name="bob")])
    lake.refine()
    rows = {r["id"]: (r["name"], r["full_name"]) for r in lake.rows("people_state")}
    assert rows == {1: ("ada", None), 2: (None, "bob")}


def test_a_column_that_older_rows_would_need_cannot_be_declared_later(lake: SilverLake) -> None:
    lake.topics = declared(
        lake.settings.lake_dir,
        PEOPLE_AND_VISITS.format(people='name = "string"', visits="").replace(
            'key = ["id"]', 'key = ["id"]\nmerged_into = "id"', 1
        ),
    )
    with pytest.raises(LakehouseError, match=r"'resolved_id' .* older rows would need"):
        lake.refine()


def test_another_key_or_reference_is_refused_until_silver_is_rebuilt(lake: SilverLake) -> None:
    """Columns alone would not show it: later rows would have another key than earlier ones."""
    lake.put([json_message("visits", 2, id=2, person=1)])
    lake.refine()
    before = PEOPLE_AND_VISITS.format(people='name = "string"', visits="")
    by_name = before.replace('key = ["id"]', 'key = ["id", "name"]', 1).split("[topics.visits]")[0]
    lake.topics = declared(lake.settings.lake_dir, by_name)
    with pytest.raises(LakehouseError) as error:
        lake.refine()
    assert (
        '\'key\' of the topic of silver.people_state was ["id"], and is now ["id", "name"]'
        in str(error.value)
    )
    assert "lakehouse replay --table silver" in str(error.value)
    other = before.replace('on = "person"', 'on = "id"')
    lake.topics = declared(lake.settings.lake_dir, other)
    with pytest.raises(LakehouseError, match=r"'lookups.visitor' .* silver.enriched_visits was"):
        lake.refine()
    refused, rebuilt = changes(lake.lake)
    assert (refused.table, refused.is_refused) == ("silver.enriched_visits", True)
    assert (rebuilt.table, rebuilt.is_refused) == ("silver.enriched_visits", False)
    ends = [row["committed_at"] for row in lake.rows("cuts")]
    took = max(ends) - min(ends)  # of the second batch, which read one of the two visits
    assert rebuilt.seconds == pytest.approx(2 * took.total_seconds())
    table = lake.lake.table(enriched_table(lake.topics.topics["visits"], lake.topics))
    rebuild(lake.spark, lake.lake)
    assert [*changes(lake.lake)] == []
    lake.put([json_message("visits", 3, id=3, person=1)])
    lake.refine()
    visitors = {
        row["id"]: row["visitor"] and row["visitor"]["id"]
        for row in table.arrow.rows(["id", "visitor"])
    }
    assert visitors == {1: 1, 2: None, 3: None}
    table.set_property(lake.spark, DECLARED, None)  # as an earlier release has left it
    lake.refine()
    assert "lookups.visitor" in str(table.arrow.configuration(DECLARED))


def test_a_producer_that_changes_a_field_first_fills_the_quarantine(lake: SilverLake) -> None:
    lake.put(
        [
            json_message("people", 3, id=3, full_name="eve"),
            json_message("people", 4, id="4", name="wide"),
        ]
    )
    lake.refine()
    reasons = [row["reason"] for row in lake.refused()]
    assert reasons == ["field 'name' is missing", "field 'id' is not of type int"]
