"""Main path of gold: `dbt build` in the schema `gold_build`, and publication if it succeeds.

Models and tests run where nobody reads. Readers keep the last published tables until every test has
passed (`publish.py`). A killed or failed run leaves nothing behind, because the next run begins
where gold was last published (`open_cut.sql` of `gold/package`).

dbt runs in a separate process, because dbt-spark changes the session in which it works. The outcome
is read from its `run_results.json` (`dbt/results.py`), never from its log.
"""

import contextlib
import datetime as dt
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from gold.dbt.manifest import Manifest
from gold.dbt.process import DbtProcess, WarmDbt, dbt_environment, target_path
from gold.dbt.project import DbtProject
from gold.dbt.results import BuildResult, NodeResult, read_results, why_dbt_ended
from gold.dbt.sources import keep_in_step
from gold.errors import BuildError, GoldError
from gold.kept.build_after import MAY_WAIT_ENV, LastComputed, problems, waiting
from gold.kept.definitions import DEFINITIONS_ENV, Definitions, forget_definitions
from gold.lineage import report_build
from gold.lock import alone, require_whole
from gold.own import require_own_views
from gold.publish import publish, undo_unpublished
from gold.records import append_record
from gold.sql_client import SqlError, endpoint_running, query_endpoint
from gold.tables import BUILT, CUT, RUNS, GoldSnapshot, last_published, mart_name
from lake.durable import write_durably
from lake.tables.lake import Lake
from silver.contract.tables import CUTS, silver_tables
from silver.records.masking import protection

ROWS_SHOWN = 3
PASSED = "passed_tests"  # file that says which tests which publication has passed

Gate = Mapping[str, object]

log = structlog.get_logger()


def require_silver(lake: Lake) -> None:
    """Check that all silver tables exist.

    Raises:
        GoldError: one does not exist.
    """
    for table in silver_tables(lake.topics):
        if not lake.table(table).exists():
            message = (
                f"The table {table.full_name} does not exist yet at {lake.table(table).path}, so "
                "gold has nothing to read. Run `lakehouse silver --available-now` first."
            )
            raise GoldError(message)


def has_snapshot(lake: Lake) -> bool:
    """Whether silver has finished a batch, without which there is nothing to build gold from."""
    snapshots = lake.table(CUTS)
    return snapshots.exists() and snapshots.log().count() > 0


