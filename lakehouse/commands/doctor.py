"""`lakehouse doctor` and `java-home`: check the installation and the lake."""

import typer

from lakehouse.runtime.context import Format, current


def doctor(form: Format = "table") -> None:
    """Check versions, jars, settings, disk, ports, broker, topics and streams. Change nothing.

    The exit code is 1 if a check fails.
    """
    from lakehouse.operate.doctor import COLUMNS, examine
    from lakehouse.runtime.terminal import print_rows

    found = examine(current.lake_of_any_format)
    if form == "table":
        shown = [
            (*each[:2], f"{each.found}\n→ {each.remedy}" if each.remedy else each.found)
            for each in found
        ]
        print_rows((*COLUMNS[:2], "found, and what to do"), shown, form)
    else:
        print_rows(COLUMNS, found, form)
    if any(each.state == "fail" for each in found):
        raise typer.Exit(1)


def java_home() -> None:
    """Print the JAVA_HOME that Spark is started with, for other Spark programs."""
    from lakehouse.runtime.java import java_home
    from lakehouse.runtime.terminal import out

    out.print(str(java_home(current.settings)), soft_wrap=True)
