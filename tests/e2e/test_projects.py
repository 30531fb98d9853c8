"""Tests projects of other domains from an empty folder to gold, by the commands that users run.

They are nightly. `make test` runs such commands in the project of `test_demo.py`.
"""

import contextlib
import json
import re
import shlex
import shutil
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pandas as pd
import psycopg
import pytest
from bs4 import BeautifulSoup
from live_shop import until
from postgres_server import PostgresServer
from project import SECONDS, Project, export_turnover

pytestmark = [pytest.mark.jvm, pytest.mark.nightly, pytest.mark.timeout(900)]
Row = tuple[Any, ...]

DOCS = Path(__file__).parents[2] / "docs"
TUTORIAL = (DOCS / "tutorial.md").read_text()
STEPS = TUTORIAL + (DOCS / "own-domain.md").read_text()  # which goes on from there
STEP = re.compile(
    r"(`(?P<file>[^`\n]+)`\n)?```(?P<language>\w+)\n(?P<text>.*?)```", flags=re.DOTALL
)
READINGS = """
select
    cast(measured_at as date), coalesce(site, 'unknown'), count(*)::bigint,
    min(value), max(value), round(avg(value), 2)::decimal(12, 2)
from readings left join sensors on sensor_id = sensors.id
group by 1, 2
"""
ALARMS = """
select coalesce(site, 'unknown'), count(*)::bigint, max(level::int)
from alarms left join sensors on sensor_id = sensors.id
group by 1
"""
BANK = {
    "gold.debits": """
        select trans_id, account_id, customer_id, operation, amount, fulldatewithtime
        from transactions where type = 'Debit'""",
    "gold.credits": """
        select trans_id, account_id, customer_id, operation, amount, fulldatewithtime
        from transactions where type = 'Credit'""",
    "gold.account_balances": """
        select account_id, arg_max(balance, (fulldatewithtime, trans_id)), max(fulldatewithtime)
        from transactions group by account_id""",
    "gold.top_transactions_by_day": """
        select day, place, trans_id, account_id, amount
        from (
            select *, fulldatewithtime::date as day,
                row_number() over (partition by day order by amount desc, trans_id) as place
            from transactions
        ) where place <= 3""",
    "gold.turnover_by_region": """
        select date_trunc('month', fulldatewithtime), coalesce(region, 'unknown'),
            count(*)::bigint, coalesce(sum(amount) filter (type = 'Credit'), 0)::decimal(22, 2),
            coalesce(sum(amount) filter (type = 'Debit'), 0)::decimal(22, 2)
        from transactions
        left join accounts using (account_id)
        left join districts using (district_id)
        group by 1, 2""",
}
BRANCH = 'branch = { type = "string", required = false }'
CARDS = """
[topics.cards]
kind = "changelog"
key = ["id"]
[topics.cards.fields]
id = "string"
"""
LARGE = """
{{ config(unique_key='trans_id') }}
select trans_id, amount from {{ ref('credits') }} where amount > 1000
"""
PEOPLE = {
    "gold.favourites_by_account": """
        with people as (
            select id, arg_max(op, rowid) as op, arg_max(account_id, rowid) as account_id
            from people group by id having arg_max(op, rowid) <> 'd'
        ),
        colours as (select person_id, arg_max(colour, rowid) as colour from colours group by 1),
        cheeses as (select person_id, arg_max(cheese, rowid) as cheese from cheeses group by 1)
        select account_id, count(*)::bigint, count(distinct colour)::bigint, count(cheese)::bigint
        from people
        left join colours on people.id = colours.person_id
        left join cheeses on people.id = cheeses.person_id
        group by account_id"""
}
CLICKS = {
    "gold.conversion": """
        select
            day, views, carts, purchases, (carts / nullif(views, 0))::decimal(18, 4),
            (purchases / nullif(carts, 0))::decimal(18, 4)
        from (
            select occurred_at::date as day, count(*) filter (kind = 'view') as views,
                count(*) filter (kind = 'cart') as carts,
                count(*) filter (kind = 'purchase') as purchases
            from clicks group by 1
        )"""
}
FOLLOWED = """
select event_id, (
    select bought.event_id from clicks as bought
    where bought.kind = 'purchase' and bought.user_id = clicks.user_id
        and bought.item_id = clicks.item_id
        and bought.occurred_at between clicks.occurred_at
        and clicks.occurred_at + interval 30 minutes
    order by bought.occurred_at, bought.event_id limit 1
)
from clicks where kind <> 'purchase'
"""
TELEMETRY = {
    "silver.readings_per_hour": """
        select device_id, date_trunc('hour', measured_at), count(*)::bigint, max(temperature)
        from readings group by 1, 2""",
    "gold.alerts": """
        select readings.device_id, sequence::bigint, coalesce(tenant, ''), site, temperature,
            maximum, latitude::double, longitude::double, coalesce(tags, '') like '%calibrated%',
            measured_at
        from readings asof join configs
            on readings.device_id = configs.device_id and measured_at >= changed_at
        where temperature > maximum""",
    "gold.gaps": """
        select device_id, sequence::bigint, previous, measured_at
        from (
            select *, lag(measured_at) over (
                partition by device_id order by measured_at, sequence::bigint) as previous
            from readings
        ) where measured_at > previous + interval 2 hours""",
    "gold.readings_by_day": """
        select device_id, measured_at::date, count(*)::bigint, max(temperature)
        from readings group by 1, 2""",
}


