"""The dbt project of gold: its folder, and what its files say about builds."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from lake.settings.settings import SHOP_DBT, LakeSettings
from pulsar_spark.errors import SettingsError

FILE = "dbt_project.yml"
PROFILES = "profiles.yml"
PROFILE = "lakehouse"  # the profile in the shop's file, which serves projects without a file
PACKAGE = Path(__file__).resolve().parents[1] / "package"

# dbt's settings for the folders of a project, each with its default.
FOLDERS = {
    "model-paths": ["models"],
    "macro-paths": ["macros"],
    "seed-paths": ["seeds"],
    "snapshot-paths": ["snapshots"],
    "test-paths": ["tests"],
}
# The folders that decide what the tables hold. Tests and docs do not.
MADE_FROM = ("model-paths", "macro-paths", "seed-paths", "snapshot-paths")
TEXTS = (".sql", ".yml", ".yaml")
TESTED_BY = ("model-paths", "macro-paths", "test-paths")


@dataclass(frozen=True)
class DbtProject:
    """A dbt project in a folder."""

    folder: Path

    @classmethod
    def of(cls, settings: LakeSettings) -> "DbtProject":
        """The project that the settings name.

        Raises:
            SettingsError: the folder holds no dbt project, or its `dbt_project.yml` is not YAML.
        """
        folder = settings.dbt_project.expanduser().resolve()
        if not (folder / FILE).is_file():
            message = f"{folder} holds no dbt project, because it has no {FILE}."
            remedy = (
                "Name the folder of yours as dbt_project in lakehouse.toml or as "
                "LAKEHOUSE_DBT_PROJECT. `lakehouse init` makes a new one."
            )
            raise SettingsError(message, remedy)
        project = cls(folder)
        try:
            known = isinstance(project._declared, dict)
        except yaml.YAMLError as error:
            message = f"{folder / FILE} is not valid YAML: {' '.join(str(error).split())}."
            raise SettingsError(message) from error
        if not known:
            message = f"{folder / FILE} declares nothing. dbt needs at least 'name' and 'profile'."
            raise SettingsError(message)
        return project

    @cached_property
    def _declared(self) -> dict[str, Any]:
        declared: dict[str, Any] = yaml.safe_load((self.folder / FILE).read_text())
        return declared

    @property
    def environment(self) -> dict[str, str]:
        """The variables that tell dbt which profile to use: the project's own, or the shipped one.

        A project that was made for another warehouse thus runs here unchanged.
        """
        if (self.folder / PROFILES).is_file():
            return {"DBT_PROFILES_DIR": str(self.folder)}
        return {"DBT_PROFILES_DIR": str(SHOP_DBT), "DBT_PROFILE": PROFILE}

    def folders(self, kind: str) -> list[Path]:
        """The existing folders of a kind, one of `FOLDERS`."""
        named = self._declared.get(kind, FOLDERS[kind])
        return [self.folder / name for name in named if (self.folder / name).is_dir()]

    def checksum(self, gate: Mapping[str, object]) -> str:
        """A checksum of what determines the rows: the models, and what they may see of silver.

        Args:
            gate: what gold may see of silver (`silver/records/masking.py`).
        """
        files = [self.folder / FILE]
        for kind in MADE_FROM:
            files += (file for file in self._files(kind) if file.suffix in (".sql", ".csv"))
        files += sorted((self.folder / "dbt_packages").rglob("*.sql"))
        files += sorted((PACKAGE / "macros").glob("*.sql"))
        return _checksum(files, [json.dumps(gate).encode()] if gate else [])

    def checksum_of_all(self, gate: Mapping[str, object]) -> str:
        """A checksum of what determines the rows of all models: what they may see, and our macros.

        Args:
            gate: as in `checksum`.
        """
        return _checksum(sorted((PACKAGE / "macros").glob("*.sql")), [json.dumps(gate).encode()])

    @property
    def may_be_incremental(self) -> bool:
        """Whether a table may be built in a way that only a full refresh can follow a change of.

        These are models with a logic of their own for increments, and seeds.
        """
        kinds = ("model-paths", "macro-paths")
        files = [self.folder / FILE, *(file for kind in kinds for file in self._files(kind))]
        texts = (file.read_text(errors="replace") for file in files if file.suffix in TEXTS)
        return any(self._files("seed-paths")) or any("incremental" in text for text in texts)

    def checksum_of_tests(self) -> str:
        """A checksum of the tests of the models."""
        return _checksum([file for kind in TESTED_BY for file in self._files(kind)])

    def _files(self, kind: str) -> Iterator[Path]:
        for folder in self.folders(kind):
            yield from sorted(file for file in folder.rglob("*") if file.is_file())


def _checksum(files: list[Path], more: list[bytes] | None = None) -> str:
    parts = [file.read_bytes() for file in files] + (more or [])
    return hashlib.sha256(b"".join(parts)).hexdigest()
