"""Tests the OpenLineage events that a collector receives, from the topics to the marts."""

import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cattrs import BaseValidationError, Converter
from collector import Collector, Event
from deltalake import DeltaTable
from openlineage.client.event_v2 import RunEvent
from openlineage.client.facet_v2 import (
    BaseFacet,
    DatasetFacet,
    InputDatasetFacet,
    JobFacet,
    OutputDatasetFacet,
    RunFacet,
)
from shop_lake import ShopLake

from gold.dbt.results import BuildResult

ANY_FACET = (DatasetFacet, InputDatasetFacet, OutputDatasetFacet, JobFacet, RunFacet)
LAST = {"COMPLETE", "ABORT", "FAIL"}

Node = tuple[str, str]


@pytest.fixture(scope="module")
def events(collector: Collector, gold: BuildResult) -> list[Event]:
    """The events up to the end of the first gold build."""
    assert gold.published is not None
    first = next(each for each in collector.of("gold") if each["eventType"] == "COMPLETE")
    return collector.events[: collector.events.index(first) + 1]


def node(dataset: dict[str, Any]) -> Node:
    return dataset["namespace"], dataset["name"]


def table(lake: ShopLake, layer: str, name: str) -> Node:
    return "file", lake.settings.table_path(layer, name)


def topic(lake: ShopLake, name: str) -> Node:
    return lake.settings.pulsar_url, lake.settings.full_topic(name)


def runs(events: list[Event], job: str) -> list[list[Event]]:
    """Return the events of each run of a job, with the runs in order."""
    found: dict[str, list[Event]] = {}
    for event in events:
        if event["job"]["name"] == job:
            found.setdefault(event["run"]["runId"], []).append(event)
    return list(found.values())


def test_events_conform_to_the_specification(events: list[Event]) -> None:
    """Required and optional fields are checked by the classes generated from the specification."""
    facets = {each._get_schema(): each for each in _below(BaseFacet)}  # noqa: SLF001
    reader = Converter(forbid_extra_keys=True)

    def read_facet(value: dict[str, Any], _: type) -> BaseFacet:
        kind = facets[value["_schemaURL"]]
        rest = {name: each for name, each in value.items() if name != "_schemaURL"}
        return reader.structure(rest, kind)

    def read_event(value: dict[str, Any]) -> RunEvent:
        url, rest = value["schemaURL"], {n: each for n, each in value.items() if n != "schemaURL"}
        assert url == RunEvent._get_schema()  # noqa: SLF001
        return reader.structure(rest, RunEvent)

    reader.register_structure_hook_func(lambda kind: kind in ANY_FACET, read_facet)
    for spoilt in (
        {**events[0], "run": {"runId": "no UUID"}},
        {**events[0], "job": {"name": "without a namespace"}},
        {**events[0], "unknown": 1},
        {**events[0], "eventType": "BEGUN"},
    ):
        with pytest.raises(BaseValidationError):
            read_event(spoilt)
    known = {
        type(facet).__name__
        for event in map(read_event, events)
        for each in (event.run, event.job, *event.inputs, *event.outputs)
        for facet in each.facets.values()
    }
    assert {"SchemaDatasetFacet", "SQLJobFacet", "ParentRunFacet", "DbtRunRunFacet"} <= known


def _below(kind: type) -> Iterator[Any]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


def test_each_run_starts_and_ends_once(events: list[Event]) -> None:
    by_run: dict[str, list[str]] = defaultdict(list)
    for event in events:
        by_run[event["run"]["runId"]].append(event["eventType"])
    for states in by_run.values():
        assert states[0] == "START"
        assert set(states[1:-1]) <= {"RUNNING"}
        assert states[-1] in LAST
    jobs = {event["job"]["name"] for event in events}
    assert {"bronze.users", "bronze.items", "bronze.orders", "silver", "gold"} <= jobs