def oracle(project: Project, sql: str) -> set[Row]:
    """Return the rows of a query on the sample files, by DuckDB."""
    known = duckdb.connect()
    for file in (project.folder / "sample").glob("*.csv"):
        known.execute(f"create table {file.stem} as from read_csv('{file}', all_varchar = true)")
    kinds = {"temperature": "decimal(10,2)", "maximum": "decimal(10,2)"}
    kinds |= {"amount": "decimal(12,2)", "balance": "decimal(12,2)", "value": "decimal(10,2)"}
    for name, column in known.execute(
        "select table_name, column_name from information_schema.columns"
    ).fetchall():
        kind = kinds.get(column) or ("timestamptz" if column.endswith(("_at", "time")) else None)
        if kind:
            known.execute("set timezone = 'UTC'")
            known.execute(f'alter table {name} alter "{column}" type {kind}')
    return {tuple(map(plain, row)) for row in known.execute(sql).fetchall()}


def plain(value: Any) -> Any:
    """Times compare as text, because DuckDB and Arrow write their zones differently."""
    return value.isoformat()[:19] if hasattr(value, "hour") else value


def found(project: Project, table: str) -> set[Row]:
    rows = project.rows(table)
    own = {"silver_batch"}  # of a materialized view
    shown = {tuple(plain(row[name]) for name in row if name not in own) for row in rows}
    assert len(shown) == len(rows)
    return shown


@pytest.mark.timeout(1800)  # a dozen commands, each of which starts Python and some Spark
def test_the_tutorial_runs_as_printed(tmp_path: Path) -> None:
    """Its commands are those that `lakehouse init` prints, and some more.

    A block `text` is what the command above it prints when silver has caught up. Until then, the
    tutorial says, the reader repeats the commands.
    """
    steps = list(STEP.finditer(STEPS))
    languages = Counter(step["language"] for step in steps)
    assert (languages["sh"], languages["text"]) == (7, 4)
    project: Project | None = None
    said: dict[str, str] = {}
    last: list[str] = []
    with contextlib.ExitStack() as running:
        for step in steps:
            if step["file"]:
                assert project
                with (project.folder / step["file"]).open("a") as file:
                    file.write(step["text"])
                continue
            if step["language"] == "text":
                assert project
                repeat_until_printed(project, last[1:] or last, said, step["text"])
            if step["language"] != "sh":
                continue
            last = step["text"].splitlines()
            for command in last:
                if command.startswith("lakehouse init "):
                    project = Project(tmp_path / command.split()[2])
                    project.env["COLUMNS"] = "80"  # as the docs print tables
                elif command == "lakehouse up":
                    assert project
                    running.close()
                    running.enter_context(project.up())
                    assert serves_sql_first(project) == (not said), "only a new lake does"
                elif project and command != f"cd {project.folder.name}":
                    said[command] = project.run(*shlex.split(command)[1:])
        assert project
        assert_the_console_shows(project, "alarms", "readings_by_day", "alarms_by_site")
        assert "Created " in project.printed
        printed = [line.partition("#")[0].strip() for line in project.printed.splitlines()[2:-1]]
        assert {*printed} <= {*TUTORIAL.splitlines()}
        check_the_plant(project, said)
    with project.up():  # a new process has a new catalog
        shown = project.run("sql", "--format", "csv", "show tables in plant")
    assert "alarms_by_site" in shown


