"""Writes the dbt sources of gold: silver's tables, as the topic file declares them.

The file belongs to the lakehouse as long as its first line says so. `lakehouse gold` then writes it
again when the topic file has changed. A project whose file has no such line keeps its own sources.
"""

from pathlib import Path
from typing import Any

import structlog
import yaml

from gold.dbt.project import DbtProject
from gold.errors import GoldError
from lake.durable import write_durably
from lake.tables.spec import TableSpec
from lake.topics.topic_file import TopicFile
from silver.contract.tables import enriched_table, history_table, state_table, view_table

NAME = "_silver__sources.yml"
MARK = "# Written by `lakehouse gold sources` from the topic file. Changes here are lost.\n"
STAGING = "staging"  # dbt's usual folder for models that read sources
FRESH = "publish_time"

log = structlog.get_logger()


def sources_yaml(topics: TopicFile) -> str:
    """The sources of a topic file, as dbt reads them: each table with its columns.

    The schema is that of the views through which a run reads silver (`open_cut.sql`).
    """
    source = {
        "name": "silver",
        "schema": "cut_{{ target.schema }}",
        "description": (
            "The tables of the silver job, as of the snapshot that gold is built from. Each run "
            "creates these views again."
        ),
        "loaded_at_query": "select max(publish_time) from silver.{{ this.identifier }}",
        "config": {"freshness": {"warn_after": {"count": 1, "period": "day"}}},
        "tables": [_table(table) for table in source_tables(topics)],
    }
    text: str = yaml.safe_dump(
        {"version": 2, "sources": [source]}, sort_keys=False, width=98, allow_unicode=True
    )
    return MARK + text


def source_tables(topics: TopicFile) -> list[TableSpec]:
    """The tables of silver that gold may read."""
    return [
        *(state_table(topic) for topic in topics.changelogs()),
        *(history_table(topic) for topic in topics.changelogs() if topic.history),
        *(enriched_table(topic, topics) for topic in topics.events()),
        *(view_table(view, topics) for view in topics.kept_views()),
    ]


def _table(table: TableSpec) -> dict[str, Any]:
    is_fresh = any(column.name == FRESH for column in table.columns)
    return {
        "name": table.name,
        "description": table.comment,
        **({} if is_fresh else {"config": {"freshness": None}}),
        "columns": [
            {"name": column.name, "description": column.comment} for column in table.columns
        ],
    }


def write_sources(project: DbtProject, topics: TopicFile) -> Path | None:
    """Write the sources of the topic file into a dbt project.

    Called by `lakehouse gold sources` and `lakehouse init`.

    Returns:
        The file; None if it was up to date.

    Raises:
        GoldError: the project declares its sources itself, has no folder for models, or cannot be
            written.
    """
    file = _written(project)
    if file is None:
        if own := _own(project):
            message = (
                f"{own} declares the source silver itself, so nothing was written. To have it "
                "written from the topic file, delete that declaration first."
            )
            raise GoldError(message)
        file = _place(project)
    text = sources_yaml(topics)
    if file.exists() and file.read_text(encoding="utf-8") == text:
        return None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_durably(file, text)
    except OSError as error:
        message = (
            f"{file} cannot be written ({error.strerror}), and its sources are not those of the "
            "topic file. Run `lakehouse gold sources` where it can be, then deploy the project."
        )
        raise GoldError(message) from error
    return file


def keep_in_step(project: DbtProject, topics: TopicFile) -> None:
    """Write the sources again if the project has left them to us. Called before each build.

    Raises:
        GoldError: the file cannot be written.
    """
    if _written(project) is not None and (file := write_sources(project, topics)):
        log.info("sources of gold written", file=str(file))


def _written(project: DbtProject) -> Path | None:
    """The file that `write_sources` has written."""
    return next((file for file in _yaml(project) if _first_line(file) == MARK), None)


def _own(project: DbtProject) -> Path | None:
    """A file in which the project declares the source `silver` itself."""
    for file in _yaml(project):
        try:
            declared = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        except yaml.YAMLError:  # dbt says so
            continue
        sources = declared.get("sources") if isinstance(declared, dict) else None
        if any(each.get("name") == "silver" for each in sources or ()):
            return file
    return None


def _place(project: DbtProject) -> Path:
    folders = project.folders("model-paths")
    if not folders:
        message = (
            f"{project.folder} has no folder for models, so the sources have no place. Make the "
            "folder 'models', or correct 'model-paths' in dbt_project.yml."
        )
        raise GoldError(message)
    staging = folders[0] / STAGING
    return (staging if staging.is_dir() else folders[0]) / NAME


def _yaml(project: DbtProject) -> list[Path]:
    return [
        file
        for folder in project.folders("model-paths")
        for ending in ("*.yml", "*.yaml")
        for file in sorted(folder.rglob(ending))
    ]


def _first_line(file: Path) -> str:
    with file.open(encoding="utf-8") as lines:
        return lines.readline()