def test_the_graph_leads_from_the_topics_to_each_mart(
    events: list[Event], gold: BuildResult, shop_lake: ShopLake
) -> None:
    assert gold.published is not None
    came_from: dict[Node, set[Node]] = defaultdict(set)
    for event in events:
        for output in event["outputs"]:
            came_from[node(output)] |= {node(each) for each in event["inputs"]}

    def origins(of: Node) -> set[Node]:
        seen, left = set(), {of}
        while left:
            each = left.pop()
            seen.add(each)
            left |= came_from[each] - seen
        return {each for each in seen if not came_from[each]}

    topics = {topic(shop_lake, name) for name in shop_lake.topics.topics}
    marts = gold.published.versions
    assert {"reward_points", "similar_items", "sales_by_day"} <= marts.keys()
    for mart in marts:
        assert origins(table(shop_lake, "gold", mart)) == topics, mart
    places = {node(each) for event in events for each in event["inputs"] + event["outputs"]}
    for namespace, name in places - topics:
        assert namespace == "file"
        assert DeltaTable.is_deltatable(name), name
    points = table(shop_lake, "gold_build", "reward_points")
    parents = {table(shop_lake, "gold_build", name) for name in ("reward_ledger", "stg_users")}
    assert came_from[points] == parents
    assert came_from[table(shop_lake, "gold_build", "stg_users")] == {
        table(shop_lake, "silver", "users_state")
    }


def test_streams_report_how_many_rows_they_wrote(
    events: list[Event], shop_lake: ShopLake, shop_files: Path
) -> None:
    def written(job: str) -> dict[Node, int]:
        last = runs(events, job)[0][-1]
        assert last["eventType"] == "COMPLETE"
        return {
            node(each): each["outputFacets"]["outputStatistics"]["rowCount"]
            for each in last["outputs"]
        }

    silver = written("silver")
    for name in shop_lake.topics.topics:
        with (shop_files / f"{name}.csv").open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
        assert written(f"bronze.{name}") == {table(shop_lake, "bronze", name): len(rows)}
        if name != "orders":
            ids = {row["id"] for row in rows}
            parents = {row["id"]: row.get("parent_user_id") for row in rows}
            # A user is written once more if the account it was merged into is merged, too.
            again = [parent for parent in parents.values() if parent and parents[parent]]
            state = table(shop_lake, "silver", f"{name}_state")
            assert silver[state] == len(ids) + len(again)
        else:
            assert silver[table(shop_lake, "silver", "enriched_orders")] == len(rows)
    assert silver[table(shop_lake, "silver", "quarantine")] == 0


def test_the_events_of_a_stream_describe_its_job_and_tables(
    events: list[Event], shop_lake: ShopLake
) -> None:
    first = runs(events, "bronze.orders")[0][0]
    assert first["job"]["namespace"] == "orders-lakehouse"
    kind = first["job"]["facets"]["jobType"]
    assert (kind["processingType"], kind["integration"]) == ("STREAMING", "SPARK")
    [read], [wrote] = first["inputs"], first["outputs"]
    fields = {each["name"]: each["type"] for each in read["facets"]["schema"]["fields"]}
    assert fields["invoiceId"] == "long"
    fields = {each["name"]: each["type"] for each in wrote["facets"]["schema"]["fields"]}
    assert fields["payload"] == "binary"
    [known_as] = wrote["facets"]["symlinks"]["identifiers"]
    settings = shop_lake.settings
    assert known_as == {
        "namespace": f"spark://127.0.0.1:{settings.sql_port}",
        "name": "bronze.orders",
        "type": "TABLE",
    }


def test_a_build_is_the_parent_of_its_models(
    events: list[Event], gold: BuildResult, shop_lake: ShopLake
) -> None:
    assert gold.published is not None
    start, end = runs(events, "gold")[0]
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    versions = {node(each): each["facets"]["version"]["datasetVersion"] for each in end["outputs"]}
    assert versions == {
        table(shop_lake, "gold", name): str(version)
        for name, version in gold.published.versions.items()
    }
    mine = [
        event
        for event in events
        if event["run"]["facets"].get("parent", {}).get("run", {}).get("runId")
        == end["run"]["runId"]
    ]
    models = {
        event["job"]["name"]
        for event in mine
        if event["eventType"] == "COMPLETE" and event["outputs"]
    }
    assert models == {f"gold_build.lakehouse.{model.name}.build.run" for model in gold.models}
    tested = [event for event in mine if event["job"]["name"].endswith("reward_points.build.test")]
    [read] = tested[-1]["inputs"]
    assertions = read["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert assertions
    assert all(each["success"] for each in assertions)
