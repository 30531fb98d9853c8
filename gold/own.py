"""Ensures that a build publishes only its own work.

A lock keeps two `lakehouse gold` with the same home apart. It does not stop others from writing
through the SQL endpoint: a dbt project of an older version, a dbt whose `lakehouse gold` was
killed, or a person. Each build therefore has an id. Its views of silver have the id as their
comment, and its commits in Delta's log have it as `userMetadata`. Both are checked after the last
test, for exactly the versions that are published.
"""

from collections.abc import Set as AbstractSet
from typing import NoReturn

from deltalake import CommitProperties, DeltaTable

from gold.errors import GoldError
from gold.sql_client import query_endpoint
from gold.tables import BUILT, CUT
from lake.settings.settings import LakeSettings

MOST_COMMITS = 100  # a build makes only a few per table
MARK = "userMetadata"  # as Spark writes it into Delta's log, and delta-rs shows it


def marked(build: str) -> CommitProperties:
    """The properties of a commit that delta-rs makes for a build."""
    return CommitProperties(custom_metadata={MARK: build})


def require_own_views(settings: LakeSettings, build: str, names: AbstractSet[str]) -> None:
    """Check that this build made the views of silver that its models read.

    Raises:
        GoldError: another run of dbt has replaced one.
    """
    _, rows = query_endpoint(settings, f"SHOW TABLE EXTENDED IN {CUT} LIKE '*'")
    ours = {name for _, name, _, text in rows if f"Comment: {build}\n" in text}
    if others := sorted(names - ours):
        _refuse(f"{CUT}.{others[0]} was replaced")


def require_own_commits(name: str, table: DeltaTable, since: int, build: str) -> None:
    """Check that nothing else has changed a table while it was built.

    Args:
        name: the model.
        table: its table, at the version that is about to be published.
        since: the version at the start of the build; -1 if the table was built from scratch.
            Commits before the one in which the build replaced the table do not matter.
        build: the id of the build.

    Raises:
        GoldError: something else has changed the table.
    """
    if table.version() == since:
        return
    for commit in table.history(MOST_COMMITS):  # newest first
        if commit["version"] == since:
            return
        if commit.get(MARK) != build:
            _refuse(f"{BUILT}.{name} was changed ({commit['operation']})")
        if commit["operation"].startswith("CREATE"):
            return


def _refuse(what: str) -> NoReturn:
    message = (
        f"Gold was not published: {what} by something else during the build. Readers still see the "
        f"last published version. Only one `lakehouse gold` per lake may write to {BUILT}. Let dbt "
        f"write to its own schema (LAKEHOUSE_DBT_SCHEMA={BUILT}_<name>). The next build starts "
        "from the last published version."
    )
    raise GoldError(message)
