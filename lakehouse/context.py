"""What the commands of the command line share."""

from typing import Annotated

import typer

from bronze.settings import LakeSettings
from bronze.topics import TopicFile
from lakehouse import console

Format = Annotated[console.Format, typer.Option("--format", help="How to print the result.")]


class Context:
    """What all commands need: the settings and the declared topics."""

    settings: LakeSettings
    topics: TopicFile
    traces = False


lake = Context()
