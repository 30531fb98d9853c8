"""`lakehouse savepoint`, `backup` and `restore`: go back to an earlier moment of the lake."""

import datetime as dt
from pathlib import Path
from typing import Annotated

import typer

from lakehouse.runtime.context import Format, current
from pulsar_spark.errors import SettingsError

commands = typer.Typer(
    help="Create savepoints of the lake, and restore tables and streams to them."
)
Name = Annotated[str, typer.Argument(help="Name of the savepoint.")]


@commands.command()
def create(name: Name) -> None:
    """Name the latest moment at which all tables and streams are consistent.

    Streams may keep running. The savepoint can be restored while old versions of tables are kept
    (history_days).
    """
    from lakehouse.operate import savepoints
    from lakehouse.runtime.broker import require_broker
    from lakehouse.runtime.terminal import out

    require_broker(current.settings)
    found = savepoints.create(current.lake, name)
    out.print(f"Savepoint {name} contains silver up to batch {found.silver_batch}.")


@commands.command("list")
def show(form: Format = "table") -> None:
    """Show all savepoints."""
    from lakehouse.operate import savepoints
    from lakehouse.runtime.terminal import print_rows

    header = ("savepoint", "created", "restorable until", "silver batch", "tables")
    kept = dt.timedelta(days=current.settings.history_days)
    rows = [
        (each.name, each.created_at, each.created_at + kept, each.silver_batch, len(each.versions))
        for each in savepoints.savepoints(current.lake.settings)
    ]
    print_rows(header, rows, form)


@commands.command("restore")
def restore_savepoint(name: Name) -> None:
    """Restore all tables and streams to a savepoint. Stop the streams and gold first.

    When they start again, they read what has been published since.
    """
    from lakehouse.operate import savepoints
    from lakehouse.runtime.run import broker_and_spark
    from lakehouse.runtime.terminal import out, step

    with (
        broker_and_spark(current.settings, "lakehouse-savepoint") as (_, spark),
        step("Restoring tables and streams"),
    ):
        savepoints.restore(spark, current.lake, name)
    out.print(f"Tables and streams were restored to savepoint {name}.")


@commands.command()
def drop(name: Name) -> None:
    """Delete a savepoint, and let the broker drop the messages that it kept."""
    from lakehouse.operate import savepoints
    from lakehouse.runtime.broker import require_broker
    from lakehouse.runtime.terminal import out

    require_broker(current.settings)
    savepoints.drop(current.lake, name)
    out.print(f"Savepoint {name} was dropped.")


def backup(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of the backup, best on another disk.")
    ],
    release: Annotated[
        bool,
        typer.Option(
            "--release", help="Only let the broker drop the messages that it keeps for the backup."
        ),
    ] = False,
) -> None:
    """Copy lake, checkpoints, SQL users and project to a folder. Everything may keep running.

    A second backup into the same folder copies only what is new, and replaces the first one. Until
    then, the broker keeps all messages after the backup, so that a restored lake can continue.
    """
    from lakehouse.operate.backup import back_up, release_backup
    from lakehouse.operate.backup_store import size_of
    from lakehouse.runtime.broker import require_broker
    from lakehouse.runtime.terminal import err, out, step

    require_broker(current.settings)
    if release:
        release_backup(current.lake, folder)
        out.print(f"The broker keeps no more messages for the backup in {folder}.")
        return
    with step("Copying"):
        result = back_up(current.lake, folder, Path.cwd())
    made = result.backup
    out.print(
        f"The backup in {folder} holds silver up to batch {made.silver_batch}: {len(made.files)} "
        f"files, {_size(size_of(made.files))}. New: {result.new_files} files, "
        f"{_size(result.new_bytes)}."
    )
    if made.embedded_broker:
        err.print(
            "The messages of the embedded broker are not in the backup. If its home is lost, so "
            "are the messages that were sent after the backup."
        )
    if made.secrets:
        named = ", ".join(f"{file} ({name})" for name, file in made.secrets.items())
        err.print(f"Not in the backup, so keep them elsewhere: {named}.")


def restore(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the backup.")],
    new_broker: Annotated[
        bool,
        typer.Option(
            "--new-broker",
            help="The topics are on another broker: land all messages that they hold there.",
        ),
    ] = False,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="The lake that was backed up is gone: delete its subscriptions on the broker.",
        ),
    ] = False,
) -> None:
    """Restore a backup into an empty home, so that `lakehouse up` continues from there.

    In an empty folder, this also restores the project: lakehouse.toml, topic file and dbt project.
    A lake that was backed up and still runs is not disturbed.
    """
    from lakehouse.operate import restore as restoring
    from lakehouse.operate.backup_store import BackupStore
    from lakehouse.operate.project_files import restore_project
    from lakehouse.runtime.broker import require_broker
    from lakehouse.runtime.terminal import err, out, step

    if new_broker and take_over:
        message = (
            "--take-over deletes subscriptions on the former broker, which --new-broker does not "
            "use. Leave out one of the two."
        )
        raise SettingsError(message)
    store = BackupStore(folder)
    found = restoring.read_backup(store)
    for name in restore_project(store, found, Path.cwd()):
        err.print(f"Restored {name}")
    restoring.require_empty(current.settings)
    if not new_broker:
        require_broker(current.settings)
    with step("Copying"):
        restoring.restore(current.lake, store, found, new_broker=new_broker, take_over=take_over)
    out.print(
        f"The lake of {found.created_at:%Y-%m-%d %H:%M} UTC (silver batch {found.silver_batch}) is "
        f"in {current.settings.tables}. Start it with `lakehouse up`."
    )
    for name, place in found.moved.items():
        err.print(f"The setting {name} named a file outside the project; it is now {place}.")
    for name, file in found.secrets.items():
        err.print(f"The setting {name} names {file}, which is not in the backup.")
    if found.variables:
        err.print(f"These variables had settings, too: {', '.join(found.variables)}.")
    if not take_over and not new_broker:
        err.print(
            "The broker still keeps messages for the lake that was backed up. If that lake is "
            "gone, `lakehouse restore --take-over` into an empty home deletes its subscriptions."
        )


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
