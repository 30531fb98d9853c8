"""Tests computed fields: their values, and that a message that fails is rejected, not the batch."""

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from messages import json_message
from personal import SECRET
from pyspark.sql import SparkSession
from silver_lake import PUBLISHED, SilverLake
from topic import declared

from lake.settings.pseudonyms import PseudonymSecret, keyed_hash
from lake.topics.topic import Topic
from lake.topics.topic_file import TopicFile
from lakehouse.operate.plan import silver_steps
from pulsar_spark.errors import LakehouseError, SettingsError
from pulsar_spark.schema import ENVELOPE_DDL
from silver.part import outdated
from silver.quarantine import Selection, replay
from silver.rebuild import rebuild
from silver.records.computed import check_expressions
from silver.records.decode import Decoder
from silver.refine import QUERY

FIELDS = """[topics.t.fields]
id = "long"
eMail = { type = "string", required = false }
n = { type = "int", required = false }
at = { type = "timestamp", required = false }
"""


def declare(folder: Path, options: str, *fields: str) -> Topic:
    text = f'[topics.t]\nkey = ["id"]\n{options}\n{FIELDS}' + "\n".join(fields)
    return declared(folder, text).topics["t"]


def decoded(
    spark: SparkSession,
    topic: Topic,
    *sent: dict[str, Any] | None,
    secret: PseudonymSecret | None = None,
) -> list[dict[str, Any]]:
    payloads = [None if each is None else json.dumps(each).encode() for each in sent]
    rows = [
        ("t", 0, 1, n, 0, "1", each, None, PUBLISHED, None, {}, None, None, None, None)
        for n, each in enumerate(payloads)
    ]
    messages = spark.createDataFrame(rows, ENVELOPE_DDL).coalesce(1)
    found = Decoder(topic, secret=secret).rows(messages).toArrow().to_pylist()
    return sorted(found, key=lambda row: row["position"]["entry"])


@pytest.fixture(params=["interpreted", "compiled"])
def plans(request: pytest.FixtureRequest, spark: SparkSession) -> Any:
    """Spark shares the parts that expressions have in common only when it compiles them."""
    modes = {"interpreted": ("NO_CODEGEN", "false"), "compiled": ("CODEGEN_ONLY", "true")}
    names = ("spark.sql.codegen.factoryMode", "spark.sql.codegen.wholeStage")
    before = [spark.conf.get(name) for name in names]
    for name, mode in zip(names, modes[request.param], strict=True):
        spark.conf.set(name, mode)
    yield
    for name, mode in zip(names, before, strict=True):
        spark.conf.set(name, str(mode))


FUNCTIONS = """
[functions.host]
python = "own.mail:host"
[functions.label]
python = "own.mail:label"
nulls = "pass"
"""
MAIL = """
def host(mail):
    return mail.split("@")[1]

def label(mail, n, at):
    if n == 7:
        return n
    return {"mail": mail, "n": n, "hours": [] if at is None else [at.hour, at.utcoffset().seconds]}
"""
CALLED = (
    'host = { type = "string", required = false, function = "host", of = ["eMail"] }',
    'label = { type = "struct<mail: string, n: int, hours: array<int>>", required = false, '
    'function = "label", of = ["eMail", "n", "at"] }',
)


def with_functions(folder: Path, options: str, *fields: str, source: str = MAIL) -> TopicFile:
    (folder / "own").mkdir(exist_ok=True)
    (folder / "own" / "mail.py").write_text(source)
    text = f'{FUNCTIONS}[topics.t]\nkey = ["id"]\n{options}\n{FIELDS}'
    return declared(folder, text + "\n".join([*fields, *CALLED]))


