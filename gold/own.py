"""Makes sure that a build publishes its own work alone.

A lock keeps two `lakehouse gold` of one home apart, but not what others write through the SQL
endpoint: a dbt project of an older version, a dbt whose `lakehouse gold` was killed, a person. So
each build has an id. Its views of silver carry it as their comment, and its commits in Delta's log
as `userMetadata`. Both are looked at after the last test, on the very versions that are published.
"""

from collections.abc import Set as AbstractSet
from typing import NoReturn

from deltalake import CommitProperties, DeltaTable

from gold.errors import GoldError
from gold.sql_client import query_endpoint
from gold.tables import BUILT, CUT
from lake.settings.settings import LakeSettings

MOST_COMMITS = 100  # a build makes a few of a table
MARK = "userMetadata"  # as Spark writes it into Delta's log, and delta-rs shows it


def marked(build: str) -> CommitProperties:
    """Properties of a commit that delta-rs makes for a build."""
    return CommitProperties(custom_metadata={MARK: build})


def require_own_views(settings: LakeSettings, build: str, names: AbstractSet[str]) -> None:
    """Check that the views of silver that the models read are those that the build made.

    Raises:
        GoldError: another run of dbt has replaced one.
    """
    _, rows = query_endpoint(settings, f"SHOW TABLE EXTENDED IN {CUT} LIKE '*'")
    ours = {name for _, name, _, text in rows if f"Comment: {build}\n" in text}
    if others := sorted(names - ours):
        _refuse(f"{CUT}.{others[0]} was replaced")


def require_own_commits(name: str, table: DeltaTable, since: int, build: str) -> None:
    """Check that nobody else has changed a table while it was built.

    Args:
        name: the model.
        table: its table, at the version that is about to be published.
        since: the version with which the build began; -1 if it was built from scratch. What was
            before a commit in which the build replaces the table does not matter.
        build: the id of the build.

    Raises:
        GoldError: somebody else has.
    """
    if table.version() == since:
        return
    for commit in table.history(MOST_COMMITS):  # the newest first
        if commit["version"] == since:
            return
        if commit.get(MARK) != build:
            _refuse(f"{BUILT}.{name} was changed ({commit['operation']})")
        if commit["operation"].startswith("CREATE"):
            return


def _refuse(what: str) -> NoReturn:
    message = (
        f"Gold was not published: {what} by something else during the build. Readers keep what was "
        f"published before. Only one `lakehouse gold` of a lake may write in {BUILT}; give dbt a "
        f"schema of its own (LAKEHOUSE_DBT_SCHEMA={BUILT}_<name>). The next build starts from what "
        "was published."
    )
    raise GoldError(message)