def repeat_until_printed(
    project: Project, commands: list[str], said: dict[str, str], text: str
) -> None:
    """Repeat commands until the last one prints the text."""
    deadline = time.monotonic() + SECONDS
    while said[commands[-1]].split() != text.split():
        assert time.monotonic() < deadline, f"{commands[-1]}:\n{said[commands[-1]]}"
        for command in commands:
            said[command] = project.run(*shlex.split(command)[1:])


def assert_the_console_shows(project: Project, *texts: str) -> None:
    address = re.search(r"Console: (http://\S+)", (project.folder / "up.log").read_text())
    assert address

    def page() -> str:
        html = httpx.get(address[1], timeout=30).text
        return BeautifulSoup(html, "html.parser").get_text(" ")

    until(lambda: all(text in page() for text in texts), "a look at the new tables")


def serves_sql_first(project: Project) -> bool:
    """Whether `up` served SQL before it started silver."""
    said = (project.folder / "up.log").read_text()
    return said.index("Starting the SQL endpoint") < said.index("Starting silver")


def check_the_plant(project: Project, said: dict[str, str]) -> None:
    assert found(project, "gold.readings_by_day") == oracle(project, READINGS)
    assert found(project, "gold.alarms_by_site") == oracle(project, ALARMS)
    shown = project.run("sql", "--format", "json", "select count(*) as n from gold.readings_by_day")
    assert json.loads(shown) == [{"n": len(project.rows("gold.readings_by_day"))}]
    assert "kept by site" in said["lakehouse gold explain alarms_by_site"]
    sources = project.folder / "dbt" / "models" / "staging" / "_silver__sources.yml"
    assert "- name: enriched_alarms" in sources.read_text()
    page = (project.folder / ".lakehouse" / "lakehouse-report.html").read_text()
    assert "<h2>Alarms</h2>" in page

    declared = project.folder / "dbt" / "dbt_project.yml"
    in_plant = declared.read_text().replace("    marts:", "    marts:\n      +schema: plant")
    declared.write_text(in_plant)
    project.run("gold", "--available-now")
    assert found(project, "plant.alarms_by_site") == oracle(project, ALARMS)
    project.run("savepoint", "create", "before")
    saved = project.folder / ".lakehouse" / "lake" / "_savepoints" / "before.json"
    assert "plant.alarms_by_site" in json.loads(saved.read_text())["versions"]


EXAMPLES = {"bank": BANK, "people": PEOPLE, "telemetry": TELEMETRY, "clicks": CLICKS}


@pytest.mark.parametrize(("example", "marts"), EXAMPLES.items(), ids=EXAMPLES)
def test_an_example_gives_what_duckdb_computes_from_its_sample(
    tmp_path: Path, example: str, marts: dict[str, str]
) -> None:
    project = Project(tmp_path / example, "--example", example)
    project.run("demo", "--data", "sample")
    for table, sql in marts.items():
        assert found(project, table) == oracle(project, sql), table
    if example == "bank":
        plan_and_change(project, marts)
    return_to_a_savepoint(project, marts)
    if example == "bank":
        rebuild_with_a_new_field(project)
        forget_a_customer(project)
    if example == "people":
        forget_one_of_the_people(project)
    if example == "clicks":
        joined = project.rows("silver.purchases_after_clicks")
        followed = dict(oracle(project, FOLLOWED))
        assert {
            row["event_id"]: row["purchase_event_id"] for row in joined
        }.items() >= followed.items()
        assert any(followed.values())


