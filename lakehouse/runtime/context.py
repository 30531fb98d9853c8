"""The state shared by the commands: settings, declared topics and the option `--format`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lake.settings.log_format import LogFormat

if TYPE_CHECKING:
    from lake.settings.settings import LakeSettings
    from lake.tables.lake import Lake
    from lake.topics.topic_file import TopicFile

Form = Literal["table", "csv", "json"]
Format = Annotated[Form, typer.Option("--format", help="How to print the result.")]


class Context:
    """The settings and the declared topics of this run of the command line.

    They are read when a command first asks for one of them, so that `lakehouse COMMAND --help`
    works without them.
    """

    traces = False

    def __init__(self) -> None:
        self.begin()

    def begin(
        self,
        home: Path | None = None,
        topics: Path | None = None,
        log_format: LogFormat | None = None,
    ) -> None:
        """Start a run with these global options. None: environment and file decide the setting."""
        self._given = {"home": home, "topics": topics}
        self._log_format = log_format
        self._read: tuple[LakeSettings, TopicFile] | None = None
        self._lake: Lake | None = None
        self._is_known = False

    @property
    def settings(self) -> LakeSettings:
        """The settings.

        Raises:
            SettingsError: a setting or the topic file is wrong.
        """
        return self._settings_and_topics()[0]

    @property
    def topics(self) -> TopicFile:
        """The declared topics.

        Raises:
            SettingsError: a setting or the topic file is wrong.
        """
        return self._settings_and_topics()[1]

    @property
    def lake(self) -> Lake:
        """The lake, whose format this release knows.

        Raises:
            FormatError: a newer release has written the lake.
            SettingsError: a setting or the topic file is wrong.
        """
        from lake.tables.format import require_known_format

        if not self._is_known:
            require_known_format(self.settings)
            self._is_known = True
        return self.lake_of_any_format

    @property
    def lake_of_any_format(self) -> Lake:
        """The lake, for a command that reports its format.

        Raises:
            SettingsError: a setting or the topic file is wrong.
        """
        from lake.tables.lake import Lake  # which loads the libraries that read tables

        if self._lake is None:
            self._lake = Lake(*self._settings_and_topics())
        return self._lake

    def choose_ports(self, *, broker: bool) -> None:
        """Choose the ports of this run's services, where the settings name none, and keep them.

        Args:
            broker: whether the command starts the embedded broker if no broker answers.

        Raises:
            SettingsError: a setting or the topic file is wrong.
            LakehouseError: the file with the ports of the home is torn.
        """
        from lakehouse.runtime.broker import broker_answers
        from lakehouse.runtime.ports import choose_ports

        settings, topics = self._settings_and_topics()
        embeds = broker and not broker_answers(settings)
        self._read, self._lake = (choose_ports(settings, broker=embeds), topics), None

    def allow_actions(self, allowed: bool | None) -> None:
        """Let the console act on the lake, if an option says so. None leaves it to the settings.

        Raises:
            SettingsError: a setting or the topic file is wrong.
        """
        if allowed is not None:
            settings, topics = self._settings_and_topics()
            changed = settings.model_copy(update={"console_actions": allowed})
            self._read, self._lake = (changed, topics), None

    def _settings_and_topics(self) -> tuple[LakeSettings, TopicFile]:
        """Read the settings and the topics with the first use, and set the logs' format."""
        from lake.observe.logs import configure_logs
        from lake.settings.settings import load_settings
        from lake.topics.topic_file import load_topics

        if self._read is None:
            configure_logs(self._log_format or "text")  # for warnings about settings
            settings = load_settings(**self._given, log_format=self._log_format)
            configure_logs(settings.log_format)
            topics = load_topics(settings.topics)
            if any(topic.evolve for topic in topics.topics.values()):
                from lake.tables.lake import Lake
                from silver.contract.evolved import evolved

                topics = evolved(Lake(settings, topics)).topics
            self._read = settings, topics
        return self._read


current = Context()
