"""Writes the docs of the dbt models, with their lineage, as one HTML page."""

import shutil
from pathlib import Path

from gold.dbt.process import run_dbt, target_path
from gold.errors import GoldError
from gold.tables import BUILT
from lake.settings.settings import LakeSettings


def docs_page(settings: LakeSettings) -> Path:
    """The path to which `write_docs` writes the page."""
    return settings.home_dir / "dbt-docs" / "static_index.html"


def write_docs(settings: LakeSettings) -> Path:
    """Write the docs of the models as they were last built, and return the path of the page.

    Names and types of columns come from the models' contracts and not from the tables, so no SQL
    endpoint is needed. dbt works in a separate folder, because a build may be running.

    Raises:
        GoldError: gold has not been built yet, or dbt could not run.
    """
    built = target_path(settings) / "manifest.json"
    if not built.exists():
        message = (
            f"{built} does not exist, because gold has not been built yet. Run `lakehouse gold` "
            "first."
        )
        raise GoldError(message)
    page = docs_page(settings)
    page.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(built, page.parent)
    command = ["docs", "generate", "--static", "--no-compile", "--empty-catalog"]
    code, log = run_dbt(settings, page.parent, command, BUILT)
    if code:
        message = f"dbt could not write its docs. See {log}."
        raise GoldError(message)
    return page
