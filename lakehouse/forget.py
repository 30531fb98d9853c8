"""`lakehouse forget`: takes a person out of all layers, and shows what was searched and found."""

from typing import Annotated

import typer

from gold.catalog import register
from lakehouse import forgetting
from lakehouse.console import err, print_rows
from lakehouse.context import Format, lake
from lakehouse.ports import with_own_sql_port
from lakehouse.proof import COLUMNS, Proof
from lakehouse.run import spark_session
from lakehouse.up import sql_endpoint
from silver.person import Found, Person


def forget(
    person: Annotated[str, typer.Argument(help="Key of the person, such as the id of a user.")],
    reason: Annotated[str, typer.Option(help="Why; noted in silver.forgotten.")],
    topic: Annotated[
        str | None, typer.Option(help="Changelog of people, if the topic file has several.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    form: Format = "table",
) -> None:
    """Take a person out of all layers, old versions included, after asking; and show that it is so.

    Orders stay, under a pseudonym. Stop the streams and gold first. All old versions of the tables
    that had something of the person are deleted, and gold is built anew. Exit code 1 if something
    is left.
    """
    forgetting.check(lake.settings, lake.topics, person, topic)
    with spark_session(lake.settings, "lakehouse-forget") as spark:
        register(spark, lake.settings, lake.topics)
        settings = with_own_sql_port(lake.settings)
        with sql_endpoint(spark, settings):
            proof = forgetting.forget(
                spark,
                settings,
                lake.topics,
                person,
                lambda who, found: yes or _agree(who, found),
                reason=reason,
                topic=topic,
            )
    if proof is None:
        err.print("Nothing was changed.")
        return
    _show(proof, form)


def _agree(who: Person, found: list[Found]) -> bool:
    counts = ", ".join(f"{len(x.messages) + len(x.refused)} of {x.topic.name}" for x in found)
    err.print(
        f"This rewrites messages in bronze ({counts}), deletes all old versions of the tables that "
        f"have them, and builds gold anew. Merged accounts that go too: {len(who.pseudonyms) - 1}."
    )
    return typer.confirm("Forget?", default=False, err=True)


def _show(proof: Proof, form: Format) -> None:
    """Print what was searched, when Spark has ended and its own files are gone.

    Raises:
        Exit: something is left; the code is 1.
    """
    parts = proof.search()
    print_rows(COLUMNS, [part.cells() for part in parts], form)
    fields = ", ".join(proof.values) or "no field"
    err.print(f"Searched for keys, and for values of: {fields}. Not searched: the broker's topics.")
    left = [each for part in parts for each in part.found]
    for file, what in left:
        err.print(f"[red]Left:[/red] {what} in {file}", highlight=False)
    if left:
        raise typer.Exit(1)
