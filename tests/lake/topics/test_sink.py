"""Tests which sinks a topic file may declare, and that each error names its line and key."""

from pathlib import Path

import pytest
from topic import GOOD, declared

from pulsar_spark.errors import SettingsError

PUBLISH = """
[publish.out]
from = "silver.users"
key = ["id"]
"""
EXPORT = """
[export.out]
from = "gold.mart"
table = "public.mart"
key = ["id"]
url_env = "MART_DB"
"""
SECRET = "postgresql://u:canary@h/d"  # noqa: S105  # pragma: allowlist secret


def test_a_sink_has_these_defaults(tmp_path: Path) -> None:
    topics = declared(tmp_path, GOOD + PUBLISH + EXPORT)
    out = topics.publish["out"]
    assert (out.address, out.where, out.columns, out.op) == ("out", None, [], None)
    assert topics.export["out"].table == "public.mart"
    assert topics.sink_addresses("bank/prod") == {"out": "persistent://bank/prod/out"}


def test_the_kind_of_a_change_may_be_in_a_field(tmp_path: Path) -> None:
    text = GOOD + PUBLISH + 'deletes = { field = "op" }'
    assert declared(tmp_path, text).publish["out"].op == "op"


@pytest.mark.parametrize(
    ("sink", "says"),
    [
        (PUBLISH.replace("key =", "keys ="), ":20: publish.out.keys: unknown key"),
        (PUBLISH.replace('["id"]', "[]"), ":20: publish.out.key"),
        (PUBLISH.replace('["id"]', '["id", "id"]'), "sink 'out' names 'id' twice in its key"),
        (PUBLISH + 'columns = ["parent_user_id"]', "has the key 'id', which is not among"),
        (PUBLISH.replace("silver.users", "users"), ":19: publish.out.from"),
        (PUBLISH + 'deletes = "op"', ':21: publish.out.deletes: must be "tombstone" or { field'),
        (PUBLISH + 'deletes = { field = "op", equals = "d" }', ":21: publish.out.deletes: must be"),
        (PUBLISH + 'topic = "non-persistent://a/b/c"', "is not persistent"),
        (PUBLISH + 'topic = ["a", "b"]', ":21: publish.out.topic"),
        (PUBLISH + "partitions = 0", ":21: publish.out.partitions"),
        (EXPORT.replace("MART_DB", SECRET), "url_env: must be the name of an environment variable"),
        (EXPORT.replace("url_env", "url_file").replace("MART_DB", SECRET), "must be the path"),
        (EXPORT.replace('url_env = "MART_DB"', ""), "needs either 'url_env'"),
        (EXPORT + 'url_file = "db"', "needs either 'url_env'"),
        (EXPORT.replace("public.mart", "mart"), ":20: export.out.table"),
    ],
)
def test_a_wrong_sink_is_refused_by_line_and_key(tmp_path: Path, sink: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says.replace("[", r"\[")) as caught:
        declared(tmp_path, GOOD + sink)
    assert "canary" not in str(caught.value)


IMPORT = """
[import.users]
table = "public.users"
url_env = "USERS_DB"
"""


def of_users(old: str, new: str) -> str:
    return GOOD.replace(old, new, 1) + IMPORT


def test_an_import_has_the_name_of_its_changelog(tmp_path: Path) -> None:
    topics = declared(tmp_path, GOOD + IMPORT)
    found = topics.imports["users"]
    assert (found.label, found.every.total_seconds()) == ("import.users", 60)
    assert topics.replacing(topics.topics).imports == topics.imports


KIND = 'kind = "changelog"'
FIELD = 'id = "long"'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (GOOD + IMPORT.replace("table =", "tabel ="), ":19: import.users.tabel: unknown key"),
        (GOOD + IMPORT + 'every = "soon"', ":21: import.users.every: 'soon' is no duration"),
        (GOOD + IMPORT + 'every = "1 millisecond"', "has an 'every' of less than a second"),
        (GOOD + IMPORT + 'url_file = "db"', "needs either 'url_env'"),
        (GOOD + IMPORT.replace("USERS_DB", SECRET), "url_env: must be the name of an environment"),
        (GOOD + IMPORT.replace("public.users", "users"), ":19: import.users.table"),
        (
            GOOD + IMPORT.replace("t.users", "t.others"),
            ":18: import.others: there is no topic",
        ),
        (GOOD + IMPORT.replace("t.users", "t.orders"), ":18: import.orders: .*'kind' must be"),
        (GOOD + IMPORT.replace("[import.", "[imports."), ":18: imports: unknown key"),
        (of_users(KIND, f'{KIND}\ndelete = "never"'), "'delete' must not be 'never'"),
        (of_users(KIND, f'{KIND}\nschema = "registry"'), "'schema' must be 'json'"),
        (of_users(KIND, f'{KIND}\nenvelope = "debezium"'), "'envelope' must be absent"),
        (
            of_users(KIND, f'{KIND}\ndelete = "never"\nsequence = ["id"]'),
            "'sequence' must be absent",
        ),
        (
            of_users(KIND, f'{KIND}\ntruncate = {{ field = "id", equals = 0 }}'),
            "'truncate' must be absent",
        ),
        (of_users(FIELD, 'id = { type = "long", path = "a.b" }'), "'id' is within an object"),
        (of_users(FIELD, 'id = { type = "long", from_message = "key" }'), "comes from 'key'"),
        (
            of_users(FIELD, 'id = "decimal(9,0)"').replace(
                'userId = "long', 'userId = "decimal(9,0)'
            ),
            "the key 'id' must be a column of type int, long, string, boolean or date",
        ),
        (
            GOOD + IMPORT + PUBLISH + 'topic = "users"',
            "sink 'out' publishes to the topic users, to which only the import 'users' publishes",
        ),
    ],
)
def test_a_wrong_import_is_refused_by_line_and_key(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says.replace("[", r"\[")) as caught:
        declared(tmp_path, text)
    assert "canary" not in str(caught.value)
