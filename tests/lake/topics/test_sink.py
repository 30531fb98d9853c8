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
