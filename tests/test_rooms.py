"""Tests that certain knowledge is in one place; import-linter checks the direction of imports."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from lake.topics.topic import snake_case
from lake.topics.topic_file import load_topics

ROOT = Path(__file__).parents[1]
PACKAGES = ("pulsar_spark", "lake", "bronze", "silver", "gold", "lakehouse", "shop")
# Words that may be in literals of these files only, and why.
KNOWN_BY = {
    # Spark's checkpoint files, so that a change of Spark's format affects one place.
    "offsets": "lake/streams/",
    "commits": "lake/streams/",
    # Delta's log. The purge of `lakehouse forget` deletes files in it.
    "_delta_log": ("lake/tables/", "lakehouse/erasure/purge.py"),
}
# The packages that must not refer to topics, fields or models of the shop, and the exceptions.
ENGINE = ("pulsar_spark", "lake", "bronze", "silver", "gold", "lakehouse")
SHOPS_NAMES = {
    ("lake/topics/topic.py", "orders"): "the reserved column that holds the order of each field",
    ("silver/contract/tables.py", "orders"): "the same column of partial updates",
    ("silver/state/partial_updates.py", "orders"): "the same column of partial updates",
    ("silver/contract/avro.py", "items"): "the elements of an array in Avro",
    ("lakehouse/sql/users.py", "users"): "the users of the SQL endpoint",
}
# Column names that are common to all domains, or are also in the envelope of every message.
COMMON = {"id", "user", "name", "created_at", "updated_at", "event_time"}
MODULES = 15  # per folder
# Modules that are tested elsewhere, or hold only declarations. All others have a test of their
# name at the same place below `tests`. A name that ends with `/` stands for a folder.
TESTED_BY = {
    "lakehouse/runtime/certificates.py": "lakehouse/sql/test_guard.py",
    "bronze/metrics.py": "e2e/test_metrics.py",
    "gold/metrics.py": "e2e/test_metrics.py",
    "silver/metrics.py": "e2e/test_metrics.py",
    "lake/kept/statements.py": "gold/kept/test_keeper.py",
    "lake/observe/metrics.py": "e2e/test_metrics.py",
    "lake/observe/lineage_events.py": "lake/observe/test_lineage.py",
    "gold/lineage.py": "e2e/test_lineage.py",
    "gold/kept/adapter.py": "gold/test_build.py",
    "gold/options.py": "lakehouse/test_cli.py",
    "lakehouse/operate/moment.py": "lakehouse/operate/test_savepoints.py",
    "lake/streams/given_up.py": "lake/streams/test_supervisor.py",
    "lakehouse/sinks/metrics.py": "lakehouse/sinks/test_state.py",
    "lakehouse/sinks/postgres/bookkeeping.py": "lakehouse/sinks/test_export.py",
    "lakehouse/sinks/postgres/writer.py": "lakehouse/sinks/test_export.py",
    "lakehouse/sinks/waiting.py": "lakehouse/sinks/test_export.py",
    "lakehouse/imports/filled_topic.py": "lakehouse/imports/test_importer.py",
    "lakehouse/operate/plan.py": "e2e/test_demo.py",
    "lakehouse/operate/restore.py": "lakehouse/operate/test_backup.py",
    "lake/settings/console.py": "lakehouse/console/test_server.py",
    "lake/settings/lineage.py": "lake/observe/test_lineage.py",
    "lake/settings/log_format.py": "lake/observe/test_logs.py",
    "lake/settings/s3.py": "lake/tables/test_storage.py",
    "lake/settings/roles.py": "lakehouse/sql/test_users.py",
    "lake/settings/sql.py": "lakehouse/sql/test_guard.py",
    "lake/topics/views/late.py": "silver/audit/test_lateness.py",
    "lake/topics/misplaced.py": "lake/topics/views/test_joins.py",
    "lake/topics/field_spec.py": "lake/topics/test_topic_file.py",
    "silver/declared.py": "silver/test_schema_change.py",
    "lake/tables/log_store.py": "lake/tables/test_storage.py",
    "lakehouse/commands/": "lakehouse/test_cli.py",
    "lakehouse/demo.py": "e2e/test_demo.py",
    "lakehouse/runtime/address.py": "lakehouse/console/test_server.py",
    "lakehouse/console/page.py": "lakehouse/console/test_app.py",
    "lakehouse/console/tail/pages.py": "lakehouse/console/test_app.py",
    "lakehouse/console/live.py": "lakehouse/console/test_app.py",
    "lakehouse/erasure/object_versions.py": "lakehouse/erasure/test_run.py",
    "lakehouse/report/": "lakehouse/test_report.py",
    "lakehouse/runtime/run.py": "lakehouse/test_cli.py",
    "lakehouse/sql/connect.py": "e2e/test_reading_gold.py",
    "lakehouse/up.py": "e2e/test_demo.py",
    "bronze/expiry.py": "silver/test_expiry.py",
    "silver/contract/avro.py": "lakehouse/messages/test_draft.py",
    "silver/part.py": "silver/test_rebuild.py",
    "silver/view_plan.py": "silver/test_materialized.py",
    "silver/view_sources.py": "silver/test_materialized.py",
    "shop/application.py": "lakehouse/test_application.py",
    "shop/report/": "lakehouse/test_report.py",
    "shop/vocabulary.py": "shop/test_generate.py",
}
DECLARATIONS = {
    "gold/errors.py",
    "gold/tables.py",
    "pulsar_spark/plan/tasks.py",
    "silver/contract/columns.py",
}


def files(packages: Iterable[str] = PACKAGES) -> Iterator[Path]:
    for package in packages:
        yield from (ROOT / package).rglob("*.py")


@cache
def literals(file: Path) -> frozenset[str]:
    """Return the path parts in the literals of a file, without its docstrings."""
    tree = ast.parse(file.read_text())
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    nodes = [node for node in ast.walk(tree) if isinstance(node, documented)]
    docs = {ast.get_docstring(node, clean=False) for node in nodes}
    values = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    texts = [value for value in values if isinstance(value, str) and value not in docs]
    return frozenset(part for text in texts for part in text.split("/"))


@pytest.mark.parametrize("word", KNOWN_BY)
def test_one_place_knows_the_files_of_spark_and_delta(word: str) -> None:
    found = {str(file.relative_to(ROOT)) for file in files() if word in literals(file)}
    assert found, "the search does not find the word anywhere"
    assert not [name for name in sorted(found) if not name.startswith(KNOWN_BY[word])]


def names_of_the_shop() -> set[str]:
    """Return the shop's topics, their fields, and the models of its dbt project."""
    topics = load_topics(ROOT / "shop" / "topics.toml").topics
    fields = {name for topic in topics.values() for name in topic.fields}
    models = {file.stem for file in (ROOT / "dbt_project" / "models").rglob("*.sql")}
    assert {"orders", "users", "items"} <= {*topics}
    assert len(models) > 5
    return ({*topics} | fields | {*map(snake_case, fields)} | models) - COMMON