@dataclass(frozen=True)
class PreparedBuild:
    """A build whose dbt is loaded, because loading dbt takes longer than many builds.

    id: the id that marks the build's commits and views (`own.py`).
    may_wait: whether models with `build_after` may wait.
    """

    lake: Lake
    dbt: DbtProject
    id: str
    process: DbtProcess
    target: Path
    log: Path
    select: str | None
    full_refresh: bool
    may_wait: bool = False

    def run(self) -> BuildResult:
        """Build, test and publish. Called only once. Returns and raises as `build_gold`."""
        try:
            return self._run()
        except SqlError as error:  # the endpoint refuses us, or was stopped meanwhile
            raise GoldError(error.what, error.remedy) from error

    def _run(self) -> BuildResult:
        if not has_snapshot(self.lake):  # dbt would say so by an error of its compiler
            message = "Gold was not built: silver has not finished a batch yet."
            remedy = (
                "If silver runs, build again in a moment, when `lakehouse status` shows its rows. "
                "Otherwise run `lakehouse silver --available-now` first."
            )
            raise GoldError(message, remedy)
        is_running = endpoint_running(self.lake.settings)  # dbt would not say why it is refused
        if not is_running:  # dbt would parse the project first, and then try three times
            place = f"{self.lake.settings.sql_host}:{self.lake.settings.sql_port}"
            message = (
                f"Gold was not built: no SQL endpoint answers at {place}. Start it with `lakehouse "
                "up`, or correct LAKEHOUSE_SQL_HOST and LAKEHOUSE_SQL_PORT."
            )
            raise GoldError(message)
        started_at = dt.datetime.now(dt.timezone.utc)
        before = last_published(self.lake)
        gate = protection(self.lake)
        # Before dbt reads the files, which may change later.
        project, tests = self.dbt.checksum(gate), self.dbt.checksum_of_tests()
        if known_definitions(self.lake, self.dbt, before, gate) is None:
            forget_definitions(self.target)
        why = "a full refresh was requested"
        if not self.full_refresh and (why := why_whole(self.lake, self.dbt, before, gate) or ""):
            log.info("gold is rebuilt from scratch", reason=why)
        results = self.target / "run_results.json"
        results.unlink(missing_ok=True)
        versions: dict[str, int] = {}
        if before and (not why or self.select):
            versions = undo_unpublished(self.lake, before)
        last = LastComputed.restrict(self.target, before, self.lake.settings.history_days)
        # A table may have got other columns since a model was computed that waits now.
        is_same = before is not None and before.project == project and not why
        may_wait = self.may_wait and is_same and not self.select
        arguments = self._arguments(anew=bool(why))
        with report_build(self.lake, self.target) as lineage:
            is_known = _known_tests(self.target) == _passed(before, tests)
            known = {
                "LAKEHOUSE_TESTS_KNOWN": str(is_known).lower(),
                MAY_WAIT_ENV: str(may_wait).lower(),
            }
            build, code = self._run_dbt(arguments, results, known)
            if build.failed or code:
                self._note(started_at, "failed", build)
                lineage.failed = "; ".join(node.without_values for node in build.failed)
                raise self._refusal(build, code)
            if self.select:
                self._note(started_at, "tested", build)
                return build
            try:
                lineage.published = self._publish(project, versions)
                write_durably(self.target / PASSED, _passed(lineage.published, tests))
                models = Manifest(self.target).models
                self._note_definitions(lineage.published, models, gate)
                last = last.after(lineage.published, models, build.messages, started_at)
                if last.models:
                    last.write(self.target)
            except (GoldError, SqlError):
                self._note(started_at, "failed", build)
                raise
        self._note(started_at, "published", build)
        due_at = last.due_at(models, build.messages)
        return BuildResult(build.nodes, lineage.published, due_at)

    def _note_definitions(
        self, published: GoldSnapshot, models: list[dict[str, Any]], gate: Gate
    ) -> None:
        everywhere = self.dbt.checksum_of_all(gate)
        Definitions.of(published.name, everywhere, models).write(self.target)

    def _run_dbt(
        self, arguments: list[str], results: Path, known: Mapping[str, str]
    ) -> tuple[BuildResult, int]:
        code = self.process.run(arguments, {"LAKEHOUSE_BUILD": self.id, **known})
        if not results.exists():
            said = why_dbt_ended(self.log.read_text(errors="replace"))
            message = f"dbt did not run: {said} See {self.log}."
            raise GoldError(message)
        build = read_results(results)
        if all(node.kind == "operation" for node in build.nodes):
            message = (
                f"'{self.select}' selects no model. List the models with `dbt ls` in "
                f"{self.dbt.folder}."
            )
            raise GoldError(message)
        return build, code

    def _refusal(self, build: BuildResult, code: int) -> BuildError:
        error = BuildError(self._said((node.without_values for node in build.failed), code))
        error.in_terminal = self._said(map(self._describe, build.failed), code)
        error.has_waited = bool(waiting(build.messages))
        return error

    def _said(self, failures: Iterable[str], code: int) -> str:
        said = "; ".join(failures) or f"dbt ended with {code}"
        return (
            f"Gold was not built: {said}. Readers still see the last published version. See "
            f"{self.log}."
        )

    def _arguments(self, *, anew: bool) -> list[str]:
        """The arguments of dbt.

        Unit tests check the models, not the data, so a build that is published leaves them out.
        They run if models are selected, which is how models are developed.
        """
        which = (
            ["--select", self.select] if self.select else ["--exclude-resource-type", "unit_test"]
        )
        return ["--no-version-check", "build", *which, *(["--full-refresh"] * anew)]

    def _publish(self, project: str, versions: dict[str, int]) -> GoldSnapshot:
        manifest = Manifest(self.target)
        wrong = manifest.problems(self.lake.topics) + problems(manifest.models)
        if wrong:
            message = f"Gold was not published. {' '.join(wrong)} Correct the dbt project."
            raise GoldError(message)
        _, [(text,)] = query_endpoint(self.lake.settings, f"SELECT run FROM {CUT}.run")  # noqa: S608
        views = {node["identifier"] for node in manifest.sources}
        require_own_views(self.lake.settings, self.id, {"run", *views})
        silver = json.loads(text)["silver_batch"], json.loads(text)["silver"]
        marts = {mart_name(node["config"]["schema"], node["alias"]) for node in manifest.marts}
        built = [node["alias"] for node in manifest.tables]
        return publish(self.lake, sorted(marts), built, silver, project, (self.id, versions))

    def _note(self, started_at: dt.datetime, outcome: str, build: BuildResult) -> None:
        rows = [
            {
                "started_at": started_at,
                "outcome": outcome,
                **{name: getattr(node, name) for name in ("kind", "name", "status", "seconds")},
                "message": node.message_without_values,
            }
            for node in build.nodes
        ]
        append_record(self.lake.table(RUNS), rows, "started_at", self.lake.settings.history_days)

    def _describe(self, node: NodeResult) -> str:
        """What failed, and for a test, some of the rows that it found."""
        said = str(node)
        if node.kind == "test" and node.status == "fail" and node.sql:
            with contextlib.suppress(SqlError):
                few = f"select * from ({node.sql}) limit {ROWS_SHOWN}"  # noqa: S608 - dbt's own SQL
                names, rows = query_endpoint(self.lake.settings, few)
                shown = ", ".join(str(dict(zip(names, row, strict=True))) for row in rows)
                said = f"{said}, such as {shown}"
        return said


