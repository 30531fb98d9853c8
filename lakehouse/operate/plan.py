"""`lakehouse plan`: what the next start and the next build of gold will change, and why.

The plan asks the code that carries it out: a table's contract says which columns are added or
refused, and the definitions of models say which of them are rebuilt.
"""

import datetime as dt
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from pyspark.sql.types import StructType

from bronze.expiry import standing
from gold.build import known_definitions, why_whole
from gold.dbt.manifest import Manifest
from gold.dbt.process import run_dbt
from gold.dbt.project import DbtProject
from gold.errors import GoldError
from gold.tables import BUILT, RUNS, last_published
from lake.tables.lake import Lake
from lake.tables.spec import bronze_table
from lake.tables.table import Table
from lakehouse.sinks.publish import check_definition
from pulsar_spark.errors import LakehouseError, SettingsError
from silver.audit.totals import highest_rate
from silver.contract.tables import silver_tables
from silver.declared import changed_declarations
from silver.expiry import expired
from silver.materialized import KeptView
from silver.part import outdated
from silver.records.masking import protection
from silver.refine import QUERY

OWN = {"data_loss", "incomplete_messages"}  # tables of bronze about all topics
COLUMNS = ("table", "what happens", "why", "about (s)")


@dataclass(frozen=True)
class Step:
    """A change of a table. A step that is refused stops the command that would carry it out.

    seconds: about how long it takes, going by earlier builds and batches; None if it is not known.
    """

    table: str
    what: str
    why: str
    seconds: float | None = None
    is_refused: bool = False

    def cells(self) -> list[object]:
        """The cells of the printed row, in the order of `COLUMNS`."""
        return [self.table, self.what, self.why, self.seconds and round(self.seconds, 1)]


def plan(lake: Lake) -> list[Step]:
    """What will change, in the order in which it will: bronze, silver, gold, sinks.

    Called by `lakehouse plan`. A Spark session of this process parses the declared types, and dbt
    compiles the models at its SQL endpoint. No table is changed.

    Args:
        lake: the lake, with the topic file and the dbt project as they are now.

    Raises:
        SettingsError: the lake has no dbt project.
        GoldError: dbt cannot compile the models.
    """
    return [*_bronze(lake), *silver_steps(lake), *_gold(lake), *refused_sinks(lake)]


def _bronze(lake: Lake) -> Iterator[Step]:
    known = lake.tables("bronze")
    for name, topic in lake.topics.topics.items():
        if name in known:
            yield from _columns(lake.table(bronze_table(name)))
            found = standing(lake, topic, dt.datetime.now(dt.timezone.utc))
            if found and found.old > found.needed:
                what = f"{found.old - found.needed} messages are deleted"
                yield Step(f"bronze.{name}", what, _too_old(found.since))
        else:
            yield Step(f"bronze.{name}", "created", "the topic is new")
    for name in sorted(known.keys() - lake.topics.topics.keys() - OWN):
        yield Step(f"bronze.{name}", "stays, and is no longer filled", "the topic is not declared")


def silver_steps(lake: Lake) -> Iterator[Step]:
    """What will change in silver."""
    for spec in silver_tables(lake.topics):
        table = lake.table(spec)
        if not table.exists():
            yield Step(table.full_name, "created", "it is declared, and does not exist yet")
            continue
        refused = [*changed_declarations(table)]
        yield from (Step(table.full_name, "refused", x, is_refused=True) for x in refused)
        yield from _columns(table)
    yield from _rebuilt(lake)
    shrinking = [*expired(lake, dt.datetime.now(dt.timezone.utc))]
    for old in shrinking:
        what = f"{old.number} events are deleted"
        yield Step(old.table.full_name, what, _too_old(old.since))
    for query in lake.topics.view_queries:
        if gone := sorted({*query.reads} & {old.table.spec.name for old in shrinking}):
            why = f"it is computed from the events that are left in {', '.join(gone)}"
            yield Step(f"silver.{query.view.name}", "follows", why)
        if (view := KeptView(lake, query)).is_redefined:
            yield Step(view.table, "computed again by the next batch", "its query has changed")


