"""Tests that after a fix each quarantined record is applied once or discarded, and audited."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from messages import PEOPLE_AND_VISITS, json_message, message
from pyspark.sql import SparkSession
from silver_lake import SilverLake
from topic import declared

from lake.streams.checkpoint import claim
from lake.tables.lake import Lake
from lake.topics.topic import snake_case
from pulsar_spark.errors import CheckpointError, SettingsError
from silver import quarantine
from silver.quarantine import Selection, records, replay, summary
from silver.refine import QUERY

STRICT = PEOPLE_AND_VISITS.format(people='name = "string"', visits='place = "string"')
OPTIONAL = '{ type = "string", required = false }'
LENIENT = PEOPLE_AND_VISITS.format(people=f"name = {OPTIONAL}", visits=f"place = {OPTIONAL}")
MISSING = "field 'name' is missing"


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> SilverLake:
    """A lake with refused records; one has a newer row, and a visit waits for another."""
    lake = SilverLake(spark, tmp_path, declared(tmp_path, STRICT))
    lake.put(
        [
            json_message("people", 1, id=1),
            json_message("people", 2, id=2),
            json_message("people", 3, id=2, name="newer"),
            json_message("people", 4, id="x", name="never"),
            json_message("visits", 1, id=7, person=1, place="here"),
            json_message("visits", 2, id=8, person=1),
        ]
    )
    lake.refine()
    return lake


def loosen(lake: SilverLake) -> None:
    lake.topics = declared(lake.settings.lake_dir, LENIENT)


def balance(lake: SilverLake, topic: str) -> dict[str, int]:
    names = ("applied", "superseded", "quarantined", "discarded")
    found = {name: lake.audited(name)[topic] for name in names}
    assert lake.audited()[topic] == sum(found.values())
    return found


def test_the_quarantine_is_shown_by_topic_and_reason(lake: SilverLake) -> None:
    found = {(line[0], line[1]): line[3] for line in summary(Lake(lake.settings))}
    assert found == {
        ("people", MISSING): 2,
        ("people", "field 'id' is not of type int"): 1,
        ("visits", "field 'place' is missing"): 1,
    }
    [record] = records(Lake(lake.settings), Selection("visits"), limit=5)
    assert record[2:5] == ("1:2:0:0", "8", '{"id": 8, "person": 1}')
    assert len(records(Lake(lake.settings), Selection(reason=MISSING), limit=1)) == 1


def test_after_a_fix_each_record_is_applied_once_and_the_rest_stays(lake: SilverLake) -> None:
    loosen(lake)
    done = replay(lake.spark, lake.lake, Selection())
    assert (done["applied"], done["superseded"]) == (2, 1)
    rows = {row["id"]: row["name"] for row in lake.rows("people_state")}
    assert rows == {1: None, 2: "newer"}
    visits = {row["id"]: row for row in lake.rows("enriched_visits")}
    assert set(visits) == {7, 8}
    assert visits[7]["visitor"]["id"] == 1, "the replayed record completes the visit"
    assert visits[7]["missing_lookups"] == 0
    assert [line[1] for line in summary(Lake(lake.settings))] == ["field 'id' is not of type int"]
    assert balance(lake, "people") == {
        **{"applied": 2, "superseded": 1},
        **{"quarantined": 1, "discarded": 0},
    }
    assert not replay(lake.spark, lake.lake, Selection()).total()
    lake.put([json_message("people", 5, id=9, name="later")])
    lake.refine()
    assert len(lake.rows("people_state")) == 3


def test_a_replay_that_died_before_its_audit_is_finished_by_the_next(
    lake: SilverLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    loosen(lake)

    def die(*_: object) -> None:
        message = "killed here"
        raise RuntimeError(message)

    number = quarantine._last_number(Lake(lake.settings)) - 1  # noqa: SLF001
    with monkeypatch.context() as patch:
        patch.setattr(quarantine, "finish_last", lambda *_: number)
        patch.setattr(quarantine, "_book", die)
        with pytest.raises(RuntimeError, match="killed here"):
            replay(lake.spark, lake.lake, Selection())
    replay(lake.spark, lake.lake, Selection())
    assert balance(lake, "people")["applied"] == 2
    assert balance(lake, "visits") == {
        **{"applied": 2, "superseded": 0},
        **{"quarantined": 0, "discarded": 0},
    }


def discard_by_command(lake: SilverLake, topics: Path) -> str:
    """Run `lakehouse quarantine discard`, whose process has no Spark, and return its output."""
    place = [f"--home={lake.settings.home_dir}", f"--topics={topics}"]
    which = ["--topic=people", f"--reason={MISSING}", "--yes"]
    command = [sys.executable, "-m", "lakehouse", *place, "quarantine", "discard", *which]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_discarded_records_stay_discarded_and_are_not_replayed(
    lake: SilverLake, tmp_path: Path
) -> None:
    before = {(row["topic"], row["position"]): row for row in lake.rows("quarantine")}
    assert "2 records were discarded" in discard_by_command(lake, tmp_path / "topics.toml")
    discarded = {"status": "discarded"}
    after = {(row["topic"], row["position"]): row for row in lake.rows("quarantine")}
    assert after == {
        place: {**row, **(discarded if row["reason"] == MISSING else {})}
        for place, row in before.items()
    }
    loosen(lake)
    replay(lake.spark, lake.lake, Selection("people"))
    assert {row["id"] for row in lake.rows("people_state")} == {2}
    assert balance(lake, "people") == {
        **{"applied": 1, "superseded": 0},
        **{"quarantined": 1, "discarded": 2},
    }
    statuses = {(line[1], line[2]): line[3] for line in summary(Lake(lake.settings))}
    assert statuses[MISSING, "discarded"] == 2


def test_fields_may_have_the_names_of_message_attributes(
    spark: SparkSession, tmp_path: Path
) -> None:
    names = ("key", "payload", "reason", "eventTime", "schemaVersion", "topic", "source", "present")
    fields = "\n".join(f'{name} = "string"' for name in names)
    topics = declared(tmp_path, PEOPLE_AND_VISITS.format(people=fields, visits=fields))
    lake = SilverLake(spark, tmp_path, topics)
    person, visit = ({name: f"{name} of {n}" for name in names} for n in (1, 2))
    lake.put(
        [
            message("people", 1, 1, json.dumps({"id": 1, **person}).encode()),
            message("people", 2, 2, json.dumps({"id": 2, **person, "reason": None}).encode()),
            message("visits", 1, 3, json.dumps({"id": 3, "person": 1, **visit}).encode()),
            message("visits", 2, 4, json.dumps({"id": 4, "person": 1}).encode()),
        ]
    )
    lake.refine()
    columns = [snake_case(name) for name in names]
    [known] = lake.rows("people_state")
    [enriched] = lake.rows("enriched_visits")
    assert [known[name] for name in columns] == [*person.values()]
    assert [enriched[name] for name in columns] == [*visit.values()]
    assert [enriched["visitor"][name] for name in columns] == [*person.values()]
    refused = [(row[0], *row[2:5]) for row in records(Lake(lake.settings), Selection(), limit=5)]
    assert {(topic, place, key) for topic, place, key, _ in refused} == {
        ("people", "1:2:0:0", "2"),
        ("visits", "1:2:0:0", "4"),
    }


def test_a_replay_is_refused_beside_the_stream_and_for_unknown_topics(lake: SilverLake) -> None:
    held = claim(lake.settings, QUERY)
    with pytest.raises(CheckpointError, match="already runs in another process"):
        replay(lake.spark, lake.lake, Selection())
    held.release()
    with pytest.raises(SettingsError, match="'person' is not in the topic file"):
        replay(lake.spark, lake.lake, Selection("person"))
