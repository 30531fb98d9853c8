"""`lakehouse forget`: erase a person from all layers, and show what was searched and found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lakehouse.runtime.context import Format, current

if TYPE_CHECKING:
    from lakehouse.erasure.person import Found, Person
    from lakehouse.erasure.verify import Proof


def forget(
    person: Annotated[str, typer.Argument(help="Key of the person, such as the id of a user.")],
    reason: Annotated[
        str, typer.Option(help="Reason for the erasure, recorded in silver.forgotten.")
    ],
    topic: Annotated[
        str | None,
        typer.Option(
            help="Changelog that the person is in, if several changelogs are about people."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    form: Format = "table",
) -> None:
    """Erase a person from all layers and old versions, after asking, and verify the result.

    Events stay, under a pseudonym. Stop the streams and gold first. All old versions of the tables
    that held data of the person are deleted, and gold is rebuilt. Sinks send the deletion; earlier
    messages stay in their topics. The exit code is 1 if anything is left.
    """
    from gold.catalog import register
    from lake.tables.lake import Lake
    from lakehouse.erasure import follow, run
    from lakehouse.runtime.ports import with_own_sql_port
    from lakehouse.runtime.terminal import err
    from lakehouse.up import sql_endpoint

    run.check(current.lake, person, topic)
    with follow.session(current.lake, "lakehouse-forget") as spark:
        register(spark, current.lake)
        lake = Lake(with_own_sql_port(current.settings), current.topics)
        with sql_endpoint(spark, lake.settings):
            proof = run.forget(
                spark,
                lake,
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
    from lakehouse.runtime.terminal import err

    counts = ", ".join(f"{len(x.messages) + len(x.refused)} of {x.topic.name}" for x in found)
    err.print(
        f"This rewrites messages in bronze ({counts}), deletes all old versions of the tables that "
        "contain them, and rebuilds gold. Merged accounts that are erased too: "
        f"{len(who.pseudonyms) - 1}."
    )
    return typer.confirm("Forget?", default=False, err=True)


def _show(proof: Proof, form: Format) -> None:
    """Print what was searched. Called after Spark has stopped and its temporary files are gone.

    Raises:
        Exit: something is left. The exit code is 1.
    """
    from rich.markup import escape

    from lakehouse.erasure.verify import COLUMNS
    from lakehouse.runtime.terminal import err, print_rows

    parts = proof.search()
    print_rows(COLUMNS, [part.cells() for part in parts], form)
    fields = ", ".join(proof.values) or "no fields"
    err.print(
        f"Searched for keys and for values of: {fields}. The broker's topics and the databases of "
        "sinks were not searched."
    )
    left = [each for part in parts for each in part.found]
    for file, what in left:
        err.print(f"[red]Still there:[/red] {escape(f'{what} in {file}')}", highlight=False)
    if left:
        raise typer.Exit(1)