def test_functions_compute_fields_and_reject_only_what_they_fail_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text(SECRET)
    secret = PseudonymSecret(file=str(tmp_path / "secret"))
    hashed = 'h = { type = "string", required = false, function = "host", of = ["eMail"], '
    topic = with_functions(
        *(tmp_path, 'kind = "changelog"\ndelete = { field = "n", equals = 0 }'),
        'low = { type = "string", required = false, sql = "lower(e_mail)" }',
        hashed + 'personal = "hash" }',
    ).topics["t"]
    rows = decoded(
        *(spark, topic),
        {"id": 1, "eMail": "Ada@B.org", "n": 5, "at": "2026-01-05T23:00:00+01:00"},
        {"id": 2},
        {"id": 3, "eMail": "nobody", "n": 1},
        {"id": 4, "eMail": "nobody", "n": 0},
        {"id": 5, "eMail": "a@b", "n": 7},
        {"id": 6, "eMail": "nobody", "n": "x"},
        secret=secret,
    )
    label = {"mail": "Ada@B.org", "n": 5, "hours": [22, 0]}
    names = ("low", "host", "label", "h_hash", "_reason")
    assert [rows[0][name] for name in names] == [
        *("ada@b.org", "B.org", label, keyed_hash(secret.read(), b"B.org"), None)
    ]
    none = {"mail": None, "n": None, "hours": []}
    assert [rows[1][name] for name in names] == [None, None, none, None, None]
    raised = "cannot be computed: host raised IndexError in own/mail.py, line 3"
    assert [row["_reason"] for row in rows[2:]] == [
        f"field 'h' {raised}",
        None,  # a delete
        "field 'label' cannot be computed: label returned a value of the type int",
        "field 'n' is not of type int",
    ]
    assert (rows[3]["is_deleted"], rows[3]["host"]) == (True, None)


