"""OpenLineage events, and the thread that sends them. Imported only if lineage is on."""

import atexit
import datetime as dt
import functools
import logging
import os
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from queue import Full, Queue
from threading import Thread
from typing import Any

import pyspark
import structlog
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import (
    InputDataset,
    Job,
    OutputDataset,
    Run,
    RunEvent,
    RunState,
)
from openlineage.client.facet_v2 import (
    DatasetFacet,
    OutputDatasetFacet,
    RunFacet,
    documentation_dataset,
    error_message_run,
    job_type_job,
    output_statistics_output_dataset,
    parent_run,
    processing_engine_run,
    schema_dataset,
    set_producer,
    storage_dataset,
    symlinks_dataset,
)
from openlineage.client.uuid import generate_new_uuid

from lake.observe.lineage import Place, State, StreamRun
from pulsar_spark.errors import SettingsError
from pulsar_spark.log_masking import SECRET_NAME, hide, redact

MOST_WAITING = 1_000
SECONDS_TO_LEAVE = 5
PARENT = "OPENLINEAGE_PARENT_ID"  # namespace/job/run, as in OpenLineage's own integrations

log = structlog.get_logger()


def _producer() -> str:
    try:
        return f"urn:orders-lakehouse:{version('orders-lakehouse')}"
    except PackageNotFoundError:  # a wheel passed by `--py-files`
        return "urn:orders-lakehouse:0"


PRODUCER = _producer()
set_producer(PRODUCER)  # of the facets


class Emitter:
    """Sends events one after the other from a separate thread.

    Delivery is best effort. Events are dropped if the collector stays unreachable or the process
    ends before they are sent. The first of several drops is logged.
    """

    def __init__(self, client: OpenLineageClient, parent: Mapping[str, RunFacet]) -> None:
        self._client = client
        self._parent = parent
        self._waiting: Queue[RunEvent] = Queue(MOST_WAITING)
        self._lost = 0
        Thread(target=self._send_all, name="lineage", daemon=True).start()

    @staticmethod
    def new_run() -> str:
        """A new run id."""
        return str(generate_new_uuid())

    def stream(
        self, run: StreamRun, state: State, written: Mapping[str, int], error: str | None
    ) -> None:
        """Report the state of a stream's run. Called by `StreamRuns`.

        Args:
            run: the run.
            state: its new state.
            written: rows written since the run began, by table.
            error: the reason for a failure, else None.
        """
        kind = job_type_job.JobTypeJobFacet("STREAMING", integration="SPARK", jobType="QUERY")
        engine = processing_engine_run.ProcessingEngineRunFacet(pyspark.__version__, "spark")
        self.send(
            RunEvent(
                eventTime=now(),
                producer=PRODUCER,
                run=self.run(run.id, error, processing_engine=engine),
                job=Job(run.namespace, run.job, {"jobType": kind}),
                eventType=RunState(state),
                inputs=[
                    InputDataset(each.namespace, each.name, facets=facets(each))
                    for each in run.flow.inputs
                ],
                outputs=[output(each, written.get(each.name)) for each in run.flow.outputs],
            )
        )

    def run(self, run: str, error: str | None, **more: RunFacet) -> Run:
        """A run with its parent, if any, and its error, if it has failed."""
        found: dict[str, RunFacet] = {**self._parent, **more}
        if error:
            found["errorMessage"] = error_message_run.ErrorMessageRunFacet(redact(error), "Python")
        return Run(run, found)

    def send(self, event: RunEvent) -> None:
        """Queue an event for the thread. Returns at once; drops the event if the queue is full."""
        try:
            self._waiting.put_nowait(event)
        except Full:
            self._lose(f"{MOST_WAITING} events are waiting already")

    def flush(self, seconds: float) -> None:
        """Wait until all events are sent, but at most this long."""
        with self._waiting.all_tasks_done:
            self._waiting.all_tasks_done.wait_for(
                lambda: not self._waiting.unfinished_tasks, timeout=seconds
            )

    def _send_all(self) -> None:
        while True:
            event = self._waiting.get()
            try:
                self._client.emit(event)
            except Exception as error:  # noqa: BLE001 - a transport may raise anything
                self._lose(f"{type(error).__name__}: {error}")
            else:
                if self._lost:
                    log.info("lineage is sent again", lost=self._lost)
                self._lost = 0
            finally:
                self._waiting.task_done()

    def _lose(self, why: str) -> None:
        if not self._lost:
            log.warning("lineage is not sent", why=why)
        self._lost += 1


@functools.lru_cache(maxsize=1)
def the_emitter() -> Emitter:
    """The emitter of this process. OpenLineage's own configuration sets its destination.

    Raises:
        SettingsError: the configuration is invalid or names no destination.
    """
    for name in ("urllib3", "openlineage.client.client"):  # retries, missing settings
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = OpenLineageClient()
        _hide_secrets(client.config.transport or {})
        parent = _parent()
    except Exception as error:
        message = (
            f"OpenLineage's configuration is invalid: {type(error).__name__}: {error}. "
            "Correct the OPENLINEAGE_… variables or openlineage.yml, or unset LAKEHOUSE_LINEAGE."
        )
        raise SettingsError(message) from error
    if client.transport.kind == "console" and not (client.config.transport or {}).get("type"):
        message = (
            "LAKEHOUSE_LINEAGE is on, but events have no destination. Set OPENLINEAGE_URL to "
            "your collector, or name a transport in openlineage.yml (OPENLINEAGE_CONFIG)."
        )
        raise SettingsError(message)
    made = Emitter(client, parent)
    atexit.register(made.flush, SECONDS_TO_LEAVE)
    return made


def _parent() -> dict[str, RunFacet]:
    """The run that started this process, such as an Airflow task, if the environment names it."""
    given = os.environ.get(PARENT)
    if not given:
        return {}
    namespace, job, run = given.rsplit("/", 2)
    facet = parent_run.ParentRunFacet(parent_run.Run(run), parent_run.Job(namespace, job))
    return {"parent": facet}


def _hide_secrets(configuration: Mapping[str, Any]) -> None:
    for name, value in configuration.items():
        if isinstance(value, Mapping):
            _hide_secrets(value)
        elif SECRET_NAME.search(name):
            hide(str(value))


def now() -> str:
    """The current time in the format of events: ISO 8601, UTC."""
    return dt.datetime.now(dt.timezone.utc).isoformat()


def output(place: Place, rows: int | None = None) -> OutputDataset:
    """A dataset that a job writes, with the number of rows written if it is known."""
    counted: dict[str, OutputDatasetFacet] = {}
    if rows is not None:
        counted["outputStatistics"] = (
            output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=rows)
        )
    return OutputDataset(place.namespace, place.name, facets=facets(place), outputFacets=counted)


def facets(place: Place) -> dict[str, DatasetFacet]:
    """The facets of a topic or a table: its schema, description and names."""
    found: dict[str, DatasetFacet] = {}
    if place.columns:
        fields = [
            schema_dataset.SchemaDatasetFacetFields(name, kind, comment)
            for name, kind, comment in place.columns
        ]
        found["schema"] = schema_dataset.SchemaDatasetFacet(fields=fields)
    if place.comment:
        found["documentation"] = documentation_dataset.DocumentationDatasetFacet(place.comment)
    if place.alias:
        known_as = symlinks_dataset.Identifier(*place.alias, type="TABLE")
        found["symlinks"] = symlinks_dataset.SymlinksDatasetFacet([known_as])
        found["storage"] = storage_dataset.StorageDatasetFacet("delta", "parquet")
    return found
