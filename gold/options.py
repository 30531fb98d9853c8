"""The options of `lakehouse gold` and `python -m gold`. Imports little, as the help loads it."""

from typing import Annotated

import typer

from pulsar_spark.errors import SettingsError

Select = Annotated[
    str | None,
    typer.Option(
        help="Build and test only these models (dbt's selection syntax); publish nothing."
    ),
]
Every = Annotated[
    str, typer.Option(metavar="TIME", help="Build at most this often, such as 30s or 5m.")
]
FullRefresh = Annotated[
    bool, typer.Option("--full-refresh", help="Rebuild all models from scratch.")
]


def seconds(text: str) -> float:
    """Convert a duration such as `30s` or `5m` to seconds.

    Raises:
        SettingsError: the text is not a duration.
    """
    from pytimeparse.timeparse import timeparse

    found = timeparse(text)
    if found is None:
        message = f"--every: '{text}' is not a duration. Write it like 30s, 5m or 1h."
        raise SettingsError(message)
    return float(found)
