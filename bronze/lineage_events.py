"""OpenLineage events, and the thread that sends them. Imported only where lineage is wanted."""

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

from bronze.errors import SettingsError
from bronze.lineage import Place, State, StreamRun
from bronze.redaction import SECRET_NAME, hide, redact

MOST_WAITING = 1_000
SECONDS_TO_LEAVE = 5
PARENT = "OPENLINEAGE_PARENT_ID"  # namespace/job/run, as OpenLineage's own integrations take it

log = structlog.get_logger()


def _producer() -> str:
    try:
        return f"urn:orders-lakehouse:{version('orders-lakehouse')}"
    except PackageNotFoundError:  # a wheel of `--py-files`
        return "urn:orders-lakehouse:0"


PRODUCER = _producer()
set_producer(PRODUCER)  # of the facets


class Emitter:
    """Sends events one after the other from a thread of its own.

    At least once at best: what waits when a collector stays away, or when the process ends, is
    dropped, which is logged when it begins.
    """

    def __init__(self, client: OpenLineageClient, parent: Mapping[str, RunFacet]) -> None:
        self._client = client
        self._parent = parent
        self._waiting: Queue[RunEvent] = Queue(MOST_WAITING)
        self._lost = 0
        Thread(target=self._send_all, name="lineage", daemon=True).start()

    @staticmethod
    def new_run() -> str:
        """An id for a run."""
        return str(generate_new_uuid())

    def stream(
        self, run: StreamRun, state: State, written: Mapping[str, int], error: str | None
    ) -> None:
        """Tell what has become of a run of a stream.

        Args:
            run: which.
            state: what has become of it.
            written: by table, rows since the run began.
            error: why it has failed.
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
        """A run with its parent, and with why it has failed."""
        found: dict[str, RunFacet] = {**self._parent, **more}
        if error:
            found["errorMessage"] = error_message_run.ErrorMessageRunFacet(redact(error), "Python")
        return Run(run, found)

    def send(self, event: RunEvent) -> None:
        """Leave an event to the thread; returns at once."""
        try:
            self._waiting.put_nowait(event)
        except Full:
            self._lose(f"{MOST_WAITING} events wait already")

    def flush(self, seconds: float) -> None:
        """Wait until all is sent, or this long."""
        with self._waiting.all_tasks_done:
            self._waiting.all_tasks_done.wait_for(
                lambda: not self._waiting.unfinished_tasks, timeout=seconds
            )

    def _send_all(self) -> None:
        while True:
            event = self._waiting.get()
            try:
                self._client.emit(event)
            except Exception as error:  # noqa: BLE001 - whatever a transport raises, data flows on
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
    """The one of this process, to where OpenLineage's own configuration says.

    Raises:
        SettingsError: it says nothing, or what cannot be.
    """
    for name in ("urllib3", "openlineage.client.client"):  # each try; that nothing is configured
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = OpenLineageClient()
        _hide_secrets(client.config.transport or {})
        parent = _parent()
    except Exception as error:
        message = (
            f"OpenLineage cannot be configured as it is: {type(error).__name__}: {error}. "
            "Correct OPENLINEAGE_… variables or openlineage.yml, or unset LAKEHOUSE_LINEAGE."
        )
        raise SettingsError(message) from error
    if client.transport.kind == "console" and not (client.config.transport or {}).get("type"):
        message = (
            "LAKEHOUSE_LINEAGE is on, and nothing says where events go. Set OPENLINEAGE_URL to "
            "your collector, or name a transport in openlineage.yml (OPENLINEAGE_CONFIG)."
        )
        raise SettingsError(message)
    made = Emitter(client, parent)
    atexit.register(made.flush, SECONDS_TO_LEAVE)
    return made


def _parent() -> dict[str, RunFacet]:
    """What has started us, such as a task of Airflow, if that was said."""
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
    """The instant, as events have it."""
    return dt.datetime.now(dt.timezone.utc).isoformat()


def output(place: Place, rows: int | None = None) -> OutputDataset:
    """What a job writes, with the rows that were written if they are known."""
    counted: dict[str, OutputDatasetFacet] = {}
    if rows is not None:
        counted["outputStatistics"] = (
            output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=rows)
        )
    return OutputDataset(place.namespace, place.name, facets=facets(place), outputFacets=counted)


def facets(place: Place) -> dict[str, DatasetFacet]:
    """What is known of a topic or a table."""
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
