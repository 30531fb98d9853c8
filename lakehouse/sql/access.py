"""What each role may read, as the policy that `Access.java` enforces in the SQL endpoint.

Readers see gold. Analysts also see the tables of silver that gold may read, with personal fields
as gold sees them. Owners may do everything, so the policy does not name them.
"""

import json
from collections.abc import Iterable
from typing import Any, get_args

from lake.settings.roles import LimitedRole
from lake.settings.settings import LakeSettings
from lake.settings.sql import RoleSettings
from lake.topics.topic_file import TopicFile
from lakehouse.sql.audit import STATEMENTS
from pulsar_spark.errors import SettingsError
from silver.contract.tables import PERSONAL, RECONCILIATION
from silver.records.masking import protected_tables

# Its payloads cannot be masked, and only owners may read the audit.
UNMASKED = "bronze"
DEFAULTS: dict[LimitedRole, list[str]] = {"reader": ["gold"], "analyst": ["gold", "silver"]}
SILVER = "silver"


def policy(settings: LakeSettings, topics: TopicFile, personal: Iterable[str] = ()) -> str:
    """The policy as JSON: the tables of each role by schema, its limits, and what is masked.

    `*` stands for all tables of a schema. Names are in lower case, as Spark compares them.

    Args:
        settings: what the roles may read.
        topics: what is declared as personal.
        personal: columns that are masked in all tables, also of gold. Fields of nested columns with
            these names are NULL.

    Raises:
        SettingsError: a role is given all of bronze, or the audit.
    """
    roles: dict[str, dict[str, Any]] = {}
    for role in get_args(LimitedRole):
        given = settings.sql_roles.get(role, RoleSettings())
        named = DEFAULTS[role] if given.tables is None else given.tables
        roles[role] = given.model_dump() | {"tables": _tables(named, topics)}
    masked = masks(topics)
    if everywhere := {name.lower(): "mask" for name in personal}:
        # The key `*` of the masks of a table says that they hold for nested fields, too.
        everywhere["*"] = ""
        masked = {table: own | everywhere for table, own in masked.items()}
        masked["*"] = everywhere  # of all other tables
    return json.dumps({"roles": roles, "masks": masked})


def masks(topics: TopicFile) -> dict[str, dict[str, str]]:
    """By table and column, what everyone but owners sees instead of the value.

    The form of a table's property `lakehouse.personal`. The topic file decides, not the property of
    the version that is read, because old versions have an old property or none.
    """
    found = {}
    for table in protected_tables(topics):
        declared = json.loads(table.properties.get(PERSONAL, "{}"))
        if declared:
            found[table.full_name.lower()] = {name.lower(): how for name, how in declared.items()}
    return found


def _tables(named: list[str], topics: TopicFile) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in named:
        schema, _, table = name.lower().partition(".")
        if schema == UNMASKED and table in ("", STATEMENTS.name):
            what = f"LAKEHOUSE_SQL_ROLES: a role cannot be given {name}."
            raise SettingsError(what, "Name single tables of topics, whose payloads it then sees.")
        if table:
            found.setdefault(schema, []).append(table)
        else:
            found.setdefault(schema, []).extend(_silver(topics) if schema == SILVER else ["*"])
    return found


def _silver(topics: TopicFile) -> list[str]:
    """What "silver" stands for: not the quarantine, whose payloads cannot be masked."""
    names = {table.name for table in protected_tables(topics)} | {RECONCILIATION.name}
    names |= {topic.name for topic in topics.changelogs()}
    names |= {*topics.missing_views(), *topics.late_views(), *topics.views}
    names |= {join.join.missing for join in topics.joined.values()}
    return sorted(name.lower() for name in names)
