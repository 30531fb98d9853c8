"""What a dbt project says about its models and exposures, read from dbt's `manifest.json`."""

import json
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from gold.tables import BUILT, CUT_OF
from lake.topics.topic_file import TopicFile

SCHEMA = re.compile(r"[a-z][a-z0-9_]{0,62}")
TAKEN = ("bronze", "silver", "default", "global_temp", "information_schema", "sys", "builtin")
PERSON = "person"
TABLES = ("table", "incremental", "kept")
FILE = "manifest.json"


class Manifest:
    """The nodes of a project, as dbt last parsed them."""

    def __init__(self, target: Path) -> None:
        """Read the manifest in dbt's target folder. Without one, the project has no nodes."""
        file = target / FILE
        read: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        self._nodes: dict[str, dict[str, Any]] = read.get("nodes", {})
        self._unit_tests: list[dict[str, Any]] = list(read.get("unit_tests", {}).values())
        self.sources: list[dict[str, Any]] = list(read.get("sources", {}).values())
        self.exposures: list[dict[str, Any]] = list(read.get("exposures", {}).values())

    @cached_property
    def nodes(self) -> dict[str, dict[str, Any]]:
        """All nodes and sources, by their unique ids."""
        return {**self._nodes, **{source["unique_id"]: source for source in self.sources}}

    @property
    def models(self) -> list[dict[str, Any]]:
        """All enabled models."""
        return [node for node in self._nodes.values() if node["resource_type"] == "model"]

    def tests_of(self, model: str) -> int:
        """The number of data tests and unit tests of a model, by its unique id."""
        name = model.rpartition(".")[2]
        nodes = self._nodes.values()
        tests = [each.get("attached_node") for each in nodes if each["resource_type"] == "test"]
        return tests.count(model) + [each.get("model") for each in self._unit_tests].count(name)

    @property
    def tables(self) -> list[dict[str, Any]]:
        """The models that dbt builds as tables."""
        return [node for node in self.models if node["config"]["materialized"] in TABLES]

    @property
    def marts(self) -> list[dict[str, Any]]:
        """The tables that are published: the public ones, or all if no model is public."""
        public = [node for node in self.tables if node["access"] == "public"]
        return public or self.tables

    def people(self) -> Iterator[tuple[str, str, str]]:
        """The columns that identify people: model, column, and the changelog that has their keys.

        A column declares them as `meta: {person: <changelog>}`.
        """
        for node in self.models:
            for name, column in node["columns"].items():
                whose = {**column.get("meta", {}), **column.get("config", {}).get("meta", {})}
                if PERSON in whose:
                    yield node["alias"], name, whose[PERSON]

    def problems(self, topics: TopicFile) -> list[str]:
        """A sentence for each declaration that gold cannot follow.

        These are a `person` that is no changelog of the topic file, and a schema that is not free
        for marts.
        """
        known = [topic.name for topic in topics.changelogs()]
        people = [
            f"The column {column} of the model {model} declares person: {topic}, but the "
            f"changelogs of the topic file are {', '.join(known) or 'none'}."
            for model, column, topic in self.people()
            if topic not in known
        ]
        schemas = [
            f"The model {node['name']} has the schema '{schema}', which the lakehouse or Spark "
            "uses itself, or which is no name of lower-case letters, digits and '_'."
            for node in self.tables
            if (schema := node["config"]["schema"]) and not _is_free(schema)
        ]
        return people + schemas


def _is_free(schema: str) -> bool:
    is_taken = schema in TAKEN or schema.startswith((BUILT, CUT_OF))
    return SCHEMA.fullmatch(schema) is not None and not is_taken