def test_the_sinks_of_the_bank_fill_topics_and_a_database(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """As its README says, with the section of the topic file that needs a database."""
    project = Project(tmp_path / "bank", "--example", "bank")
    export_turnover(project, postgres.create_database())
    customer = project.sample("transactions")[0]["customer_id"]

    def consumed(topic: str) -> dict[str, Any]:
        said = project.run("consume", topic, "--last", "100000", "--format", "json")
        messages = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        return {each["key"]: each["payload"] for each in messages if each["payload"]}

    def split(kind: str) -> dict[str, Row]:
        rows = consumed(f"transactions.{kind.lower()}s").values()
        return {row["trans_id"]: (row["account_id"], Decimal(str(row["amount"]))) for row in rows}

    def turnover() -> set[Row]:
        with psycopg.connect(project.env["BANK_DB"], autocommit=True) as connection:
            connection.execute("SET TIME ZONE 'UTC'")
            if connection.execute("SELECT to_regclass('turnover')").fetchone() == (None,):
                return set()
            rows = connection.execute("SELECT * FROM turnover").fetchall()
        return {tuple(map(plain, row)) for row in rows}

    kinds = {
        kind: {
            row["trans_id"]: (row["account_id"], Decimal(row["amount"]))
            for row in project.sample("transactions")
            if row["type"] == kind
        }
        for kind in ("Debit", "Credit")
    }
    with project.up():
        project.run("publish", "--data", "sample")
        for kind, rows in kinds.items():
            until(lambda kind=kind, rows=rows: split(kind) == rows, f"the topic of {kind}")
        project.run("gold", "--available-now")
        wanted = oracle(project, BANK["gold.turnover_by_region"])
        until(lambda: turnover() == wanted, "the table in the database")
        assert "up to date" in project.run("status")
    project.run("forget", customer, "--reason", "asked", "--yes")
    assert turnover() == wanted
    with project.up():
        told = [row["customer_id"] for row in consumed("transactions.debits").values()]
    assert customer not in told


def plan_and_change(project: Project, marts: dict[str, str]) -> None:
    """The plan says what the next commands do, and a build rebuilds only what has changed."""
    topics = project.folder / "topics.toml"
    declared = topics.read_text()
    more = declared.replace('frequency = "string"', f'frequency = "string"\n{BRANCH}')
    topics.write_text(more + CARDS)
    credits_sql = project.folder / "dbt" / "models" / "marts" / "credits.sql"
    credits_sql.write_text(
        credits_sql.read_text().replace("= 'Credit'", "= 'Credit' and amount > 0")
    )
    models = project.folder / "dbt" / "models" / "marts"
    (models / "large_credits.sql").write_text(LARGE)
    steps = json.loads(project.run("plan", "--format", "json"))
    assert {(step["table"], step["what happens"]) for step in steps} == {
        ("bronze.cards", "created"),
        ("silver.cards_state", "created"),
        ("silver.accounts_state", "gets the column branch (string), NULL in existing rows"),
        (
            "silver.enriched_transactions",
            "gets the column account.branch (string), NULL in existing rows",
        ),
        ("silver.accounts_state", "rebuilt by `lakehouse up --rebuild`"),
        ("gold_build.credits", "rebuilt"),
        ("gold_build.large_credits", "created"),
    }
    topics.write_text(declared.replace('amount = "decimal(12,2)"', 'amount = "double"'))
    [refused, *_] = json.loads(project.run("plan", "--format", "json", ends=1))
    assert "is decimal(12,2), but is now declared as double" in refused["why"]

    topics.write_text(declared)
    said = project.run("gold", "--available-now").splitlines()
    done = {line.split()[0]: line.split()[1] for line in said if line.startswith("gold.")}
    assert (done.pop("gold.credits"), done.pop("gold.large_credits")) == ("ok", "ok")
    assert {*done.values()} == {"unchanged"}
    for table, sql in marts.items():
        assert found(project, table) == oracle(project, sql), table
    assert project.run("plan").endswith("Nothing will change.\n")


def rebuild_with_a_new_field(project: Project) -> None:
    """A field that was sent before it was declared is in the rebuilt table, and what it feeds."""
    account = project.sample("accounts")[0]
    id, before = account["account_id"], {table: found(project, table) for table in BANK}

    def landed() -> int:
        return len(project.rows("bronze.accounts"))

    with project.up():
        more = landed() + 1
        sent = {**account, "district_id": int(account["district_id"]), "branch": "north"}
        project.send("accounts", id, sent)
        until(lambda: landed() == more, "the message with the field")
        until(lambda: "up to date" in project.run("status"), "silver")
    topics = project.folder / "topics.toml"
    topics.write_text(
        topics.read_text().replace('frequency = "string"', f'frequency = "string"\n{BRANCH}')
    )
    with project.up("--rebuild"):
        project.run("gold", "--available-now")
    branches = {row["account_id"]: row["branch"] for row in project.rows("silver.accounts_state")}
    assert branches == {**dict.fromkeys(branches), id: "north"}
    joined = project.rows("silver.enriched_transactions")
    seen = {(row["account_id"], row["account"]["branch"]) for row in joined if row["account"]}
    assert (id, "north") in seen
    assert {branch for other, branch in seen if other != id} == {None}
    assert {table: found(project, table) for table in BANK} == before
    assert "rebuilt" not in project.run("plan")


def return_to_a_savepoint(project: Project, marts: dict[str, str]) -> None:
    """A restore gives the rows of the savepoint, and a start what has been published since."""
    project.run("generate", "--out", "more", "--scale", "0.01", "--seed", "7")
    clicks = project.folder / "sample" / "clicks.csv"
    if clicks.exists():  # the shop's generator makes none
        later = pd.read_csv(clicks, dtype=str)
        later["event_id"] = "later " + later["event_id"]
        later["occurred_at"] = later["occurred_at"].str.replace("2026-02", "2026-03")
        later.to_csv(project.folder / "more" / "clicks.csv", index=False)
    files = [*(project.folder / "more").glob("*.csv")]
    for file in files:
        if file.stem == "transactions":  # of generated texts, the bank's dbt tests know none
            rows = pd.read_csv(file, dtype=str)
            rows["type"] = [("Debit", "Credit")[number % 2] for number in range(len(rows))]
            rows.to_csv(file, index=False)
    more = sum(len(pd.read_csv(file, dtype=str)) for file in files)

    def messages() -> int:
        return sum(row["messages_in"] for row in project.rows("silver.reconciliation"))

    def tables() -> dict[str, set[Row]]:
        return {table: found(project, table) for table in marts}

    of_sample, wanted = tables(), messages() + more
    with project.up():
        project.run("savepoint", "create", "of_sample")
        project.run("publish", "--data", "more")
        until(lambda: messages() == wanted, "the generated messages")
        project.run("gold", "--available-now")
    of_all = tables()
    assert all(of_all[table] != of_sample[table] for table in marts)
    project.run("savepoint", "restore", "of_sample")
    assert tables() == of_sample
    with project.up():
        until(lambda: messages() == wanted, "the generated messages, read again")
        project.run("gold", "--available-now")
        project.run("savepoint", "drop", "of_sample")  # while there is one, `forget` refuses
    assert tables() == of_all


def forget_a_customer(project: Project) -> None:
    """One customer is forgotten; an account, a district and a number that look alike stay."""
    customer = project.sample("transactions")[0]["customer_id"]
    before = found(project, "gold.account_balances")
    earlier = {row["customer_id"] for row in project.rows("gold.credits")}
    said = project.run("forget", customer, "--reason", "asked", "--yes", "--format", "json")
    assert {part["found"] for part in json.loads(said)} == {0}
    assert found(project, "gold.account_balances") == before
    known = {row["customer_id"] for row in project.rows("gold.credits")}
    assert customer not in known
    assert len(known - earlier) == 1, "a pseudonym"


def forget_one_of_the_people(project: Project) -> None:
    person = project.sample("people")[0]["id"]
    assert int(person) in {row["id"] for row in project.rows("silver.people_state")}
    said = project.run("forget", person, "--reason", "asked", "--yes", "--format", "json")
    assert {part["found"] for part in json.loads(said)} == {0}
    assert int(person) not in {row["id"] for row in project.rows("silver.people_state")}
    assert int(person) not in {row["id"] for row in project.rows("silver.favourites")}


def test_two_projects_run_side_by_side_and_keep_their_ports(tmp_path: Path) -> None:
    """Neither names a port. Each command finds the services of the project in its folder."""
    one, two = (Project(tmp_path / name, ports=False) for name in ("one", "two"))
    with one.up(), two.up():
        chosen = [ports_of(each) for each in (one, two)]
        assert len({*chosen[0].values(), *chosen[1].values()}) == 6
        for number, each in enumerate((one, two)):
            sensor = {"id": f"s{number}", "site": f"site {number}"}
            each.run("produce", "sensors", json.dumps(sensor))
            assert str(chosen[number]["broker"]) in (each.folder / "up.log").read_text()
        for number, each in enumerate((one, two)):
            sql = "select id from silver.sensors"
            until(
                lambda: json.loads(each.run("sql", "--format", "json", sql)) != [],  # noqa: B023
                "the row of the project",
            )
            assert json.loads(each.run("sql", "--format", "json", sql)) == [{"id": f"s{number}"}]
    with two.up():  # alone, and before the other project
        assert ports_of(two) == chosen[1]
        assert "sensors" in two.run("status")


def ports_of(project: Project) -> dict[str, int]:
    stored: dict[str, int] = json.loads((project.folder / ".lakehouse" / "ports.json").read_text())
    return stored


def test_a_project_is_restored_on_an_empty_machine_with_another_broker(tmp_path: Path) -> None:
    """The broker of the lost machine is lost, too. On the new one, positions begin again."""
    lost, backup = Project(tmp_path / "lost"), tmp_path / "backup"
    sample = {topic: lost.sample(topic) for topic in ("sensors", "readings")}
    with lost.up():
        lost.run("publish", "--data", "sample")
        until(lambda: len(lost.rows("silver.enriched_readings")) == 20, "the sample")
        lost.run("gold", "--available-now")
        said = lost.run("backup", str(backup), both=True)
        assert "embedded broker are not in the backup" in said
    shutil.rmtree(lost.folder)

    project = Project(tmp_path / "found", str(backup), "--new-broker", command="restore")
    assert (project.folder / "dbt" / "dbt_project.yml").exists()
    assert found(project, "gold.readings_by_day"), "gold can be read before anything is started"
    first, second = (row["id"] for row in sample["sensors"][-2:])
    reading = {"id": 999, "sensorId": first, "measuredAt": 1_735_700_000_000, "value": 12.5}
    shown = f"select id, site from silver.sensors where id in ('{first}', '{second}')"
    with project.up():
        project.run("produce", "sensors", json.dumps({"id": first, "site": "moved"}))
        project.run("produce", "sensors", "--tombstone", "--key", second)
        until(
            lambda: (
                json.loads(project.run("sql", "--format", "json", shown))
                == [{"id": first, "site": "moved"}]
            ),
            "the changes, although their positions are before those in the backup",
        )
        project.run("produce", "readings", json.dumps(reading))
        until(lambda: len(project.rows("silver.enriched_readings")) == 21, "the reading")
        project.run("gold", "--available-now")
        project.run("backup", str(tmp_path / "next"))
    ids = sorted(row["id"] for row in project.rows("silver.enriched_readings"))
    assert ids == sorted([*(int(row["id"]) for row in sample["readings"]), 999])
    sites = {row["id"]: row["site"] for row in sample["sensors"]}
    counted = Counter(sites.get(row["sensor_id"], "unknown") for row in sample["readings"])
    counted["moved"] += 1
    marts = Counter[str]()
    for row in project.rows("gold.readings_by_day"):
        marts[row["site"]] += row["count_readings"]
    assert marts == counted