def test_values_are_computed_from_fields_of_the_message(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic = declare(
        *(tmp_path, 'kind = "events"'),
        'lower = { type = "string", sql = "lower(e_mail)" }',
        'host = { type = "string", required = false, sql = "split(e_mail, \'@\')[1]" }',
        'half = { type = "decimal(5,1)", required = false, sql = "n / 2" }',
        'day = { type = "date", required = false, sql = "at" }',
        'is_big = { type = "boolean", required = false, sql = "n > 10 AND n < id" }',
        'bytes = { type = "binary", sql = "coalesce(e_mail, \'\')" }',
    )
    first, second = decoded(
        *(spark, topic),
        {"id": 99, "eMail": "Ada@B.org", "n": 25, "at": "2026-01-05T23:00:00Z"},
        {"id": 2, "eMail": "X@y"},
    )
    names = ("lower", "host", "half", "day", "is_big", "bytes", "_reason")
    assert {name: first[name] for name in names} == {
        **{"lower": "ada@b.org", "host": "B.org", "half": Decimal("12.5")},
        **{"day": dt.date(2026, 1, 5), "is_big": True, "bytes": b"Ada@B.org", "_reason": None},
    }
    assert [*first][:10] == ["id", "e_mail", "n", "at", *names[:6]], "in the order of the file"
    assert [second[name] for name in names] == ["x@y", "y", None, None, None, b"X@y", None]


FAILING = [
    *("10 / n", "cast(e_mail AS int)", "element_at(array(1, 2), n)", "2147483647 + n"),
    *("sequence(n, 5, 0)[0]", "make_date(2026, n, 1)", "to_date(e_mail)", "to_number(e_mail, '9')"),
    *("filter(array(1), x -> x / n > 0)[0]", "cast(e_mail AS int) + n", "url_decode(e_mail)"),
    *("CASE WHEN n = 0 THEN 1 / n ELSE 1 END", "date_add(DATE '9999-12-30', n)"),
    *("n / 0.0", "e_mail rlike concat('(', e_mail)"),
]


DATES = ("make_date", "to_date", "date_add")


@pytest.mark.parametrize("wanted", ["string", pytest.param("int", marks=pytest.mark.nightly)])
def test_a_message_for_which_an_expression_fails_is_rejected(
    spark: SparkSession, tmp_path: Path, plans: None, wanted: str
) -> None:
    """All of the fields share parts that fail, which Spark must not compute in advance."""
    fields = [
        f'f{n} = {{ type = "{wanted}", required = false, sql = "{sql}" }}'
        for n, sql in enumerate(FAILING)
    ]
    for number, sql in enumerate(FAILING):
        if wanted == "int" and sql.startswith(DATES):
            continue  # Spark casts no date to a number
        topic = declare(tmp_path, 'kind = "events"', fields[number])
        bad, good = decoded(
            *(spark, topic),
            {"id": 1, "eMail": "%no", "n": 0 if "2147483647" not in sql else 9},
            {"id": 2},
        )
        if sql.startswith(("element", "10", "CASE", "filter", "make")) or wanted == "int":
            assert bad["_reason"] == f"field 'f{number}' cannot be computed as {wanted}", sql
        assert good["_reason"] in (None, f"field 'f{number}' cannot be computed as {wanted}")
    fields = [each for each, sql in zip(fields, FAILING, strict=True) if not sql.startswith(DATES)]
    together = declare(tmp_path, 'kind = "events"', *fields)
    found = decoded(spark, together, {"id": 1, "eMail": "%no", "n": 0}, {"id": 2, "n": "x"})
    assert found[0]["_reason"] == f"field 'f0' cannot be computed as {wanted}"
    assert found[1]["_reason"] == "field 'n' is not of type int", "the first reason wins"


def test_expressions_with_a_common_part_fail_each_on_its_own(
    spark: SparkSession, tmp_path: Path, plans: None
) -> None:
    fields = [
        f'{name} = {{ type = "int", required = false, sql = "{sql}" }}'
        for name, sql in {
            "a": "CASE WHEN n > 0 THEN cast(e_mail AS int) + 1 END",
            "b": "cast(e_mail AS int) + 2",
            "c": "cast(e_mail AS int) + 2 + 10 / n",
        }.items()
    ]
    topic = declare(tmp_path, 'kind = "events"', *fields)
    rows = decoded(
        *(spark, topic),
        {"id": 1, "eMail": "5", "n": 1},
        {"id": 2, "eMail": "x", "n": 1},
        {"id": 3, "eMail": "x", "n": 0},
        {"id": 4, "eMail": "7", "n": 0},
        {"id": 5},
    )
    assert [row["_reason"] for row in rows] == [
        None,
        "field 'a' cannot be computed as int",
        "field 'b' cannot be computed as int",
        "field 'c' cannot be computed as int",
        None,
    ]
    assert [[row[name] for name in "abc"] for row in (rows[0], rows[4])] == [
        [6, 7, 17],
        [None] * 3,
    ]


@pytest.mark.parametrize("kind", ["int", "string"])
def test_a_null_is_a_null_even_if_spark_expects_none(
    spark: SparkSession, tmp_path: Path, plans: None, kind: str
) -> None:
    sql = "element_at(array(1, 2), n)"
    field = f"a = {{ type = '{kind}', required = false, sql = '{sql}' }}"
    rows = decoded(spark, declare(tmp_path, 'kind = "events"', field), {"id": 1}, {"id": 2, "n": 2})
    two = 2 if kind == "int" else "2"
    assert [(row["a"], row["_reason"]) for row in rows] == [(None, None), (two, None)]


def test_what_the_declared_type_does_not_accept_is_rejected(
    spark: SparkSession, tmp_path: Path
) -> None:
    cases = {
        "small = { type = 'decimal(3,1)', sql = 'n' }": "decimal(3,1)",
        "d = { type = 'double', sql = \"cast('NaN' AS double) + n\" }": "double",
        "day = { type = 'date', sql = 'date_add(at, n)' }": "date",
        "later = { type = 'timestamp', sql = 'at + make_interval(n)' }": "timestamp",
    }
    for field, kind in cases.items():
        topic = declare(tmp_path, 'kind = "events"', field)
        [row] = decoded(spark, topic, {"id": 1, "n": 9_000_000, "at": "2026-01-01"})
        name = field.split(" ")[0]
        assert row["_reason"] == f"field '{name}' cannot be computed as {kind}"
    topic = declare(tmp_path, 'kind = "events"', "a = { type = 'int', sql = 'n' }")
    [row] = decoded(spark, topic, {"id": 1})
    assert row["_reason"] == "field 'a' is missing"


def test_a_delete_needs_only_its_key(spark: SparkSession, tmp_path: Path) -> None:
    options = 'kind = "changelog"\ndelete = { field = "n", equals = 0 }'
    topic = declare(tmp_path, options, "a = { type = 'int', sql = '10 / n' }")
    rows = decoded(spark, topic, {"id": 1, "n": 0}, None, {"id": 1, "n": 5})
    assert [(row["is_deleted"], row["a"], row["_reason"]) for row in rows] == [
        *((True, None, None), (True, None, None)),
        (False, 2, None),
    ]


def test_a_computed_field_can_be_hashed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text(SECRET)
    secret = PseudonymSecret(file=str(tmp_path / "secret"))
    topic = declare(
        *(tmp_path, 'kind = "events"'),
        'low = { type = "string", required = false, sql = "lower(e_mail)", personal = "hash" }',
    )
    rows = decoded(spark, topic, {"id": 1, "eMail": "AB"}, {"id": 2}, secret=secret)
    assert [row["low_hash"] for row in rows] == [keyed_hash(secret.read(), b"ab"), None]


def test_an_expression_that_spark_refuses_is_named_before_silver_reads_anything(
    spark: SparkSession, tmp_path: Path
) -> None:
    for sql, says in (("array_contains(n, 1)", "n"), ("at + n", "at"), ("year(id)", "id")):
        field = f"bad = {{ type = 'int', sql = '{sql}' }}"
        text = f'[topics.t]\nkey = ["id"]\nkind = "events"\n{FIELDS}{field}'
        topics = declared(tmp_path, text)
        with pytest.raises(SettingsError, match=f"cannot compute the field 'bad' .*'t': .*{says}"):
            check_expressions(spark, topics.topics.values())


def test_a_changed_function_is_refused_until_its_table_is_rebuilt(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = 'kind = "changelog"\nhistory = true'
    lake = SilverLake(spark, tmp_path, with_functions(tmp_path, options))
    sent = [json_message("t", n, id=n, eMail=mail) for n, mail in enumerate(["a@x", "b", "c@z@y"])]
    lake.put(sent)
    lake.refine()

    def hosts(table: str = "t_state") -> dict[int, str | None]:
        return {row["id"]: row["host"] for row in lake.rows(table)}

    assert hosts() == hosts("t_history") == {0: "x", 2: "z"}
    [row] = lake.refused()
    assert row["reason"].endswith("host raised IndexError in own/mail.py, line 3")

    # The function is corrected: what it has computed before would be different.
    corrected = MAIL.replace("[1]", "[-1]")
    lake.topics = with_functions(tmp_path, options, source=corrected)
    says = "'host' has changed .* the rows of silver.t_state .* `lakehouse replay --table silver.t"
    with pytest.raises(LakehouseError, match=says):
        lake.refine()
    steps = [(step.table, step.what, step.is_refused) for step in silver_steps(lake.lake)]
    assert ("silver.t_state", "refused", True) in steps
    [part] = outdated(lake.lake, QUERY)
    assert part.made == ("silver.t_state", "silver.t_history")
    rebuild(lake.spark, lake.lake, part=part)
    assert hosts() == hosts("t_history") == {0: "x", 1: "b", 2: "y"}
    assert lake.refused() == []
    assert [*outdated(lake.lake, QUERY)] == []
    lake.refine()


def test_a_file_that_cannot_be_loaded_is_named_before_silver_reads_anything(
    spark: SparkSession, tmp_path: Path
) -> None:
    topics = with_functions(tmp_path, 'kind = "events"', source="import nothing_known\n" + MAIL)
    with pytest.raises(SettingsError, match="own/mail.py, line 1: cannot be loaded: ModuleNotFou"):
        check_expressions(spark, topics.topics.values())


def test_a_rejected_message_is_applied_once_its_expression_is_corrected(
    spark: SparkSession, tmp_path: Path
) -> None:
    def topics(sql: str) -> Any:
        field = f"ratio = {{ type = 'int', required = false, sql = '{sql}' }}"
        text = f'[topics.t]\nkey = ["id"]\nkind = "changelog"\n{FIELDS}{field}'
        return declared(tmp_path, text)

    lake = SilverLake(spark, tmp_path, topics("10 / n"))
    lake.put([json_message("t", 1, id=1, n=2), json_message("t", 2, id=2, n=0)])
    lake.refine()
    assert {row["reason"] for row in lake.refused()} == {"field 'ratio' cannot be computed as int"}
    lake.topics = topics("try_divide(10, n)")
    assert replay(lake.spark, lake.lake, Selection())["applied"] == 1

    def ratios() -> dict[int, int | None]:
        return {row["id"]: row["ratio"] for row in lake.rows("t_state")}

    assert ratios() == {1: 5, 2: None}
    lake.topics = topics("n * 3")
    rebuild(lake.spark, lake.lake)
    assert ratios() == {1: 6, 2: 0}
