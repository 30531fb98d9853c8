"""Loads the application that a topic file names: what it adds to commands that know no domain.

A topic file names a Python module (`application = "shop.application"`). Without one, `gold
evaluate` is refused, and `demo` and `generate` make data from the declarations of the topics.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from pulsar_spark.errors import SettingsError

if TYPE_CHECKING:  # `lakehouse generate` draws nothing
    from lake.tables.lake import Lake
    from lake.topics.topic_file import TopicFile

NEEDED = ("generate", "evaluate")


class Application(Protocol):
    """The module of an application."""

    def generate(self, folder: Path, scale: float, seed: int) -> Mapping[str, int]:
        """Write CSV files with generated data, one per topic, named as `lakehouse publish` expects.

        Args:
            folder: the folder, which is created if it does not exist.
            scale: size of the data; 1 is the size of the demo.
            seed: the same seed gives the same files.

        Returns:
            The number of rows written, by what they are.
        """

    def evaluate(self, lake: Lake) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        """Measure the predictions that gold makes: the columns and rows of a table.

        Called by `lakehouse gold evaluate` while an SQL endpoint runs at the address of the lake's
        settings.

        Raises:
            GoldError: nothing could be measured.
        """


def load_application(topics: TopicFile) -> Application | None:
    """The application that the topic file names, or None.

    Raises:
        SettingsError: the module does not exist or is no application.
    """
    name = topics.application
    if name is None:
        return None
    remedy = (
        "Correct 'application' in the topic file, or remove it. The module must be importable by "
        "the Python that runs the lakehouse."
    )
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        message = f"The application {name} of the topic file cannot be imported: {error}."
        raise SettingsError(message, remedy) from error
    if missing := [each for each in NEEDED if not hasattr(module, each)]:
        message = f"The module {name} is no application, because it lacks {', '.join(missing)}."
        raise SettingsError(message, remedy)
    return cast(Application, module)


def require_application(topics: TopicFile, command: str) -> Application:
    """The application that the topic file names, for a command that needs one.

    Raises:
        SettingsError: the topic file names none, or one that cannot be used.
    """
    found = load_application(topics)
    if found is None:
        message = f"{command} needs an application, and the topic file names none."
        remedy = (
            "Use the topic file of an application, or name a module in yours, such as "
            'application = "shop.application".'
        )
        raise SettingsError(message, remedy)
    return found
