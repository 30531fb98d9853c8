"""Tells which models wait before they are computed again (dbt's `freshness: build_after`).

A model that waits keeps its rows while others go on. It is later computed from all changes since
its own last computation, so what each model was computed from is kept in a file. The file belongs
to one publication. Without it, or after a publication that was made elsewhere, these models are
computed whole.
"""

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gold.tables import GoldSnapshot
from lake.durable import delete_durably, read_json, write_durably

UNCHANGED, WAITS = "UNCHANGED", "WAITS"  # how dbt's message of a model begins, if it is as it was
FILE = "build_after.json"
MAY_WAIT_ENV = "LAKEHOUSE_MODELS_MAY_WAIT"  # the variable that allows dbt to let models wait
TORN = "Delete it; the next build of gold then computes the models with `build_after` whole."


def pause_of(model: Mapping[str, Any]) -> dt.timedelta | None:
    """How long a model waits after it was computed; None if it never waits.

    Args:
        model: the node of the model in dbt's graph, or in its manifest.
    """
    after = (model["config"].get("freshness") or {}).get("build_after") or {}
    if not after.get("count"):
        return None
    return dt.timedelta(**{f"{after['period']}s": after["count"]})


def waiting(done: Mapping[str, str]) -> set[str]:
    """The models that have waited in a build.

    Args:
        done: dbt's message for each model that was built, by its name.
    """
    return {name for name, message in done.items() if message.startswith(WAITS)}


def problems(models: Iterable[Mapping[str, Any]]) -> list[str]:
    """A sentence for each `build_after` that cannot be followed."""
    found = []
    for model in models:
        if pause_of(model) is None:
            continue
        if model["config"]["materialized"] != "kept":
            found.append(
                f"The model {model['name']} has build_after, which needs materialized='kept'."
            )
        elif model["config"]["freshness"]["build_after"].get("updates_on") == "all":
            found.append(
                f"The model {model['name']} has build_after with updates_on: all. Only any is "
                "supported: the model is computed once one of the tables that it reads has changed."
            )
    return found


@dataclass(frozen=True)
class Computed:
    """When a model was computed, and from what.

    at: when it was computed, in ISO 8601. published_at: the publication that had the versions of
    the tables of silver and of gold_build with which its rows agree.
    """

    at: str
    published_at: str
    silver: Mapping[str, int]
    built: Mapping[str, int]


@dataclass(frozen=True)
class LastComputed:
    """What the models with `build_after` were last computed from, by the names of their tables.

    publication: when the publication was made that this belongs to, in ISO 8601.
    """

    publication: str
    models: Mapping[str, Computed]

    @classmethod
    def read(cls, folder: Path) -> "LastComputed | None":
        """What a folder says; None if it says nothing.

        Raises:
            LakehouseError: the file is damaged.
        """
        stored = read_json(folder / FILE, TORN)
        if stored is None:
            return None
        models = {name: Computed(**each) for name, each in stored["models"].items()}
        return cls(stored["publication"], models)

    def write(self, folder: Path) -> None:
        """Write it into a folder."""
        write_durably(folder / FILE, json.dumps(asdict(self)))

    @classmethod
    def restrict(cls, folder: Path, before: GoldSnapshot | None, days: int) -> "LastComputed":
        """Delete from a folder what cannot be used. Called before each build.

        Args:
            folder: the folder.
            before: the last publication.
            days: how many days of changes the tables keep.

        Returns:
            What is left.
        """
        found = cls.read(folder)
        if before is None or found is None or found.publication != before.name:
            if folder.is_dir():
                delete_durably(folder / FILE)
            return cls("", {})
        oldest = dt.datetime.now(dt.timezone.utc) - dt.timedelta(days=days)
        usable = {
            name: each
            for name, each in found.models.items()
            if dt.datetime.fromisoformat(each.published_at) > oldest
        }
        left = cls(found.publication, usable)
        if left != found:
            left.write(folder)
        return left

    def after(
        self,
        published: GoldSnapshot,
        models: Iterable[Mapping[str, Any]],
        done: Mapping[str, str],
        begun: dt.datetime,
    ) -> "LastComputed":
        """What holds after a build was published.

        Args:
            published: the publication.
            models: the models of the manifest.
            done: dbt's message for each model that was built, by its name.
            begun: when it began.
        """
        waited = waiting(done)
        found = {}
        for model in models:
            name = model["alias"]
            if pause_of(model) is None or model["name"] not in done:
                continue
            known = self.models.get(name)
            if known and model["name"] in waited:
                found[name] = known
                continue
            is_unchanged = known and done[model["name"]] == UNCHANGED
            at = known.at if known and is_unchanged else begun.isoformat()
            versions = published.silver_versions, published.built_versions
            found[name] = Computed(at, published.name, *versions)
        return LastComputed(published.name, found)

    def due_at(
        self, models: Iterable[Mapping[str, Any]], done: Mapping[str, str]
    ) -> dt.datetime | None:
        """When the first of the models that have waited in a build is to be computed.

        Args:
            models: the models of the manifest.
            done: dbt's message for each model that was built, by its name.
        """
        waited, now = waiting(done), dt.datetime.now(dt.timezone.utc)
        ends = [self.until(model) or now for model in models if model["name"] in waited]
        return min(ends, default=None)

    def until(self, model: Mapping[str, Any]) -> dt.datetime | None:
        """Until when a model waits; None if it does not wait."""
        pause, known = pause_of(model), self.models.get(model["alias"])
        if pause is None or known is None:
            return None
        end = dt.datetime.fromisoformat(known.at) + pause
        return end if end > dt.datetime.now(dt.timezone.utc) else None
