"""The handle of a lake, which functions get instead of settings and topics."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property

from lake.settings.settings import LakeSettings
from lake.tables.spec import TableSpec
from lake.tables.storage import in_bucket, tables_below
from lake.tables.table import Table
from lake.topics.address import Address
from lake.topics.topic_file import TopicFile, load_topics

Shares = Callable[[TableSpec], bool]


class Lake:
    """A lake: its settings, its topics and its tables.

    Threads can share a lake. Each thread gets handles of its own, because the handle of a table
    moves from version to version.
    """

    def __init__(
        self,
        settings: LakeSettings,
        topics: TopicFile | None = None,
        shared: tuple[Lake, Shares] | None = None,
    ) -> None:
        """Open a lake. Nothing is read yet.

        Args:
            settings: the settings.
            topics: the topics; None for those of the file that the settings name.
            shared: another lake, and which of its tables this lake uses instead of its own.
        """
        self.settings = settings
        self._topics = topics
        self._shared = shared
        self._opened = threading.local()

    @cached_property
    def topics(self) -> TopicFile:
        """The declared topics.

        Raises:
            SettingsError: the topic file is wrong.
        """
        return self._topics or load_topics(self.settings.topics)

    def address(self, topic: str) -> Address:
        """Where a declared topic is on the broker.

        Everything that names a declared topic to the broker gets the name here.

        Raises:
            SettingsError: two declarations have a topic in common.
        """
        return self._addresses[topic]

    @cached_property
    def _addresses(self) -> dict[str, Address]:
        return self.topics.addresses(self.settings.pulsar_namespace)

    def table(self, spec: TableSpec) -> Table:
        """The table of a contract."""
        if self._shared is not None and not self.owns(spec):
            return self._shared[0].table(spec)
        opened: dict[str, Table] = vars(self._opened)
        known = opened.get(spec.full_name)
        if known is None or known.spec != spec:
            known = opened[spec.full_name] = Table(self.settings, spec)
        return known

    def declaring(self, topics: TopicFile) -> Lake:
        """This lake with other topics."""
        return Lake(self.settings, topics, self._shared)

    def owns(self, spec: TableSpec) -> bool:
        """Whether a table is this lake's own, and not one of another lake that it uses."""
        return self._shared is None or not self._shared[1](spec)

    def named(self, layer: str, name: str) -> Table:
        """A table without a contract of ours, such as one that dbt builds."""
        return Table(self.settings, TableSpec(layer, name, "", ()))

    def tables(self, layer: str) -> dict[str, Table]:
        """The existing Delta tables of a layer, by name."""
        names = tables_below(self.settings, f"{self.settings.tables}/{layer}")
        return {name: self.named(layer, name) for name in names}

    def beside(self, name: str, shares: Shares) -> Lake:
        """A second lake in a folder of this one, which uses some tables of this one.

        Args:
            name: the name of the folder.
            shares: whether the table of a contract is this lake's.
        """
        folder = self.settings.lake_dir / name
        own: dict[str, object] = {"lake": folder}
        if in_bucket(self.settings):
            own = {"lake": f"{self.settings.tables}/{name}", "home": folder}
        return Lake(self.settings.model_copy(update=own), self.topics, (self, shares))
