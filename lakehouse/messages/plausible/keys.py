"""Numbers the keys of generated changelogs, so that generated events can refer to them."""

import re
from collections.abc import Sequence

from lake.topics.topic import Topic, snake_case
from lake.topics.topic_file import TopicFile
from lakehouse.messages.plausible.cells import DAY_MS, capacity, key_cell

BEGIN_MS = 1_735_689_600_000  # 2025-01-01, when the first message is sent
PERIOD_MS = 90 * DAY_MS  # from the first message to the last
GROUP = 3  # rows that share the first part of a key of several fields


class Keys:
    """The keys of the changelogs of a topic file, numbered from 1 in the order of their creation.

    topics: the topics.
    count: the keys of each changelog, unless the type of its key has fewer values.
    """

    def __init__(self, topics: TopicFile, count: int) -> None:
        self._topics = topics.topics
        self._count = count
        self._prefixes = _prefixes(topics)

    def count(self, topic: Topic) -> int:
        """How many keys a changelog has."""
        distinct = _distinct(topic, topic.key_in_message_key)
        return min(self._count, capacity(topic.fields[distinct].type))

    def count_of(self, name: str | None = None) -> int:
        """How many keys the changelog of this name has; without a name, the most that one has."""
        return self.count(self._topics[name]) if name else self._count

    @staticmethod
    def created(number: int, count: int) -> int:
        """When one of `count` keys is created, in epoch ms. The last is created at half time."""
        return BEGIN_MS + PERIOD_MS // 2 * (number - 1) // count

    def known(self, name: str, moment: int) -> int:
        """How many keys of a changelog have been created by a moment; at least one."""
        count = self.count_of(name)
        return min(max((moment - BEGIN_MS) * count * 2 // PERIOD_MS + 1, 1), count)

    def reference(self, name: str, kind: str, number: int) -> str:
        """A key of a changelog with one key field, as a cell of a field that refers to it."""
        return key_cell(kind, self._prefixes[name], number)

    def cells_of(self, name: str, number: int) -> list[str]:
        """A key of a changelog with several key fields, as cells in their order."""
        topic = self._topics[name]
        cells = self.cells(topic, number)
        return [cells.get(field, "") for field in topic.key]

    def cells(self, topic: Topic, number: int) -> dict[str, str]:
        """The key of a topic with a number. No two numbers have the same, as far as types allow."""
        names = topic.key_in_message_key
        distinct = _distinct(topic, names)
        return {
            name: key_cell(
                topic.fields[name].type,
                self._prefixes[topic.name] if len(names) == 1 else stem(name, topic.name),
                number if name == distinct else 1 + (number - 1) // GROUP,
            )
            for name in names
        }


def stem(name: str, topic: str) -> str:
    """What the values of an identifier begin with: `account` for the field `accountId`.

    A field that is only called `id` takes the topic's name.
    """
    return re.sub(r"_?(id|key)$", "", snake_case(name)) or topic


def _distinct(topic: Topic, names: Sequence[str]) -> str:
    """The key field that is different in each key: the one with most values, the last of several.

    Lookups and the event time are filled otherwise, so they are taken only if there is no other.
    """
    filled = {topic.event_time, *topic.referring}
    own = [name for name in names if name not in filled] or [*names]
    return max(reversed(own), key=lambda name: capacity(topic.fields[name].type))


def _prefixes(topics: TopicFile) -> dict[str, str]:
    """What the keys of each topic begin with if they are strings.

    It is the name of the first field that refers to the topic, else that of its own key. Topics to
    which one field refers must have the same.
    """
    found = {name: stem(topic.key_in_message_key[0], name) for name, topic in topics.topics.items()}
    together = []
    for topic in reversed(topics.events()):
        for lookup in reversed(topic.lookups.values()):
            if len(lookup.on) == 1:
                found[lookup.topic] = stem(lookup.on[0].split(".")[-1], topic.name)
                together.append([x.topic for x in topic.lookups.values() if x.on == lookup.on])
    for _ in together:  # a chain of such topics needs several rounds
        for names in together:
            found |= dict.fromkeys(names, min(found[name] for name in names))
    return found