def _too_old(since: dt.datetime) -> str:
    return f"they were published before {since:%Y-%m-%d}, and 'keep' is shorter"


def _rebuilt(lake: Lake) -> Iterator[Step]:
    """The tables that `lakehouse up --rebuild` makes again. A start without it leaves them."""
    rate = highest_rate(lake)
    for part in outdated(lake, QUERY):
        table = f"silver.{part.name}"
        why = "it differs from what is declared"
        if others := [name for name in part.made if name != table]:
            why += f"; {', '.join(others)} will be rebuilt with it"
        landed = [lake.table(bronze_table(topic)) for topic in part.topics]
        messages = sum(each.arrow.count_rows() for each in landed if each.exists())
        seconds = messages / rate if rate and messages else None
        yield Step(table, "rebuilt by `lakehouse up --rebuild`", why, seconds)


def _columns(table: Table) -> Iterator[Step]:
    known = StructType.fromJson(json.loads(table.log().schema().to_json()))
    try:
        for place, kind, _ in table.spec.missing(known):
            what = f"gets the column {place} ({kind}), NULL in existing rows"
            yield Step(table.full_name, what, "the field is new")
    except LakehouseError as error:
        yield Step(table.full_name, "refused", str(error), is_refused=True)


def _gold(lake: Lake) -> Iterator[Step]:
    before = last_published(lake)
    if before is None and not lake.tables(BUILT):
        yield Step("gold", "built whole", "it has not been published before")
        return
    project = DbtProject.of(lake.settings)
    target = lake.settings.home_dir / "dbt-plan"
    code, log = run_dbt(lake.settings, target, ["compile"], BUILT)
    if code:
        message = f"dbt could not compile the models. See {log}."
        raise GoldError(message)
    manifest = Manifest(target)
    took = _took(lake)
    try:
        gate = protection(lake)
    except SettingsError:  # silver has to start first
        why, definitions = "the protection of personal fields has changed", None
    else:
        why = why_whole(lake, project, before, gate) or ""
        definitions = known_definitions(lake, project, before, gate)
    published = before.built_versions if before else {}
    rebuilt: dict[str, str] = {}
    for model in _in_order(manifest.tables):
        name = model["alias"]
        upstream = sorted(rebuilt[each] for each in model["depends_on"]["nodes"] if each in rebuilt)
        if name not in published:
            what, because = "created", "the model is new"
        elif why:
            what, because = "rebuilt", why
        elif definitions and not definitions.has(model, model["compiled_code"]):
            what, because = "rebuilt", "its SQL or its configuration has changed"
        elif upstream:
            what = "computed whole, or rebuilt if its columns change"
            because = f"it reads {', '.join(upstream)}"
        else:
            continue
        rebuilt[model["unique_id"]] = name
        yield Step(f"{BUILT}.{name}", what, because, took.get(name))
    for name in sorted(published.keys() - {model["alias"] for model in manifest.tables}):
        yield Step(f"{BUILT}.{name}", "no longer built or published", "the model is gone")


def refused_sinks(lake: Lake) -> Iterator[Step]:
    """The sinks to topics that would not start, because their definition has changed."""
    addresses = lake.topics.sink_addresses(lake.settings.pulsar_namespace)
    for sink in lake.topics.publish.values():
        try:
            check_definition(lake, sink, addresses[sink.name])
        except LakehouseError as error:
            yield Step(sink.label, "refused", str(error), is_refused=True)


def _in_order(models: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The models, each after those that it reads."""
    by_id = {model["unique_id"]: model for model in models}
    reads = {
        name: [node for node in model["depends_on"]["nodes"] if node in by_id]
        for name, model in by_id.items()
    }
    return [by_id[name] for name in TopologicalSorter(reads).static_order()]


def _took(lake: Lake) -> dict[str, float]:
    """The longest time that each model took in the builds that are recorded, in seconds."""
    table = lake.table(RUNS)
    if not table.exists():
        return {}
    found: dict[str, float] = {}
    for row in table.arrow.rows(["name", "seconds"], "kind = 'model'"):
        found[row["name"]] = max(row["seconds"], found.get(row["name"], 0.0))
    return found
