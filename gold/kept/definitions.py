"""Tells which models are defined as they were when gold was last published.

The definition of a model is its compiled SQL and the part of its configuration that decides its
rows. Macros, variables and ephemeral models are in the compiled SQL. A model whose definition has
changed is built from scratch; the others are kept.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lake.durable import delete_durably, read_json, write_durably

FILE = "definitions.json"
DEFINITIONS_ENV = "LAKEHOUSE_DEFINITIONS"  # the variable with the folder of the file, for dbt
CONFIGURED = (
    *("materialized", "unique_key", "file_format", "location_root", "partition_by", "clustered_by"),
    *("buckets", "tblproperties", "pre-hook", "post-hook"),
)
TORN = "Delete it; the next build of gold then rebuilds all models."


def definition_of(model: Mapping[str, Any], sql: str) -> str:
    """The checksum of a model's definition.

    Args:
        model: the node of the model in dbt's graph.
        sql: its compiled SQL.
    """
    config = model["config"]
    contract = config.get("contract") or {}
    types = {name: column.get("data_type") for name, column in model["columns"].items()}
    parts = [
        sql.strip(),
        {name: config.get(name) for name in CONFIGURED if config.get(name)},
        types if contract.get("enforced") else None,
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


@dataclass(frozen=True)
class Definitions:
    """The definitions of the published models.

    publication: identifies the publication. everywhere: the checksum of what affects all models,
    such as what gold may see of silver. models: the definitions by the names of the tables.
    """

    publication: str
    everywhere: str
    models: Mapping[str, str]

    @classmethod
    def read(cls, folder: Path) -> "Definitions | None":
        """The definitions in a folder; None if they are not known.

        Raises:
            LakehouseError: the file is damaged.
        """
        stored = read_json(folder / FILE, TORN)
        return None if stored is None else cls(**stored)

    @classmethod
    def of(
        cls, publication: str, everywhere: str, models: Iterable[Mapping[str, Any]]
    ) -> "Definitions":
        """The definitions of the models of a manifest, which has their compiled SQL."""
        found = {
            model["alias"]: definition_of(model, model["compiled_code"])
            for model in models
            if model.get("compiled_code")
        }
        return cls(publication, everywhere, found)

    def write(self, folder: Path) -> None:
        """Write them into a folder. Called when a build has been published."""
        write_durably(folder / FILE, json.dumps(vars(self)))

    def has(self, model: Mapping[str, Any], sql: str) -> bool:
        """Whether a model was published with this definition."""
        return self.models.get(model["alias"]) == definition_of(model, sql)


def forget_definitions(folder: Path) -> None:
    """Delete the definitions in a folder, so that dbt compares no model with them."""
    if folder.is_dir():
        delete_durably(folder / FILE)
