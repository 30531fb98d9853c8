"""Tests how a topic file declares functions, and what is refused by line and key."""

from pathlib import Path

import pytest
from topic import declared

from lake.topics.topic_file import TopicFile
from lakehouse.messages.encode import sent_fields
from pulsar_spark.errors import SettingsError
from silver.contract.tables import DECLARED, state_table

TEXT = """
[functions.host]
python = "own.mail:host"

[topics.users]
kind = "changelog"
key = ["id"]
[topics.users.fields]
id = "long"
email = { type = "string", required = false }
host = { type = "string", required = false, function = "host", of = ["email"] }
"""
SOURCE = "def host(mail, n=1):\n    return mail.split('@')[n]\n"


def load(folder: Path, text: str = TEXT, source: str = SOURCE) -> TopicFile:
    (folder / "own").mkdir(exist_ok=True)
    (folder / "own" / "mail.py").write_text(source)
    return declared(folder, text)


def test_a_field_has_its_function_with_the_text_of_the_file(tmp_path: Path) -> None:
    topic = load(tmp_path).topics["users"]
    function = topic.fields["host"].function
    assert function is not None
    assert (function.called, function.file, function.source) == ("host", "own/mail.py", SOURCE)
    assert topic.computed_from("host") == ["email"]
    assert [*topic.computed_fields] == ["host"]
    assert [*topic.payload_fields] == sent_fields(topic) == ["id", "email"]


@pytest.mark.parametrize(
    ("was", "becomes", "source", "is_same"),
    [
        ("", "", SOURCE, True),
        ("[functions.host]", "[functions.host] # the host", SOURCE, True),
        ("", "", SOURCE + "# later\n", False),
        ('host"\n', 'host"\nnulls = "pass"\n', SOURCE, False),
        ('of = ["email"]', 'of = ["email", "id"]', SOURCE, False),
    ],
)
def test_a_table_names_the_functions_that_its_rows_follow_from(
    tmp_path: Path, was: str, becomes: str, source: str, is_same: bool
) -> None:
    found = [
        state_table(load(tmp_path, text, each).topics["users"]).properties[DECLARED]
        for text, each in ((TEXT, SOURCE), (TEXT.replace(was, becomes, 1), source))
    ]
    assert "function.host" in found[0]
    assert (found[0] == found[1]) == is_same


@pytest.mark.parametrize(
    ("was", "becomes", "says"),
    [
        ('"own.mail:host"', '"own/mail.py"', ":3: functions.host.python: is 'own/mail.py'; write"),
        ('"own.mail:host"', '"own.mail:hots"', ":3: .*'hots', which .* it defines host"),
        ('"own.mail:host"', '"own.male:host"', ":3: .*own/male.py cannot be read .*; create this"),
        ('python = "own.mail:host"\n', "", ":2: functions.host.python: needs 'python', such as"),
        ('host"\n', 'host"\nnull = "x"\n', ":4: functions.host.null: unknown key"),
        ('host"\n', 'host"\nsource = "x"\n', ":4: functions.host.source: unknown key"),
        ('host"\n', 'host"\nnulls = "x"\n', ":4: functions.host.nulls: .*'skip' or 'pass'"),
        ('function = "host"', 'function = "hots"', ":11: .*'hots' is not declared .* has host"),
        ('function = "host"', "function = 3", ":11: .* must be the name of a function"),
        ('function = "host", ', "", ":11: .*needs 'function' and 'of'"),
        (', of = ["email"]', "", ":11: .*needs 'function' and 'of'"),
        ('["email"]', '["mail"]', "'host', whose 'of' names 'mail', which is not another field"),
        ('["email"]', '["host"]', "names 'host', which is not another field of the topic, or is c"),
        ('["email"]', '["email", "id", "id"]', "has 3 arguments, but own.mail:host takes 1 to 2"),
        ('of = ["email"]', 'of = ["email"], sql = "1"', ":11: .*has 'sql' and 'function', but a"),
        ('of = ["email"]', 'of = ["email"], absent = 0', ":11: .*'function' and 'absent'"),
        ('"string", required = false, f', '"timestamp_ms", f', ":11: .*its type is 'timestamp'"),
        ("false }", 'false, personal = "mask" }', "'host' from 'email', of which gold must not"),
        ('key = ["id"]', 'key = ["host"]', "has 'host' in its key"),
        ('key = ["id"]', 'key = ["id"]\nupdates = "partial"', "'host' cannot be computed"),
        ('[functions.host]\npython = "own.mail:host"\n', "", "declared in .functions."),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, was: str, becomes: str, says: str) -> None:
    assert was in TEXT
    with pytest.raises(SettingsError, match=says):
        load(tmp_path, TEXT.replace(was, becomes, 1))
