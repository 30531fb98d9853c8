"""OpenLineage events of a build of gold. Imported only if lineage is wanted.

A build is a run of the job `gold`, which reads the built tables and writes the published ones. Each
model and its tests are runs of their own jobs, whose parent is the build. OpenLineage's own reader
of dbt's artifacts creates their events. dbt knows tables by their names at the endpoint, and silver
by the views of a snapshot. The events get the names that bronze and silver report instead.
"""

import json
from pathlib import Path
from typing import Any

from openlineage.client.event_v2 import InputDataset, Job, RunEvent, RunState
from openlineage.client.facet_v2 import dataset_version_dataset, job_type_job
from openlineage.common.provider.dbt.facets import DbtRunRunFacet, ParentRunMetadata
from openlineage.common.provider.dbt.processor import DbtArtifactProcessor, ModelNode

from gold.tables import BUILT, CUT, GoldSnapshot
from lake.observe.lineage import table_at
from lake.observe.lineage_events import PRODUCER, Emitter, facets, now, output
from lake.tables.lake import Lake

JOB = "gold"


class GoldRun:
    """Sends the events of one build."""

    def __init__(self, lake: Lake, emitter: Emitter) -> None:
        self._lake = lake
        self._emitter = emitter
        self._id = emitter.new_run()

    def started(self) -> None:
        """Report that dbt is about to run."""
        self._emit(RunState.START)

    def models(self, target: Path) -> None:
        """Report the models and tests, from the artifacts that dbt has left in `target`.

        If dbt did not get as far as its models, nothing is reported.
        """
        if (target / "run_results.json").exists():
            for event in _Artifacts(self._lake, target, self._id).parse().events():
                self._emitter.send(event)

    def failed(self, error: str) -> None:
        """Report that the build failed and nothing was published."""
        self._emit(RunState.FAIL, error=error)

    def completed(self, snapshot: GoldSnapshot | None) -> None:
        """Report success. Without a snapshot, only a part was built, and nothing published."""
        self._emit(RunState.COMPLETE, snapshot.versions if snapshot else {})

    def _emit(
        self, state: RunState, marts: dict[str, int] | None = None, error: str | None = None
    ) -> None:
        built, published = [], []
        for name, version in (marts or {}).items():
            place = table_at(self._lake.settings, self._lake.named(BUILT, name))
            built.append(InputDataset(place.namespace, place.name, facets=facets(place)))
            mart = output(table_at(self._lake.settings, self._lake.named("gold", name)))
            as_of = dataset_version_dataset.DatasetVersionDatasetFacet(str(version))
            mart.facets = {**(mart.facets or {}), "version": as_of}
            published.append(mart)
        kind = job_type_job.JobTypeJobFacet("BATCH", integration="DBT", jobType="JOB")
        self._emitter.send(
            RunEvent(
                eventTime=now(),
                producer=PRODUCER,
                run=self._emitter.run(self._id, error),
                job=Job(self._lake.settings.lineage_namespace, JOB, {"jobType": kind}),
                eventType=state,
                inputs=built,
                outputs=published,
            )
        )


class _Artifacts(DbtArtifactProcessor):  # type: ignore[misc]
    """Reads the artifacts of a dbt run, whose parent is a build."""

    def __init__(self, lake: Lake, target: Path, parent: str) -> None:
        super().__init__(PRODUCER, lake.settings.lineage_namespace)
        self._lake = lake
        self._target = target
        self.dbt_run_metadata = ParentRunMetadata(parent, JOB, lake.settings.lineage_namespace)

    def get_dbt_metadata(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], None]:
        """Manifest, results, profile, and None in place of a catalog."""
        host, port = self._lake.settings.sql_host, self._lake.settings.sql_port
        profile = {"type": "spark", "method": "thrift", "host": host, "port": port}
        return self._read("manifest.json"), self._read("run_results.json"), profile, None

    def _read(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self._target / name).read_text())
        return found

    def dbt_run_run_facet(self) -> dict[str, DbtRunRunFacet]:
        """The facet that identifies the dbt run by dbt's own id."""
        invocation = self.run_metadata["invocation_id"]
        return {"dbt_run": DbtRunRunFacet(invocation, dbt_runtime="core")}

    def extract_dataset_data(
        self, node: ModelNode, *arguments: Any, **named: Any
    ) -> tuple[str, str, dict[str, Any], dict[str, Any]]:
        """Namespace, name and facets of the table of a model or source."""
        _, _, known, of_input = super().extract_dataset_data(node, *arguments, **named)
        found = node.metadata_node
        schema = "silver" if found["schema"] == CUT else found["schema"]
        table = self._lake.named(schema, found.get("alias") or found["name"])
        place = table_at(self._lake.settings, table)
        return place.namespace, place.name, {**known, **facets(place)}, of_input
