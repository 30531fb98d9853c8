"""The files of a project that belong to a backup: its settings, topic file and dbt project."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from lake.settings.settings import SHOP_DBT, SHOP_TOPICS, LakeSettings
from lake.topics.topic_file import load_topics
from lakehouse.operate.backup_store import Backup, BackupStore
from pulsar_spark.errors import SettingsError

SETTINGS = "lakehouse.toml"
PREFIX = "project/"
MADE_BY_DBT = {"target", "logs"}  # in the folder of the project
LEFT_OUT = {"__pycache__", ".git", ".lakehouse"}


def project_files(settings: LakeSettings, project: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """The files of a project, and where what is outside its folder will be.

    They are the settings, the topic file with the files of its functions, and the dbt project.

    What is shipped with the lakehouse is left out, because every installation has it.

    Args:
        settings: the settings.
        project: the folder of the project, in which the commands run.

    Returns:
        The files by their path within the project, and the new path within the project by setting.
    """
    files, moved = {}, {}
    if (project / SETTINGS).is_file():
        files[SETTINGS] = project / SETTINGS
    for setting, named in (("topics", settings.topics), ("dbt_project", settings.dbt_project)):
        place = named.expanduser().resolve()
        if place in (SHOP_TOPICS.resolve(), SHOP_DBT.resolve()):
            continue
        inside = place.is_relative_to(project) and place != project
        name = place.relative_to(project) if inside else Path(setting, place.name)
        if not inside:
            moved[setting] = str(name)
        found = [place] if place.is_file() else _below(place)
        files |= {str(name / file.relative_to(place)): file for file in found}
        if setting == "topics":
            own = {function.file for function in load_topics(place).functions.values()}
            files |= {str(name.parent / file): place.parent / file for file in sorted(own)}
    return files, moved


def _below(folder: Path) -> list[Path]:
    found = []
    for place, folders, names in os.walk(folder):
        left_out = LEFT_OUT | (MADE_BY_DBT if Path(place) == folder else set())
        folders[:] = sorted(set(folders) - left_out)
        found += [Path(place, name) for name in sorted(names)]
    return [file for file in found if file.is_file()]


def secret_files(settings: LakeSettings) -> dict[str, str]:
    """The files that settings name, by setting. They hold secrets or certificates."""
    named = ((name, getattr(settings, name)) for name in type(settings).model_fields)
    own = {name: str(file) for name, file in named if name.endswith("_file") and file is not None}
    return {name: file for name, file in own.items() if name != "sql_users_file"}


def variables(environment: Mapping[str, str]) -> list[str]:
    """The names of the environment variables that hold settings."""
    known = {f"LAKEHOUSE_{name}".upper() for name in LakeSettings.model_fields}
    return sorted(known & environment.keys())


def restore_project(store: BackupStore, backup: Backup, project: Path) -> list[str]:
    """Put the files of a backup's project into a folder, unless it is a project already.

    `lakehouse.toml` comes last, so that an interrupted restore begins again.

    Args:
        store: the folder of the backup.
        backup: its list.
        project: the folder, in which the command runs.

    Returns:
        The paths of the files that were written.

    Raises:
        SettingsError: a file exists already and has other content. Nothing is written then.
        LakehouseError: a file of the backup is missing or damaged.
    """
    if (project / SETTINGS).exists():
        return []
    files = {
        name.removeprefix(PREFIX): stored
        for name, stored in backup.files.items()
        if name.startswith(PREFIX)
    }
    wanted = {}
    for name, stored in files.items():
        there = project / name
        if not there.exists():
            wanted[name] = stored
        elif hashlib.sha256(there.read_bytes()).hexdigest() != stored.sha256:
            message = (
                f"{there} exists already, and differs from the one in the backup. Nothing was "
                f"changed. Run the command in an empty folder, or in a project with a {SETTINGS}."
            )
            raise SettingsError(message)
    for name, stored in sorted(wanted.items(), key=lambda each: each[0] == SETTINGS):
        draft = project / f".{Path(name).name}.restoring"
        store.copy(PREFIX + name, stored, draft)
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        draft.replace(project / name)
    return [*wanted]