@contextlib.contextmanager
def prepare_build(
    lake: Lake,
    *,
    select: str | None = None,
    full_refresh: bool = False,
    may_wait: bool = False,
    warm: WarmDbt | None = None,
) -> Iterator[PreparedBuild]:
    """Start dbt, so that the block can `run` the build. Arguments and errors as in `build_gold`.

    The caller must hold the lock of gold (`alone`).

    Args:
        lake: the lake.
        select: as in `build_gold`.
        full_refresh: as in `build_gold`.
        may_wait: whether models with `build_after` may wait.
        warm: keeps dbt loaded for the next build. Without it, dbt ends with the block.
    """
    target, build = target_path(lake.settings), uuid.uuid4().hex
    project = DbtProject.of(lake.settings)
    keep_in_step(project, lake.topics)
    log_file = lake.settings.home_dir / "logs" / "dbt.log"
    log_file.parent.mkdir(parents=True, exist_ok=True)
    require_whole(lake.settings)
    environment = {
        **dbt_environment(lake.settings, target, BUILT),
        DEFINITIONS_ENV: str(target),
    }
    with contextlib.ExitStack() as stack:
        loaded = warm or stack.enter_context(contextlib.closing(WarmDbt()))
        process = loaded.process(project.folder, environment, log_file)
        yield PreparedBuild(
            lake, project, build, process, target, log_file, select, full_refresh, may_wait
        )


def build_gold(lake: Lake, *, select: str | None = None, full_refresh: bool = False) -> BuildResult:
    """Build and test the models of the dbt project at the running SQL endpoint, and publish.

    Args:
        lake: the lake; the endpoint is on `sql_port` of its settings.
        select: the models to build and test, in dbt's selection syntax; all if None. Selected
            models are not published, because the others would show a different snapshot.
        full_refresh: rebuild all models from scratch.

    Raises:
        GoldError: silver has not finished a batch, the endpoint does not let us in or cannot be
            trusted, dbt could not run, or models or tests failed (a `BuildError`). The message
            names them, with dbt's messages if these hold no values.
        SettingsError: the lake has no dbt project.
    """
    with (
        alone(lake.settings),
        prepare_build(lake, select=select, full_refresh=full_refresh) as build,
    ):
        return build.run()


def why_whole(
    lake: Lake, project: DbtProject, before: GoldSnapshot | None, gate: Gate
) -> str | None:
    """Why the next build must build all models from scratch.

    Args:
        lake: the lake.
        project: its dbt project.
        before: the last publication.
        gate: what gold may see of silver (`protection`).

    Returns:
        The reason; None if only models whose definitions have changed are built from scratch.
    """
    if before is None:
        return "gold has not been published before"
    if before.project != project.checksum(gate):
        if known_definitions(lake, project, before, gate) is None:
            return "what all models depend on has changed, or the last build was made elsewhere"
        if project.may_be_incremental:
            return "the project has changed, and has seeds or incremental models"
    age = dt.datetime.now(dt.timezone.utc) - before.published_at
    if age > dt.timedelta(days=lake.settings.history_days):
        return f"changes since {before.published_at:%Y-%m-%d} are no longer kept"
    return None


def known_definitions(
    lake: Lake, project: DbtProject, before: GoldSnapshot | None, gate: Gate
) -> Definitions | None:
    """The definitions of the models that were published; None if not known or not comparable.

    Arguments as in `why_whole`.
    """
    known = Definitions.read(target_path(lake.settings))
    if known is None or before is None:
        return None
    wanted = before.name, project.checksum_of_all(gate)
    return known if (known.publication, known.everywhere) == wanted else None


def _passed(snapshot: GoldSnapshot | None, tests: str) -> str:
    """The content of `PASSED` if the tables of a snapshot passed the tests with a checksum."""
    return f"{snapshot.name} {tests}" if snapshot else ""


def _known_tests(target: Path) -> str | None:
    """Which publication passed which tests, as in `_passed`; None if it is not known."""
    file = target / PASSED
    return file.read_text() if file.exists() else None