def test_the_engine_does_not_mention_the_shop() -> None:
    shop = names_of_the_shop()
    found = {
        (str(file.relative_to(ROOT)), name)
        for file in files(ENGINE)
        for name in {*literals(file), *identifiers(file)} & shop
    }
    assert found == {*SHOPS_NAMES}


def identifiers(file: Path) -> Iterator[str]:
    """Yield the names of variables, parameters, functions and classes of a file."""
    for node in ast.walk(ast.parse(file.read_text())):
        for part in ("id", "arg", "name"):
            if isinstance(name := getattr(node, part, None), str):
                yield name


def test_no_folder_holds_more_than_a_reader_can_survey() -> None:
    folders = {file.parent for file in files()}
    counted = {
        str(folder.relative_to(ROOT)): len([f for f in folder.glob("*.py") if f.stem[0] != "_"])
        for folder in folders
    }
    assert {name: n for name, n in counted.items() if n > MODULES} == {}


def test_each_module_has_a_test_of_its_name() -> None:
    tests, untested = ROOT / "tests", []
    for file in files():
        name = str(file.relative_to(ROOT))
        own = tests / file.relative_to(ROOT).with_name(f"test_{file.name}")
        elsewhere = [test for place, test in TESTED_BY.items() if name.startswith(place)]
        if file.name.startswith("__") or name in DECLARATIONS or own.exists():
            continue
        if not any((tests / test).exists() for test in elsewhere):
            untested.append(name)
    assert untested == []
