"""Reads the messages of a topic that arrive, for the live page. Leaves nothing on the broker."""

from __future__ import annotations

import time

from lake.tables.lake import Lake
from lakehouse.console.masking import HIDDEN, Masking
from lakehouse.console.tail.lines import Line
from lakehouse.messages.consume import Received, Tail
from lakehouse.messages.shown import Decoder
from lakehouse.runtime.broker import require_broker
from pulsar_spark.errors import SettingsError

NEWEST = 5  # messages that the page begins with
QUEUE = 50  # messages that the client holds for each partition
LATE_SECONDS = 10.0  # after which older messages are skipped, because the topic is too fast
MOST_TOPICS = 8


class TopicSource:
    """The end of a declared topic. Used by one thread.

    Raises:
        BrokerError: the broker does not answer, or lacks the topic.
        SettingsError: the topics are found by a pattern.
    """

    def __init__(self, lake: Lake, masking: Masking, topic: str) -> None:
        address = lake.address(topic)
        if not address.names:
            what = f"The topics of '{topic}' are found by a pattern."
            raise SettingsError(what, f"Watch the table bronze.{topic} instead.")
        require_broker(lake.settings)  # which says at once if there is none
        self._topic, self._masking = topic, masking
        self._tails: list[tuple[Tail, Decoder]] = []
        try:
            for name in address.names[:MOST_TOPICS]:
                tail = Tail(lake.settings, name, queue=QUEUE)
                decoder = Decoder(lake.settings, name, lake.topics.topics[topic])
                self._tails.append((tail, decoder))
            self._first = [
                self._line(message, decoder)
                for tail, decoder in self._tails
                for message in tail.newest(NEWEST)
            ]
        except BaseException:
            self.close()
            raise

    def poll(self, most: int) -> tuple[list[Line], str]:
        """The lines that have come, the oldest first, and a note if some were skipped.

        Args:
            most: the most messages to read.
        """
        lines, self._first, note = self._first, [], ""
        for tail, decoder in self._tails:
            messages = tail.arrived(most)
            lines += [self._line(message, decoder) for message in messages]
            oldest = min((each.publish_ms for each in messages), default=None)
            if len(messages) >= most and oldest is not None:
                late = time.time() - oldest / 1000 > LATE_SECONDS
                if late and tail.skip():
                    note = "The topic is faster than this page. Older messages were skipped."
        return lines, note

    def close(self) -> None:
        """Close the connections to the broker."""
        for tail, _ in self._tails:
            tail.close()

    def _line(self, message: Received, decoder: Decoder) -> Line:
        key = self._masking.key(self._topic, message.key)
        place = ":".join(map(str, message.position))
        if message.partition >= 0:
            place = f"{message.partition}:{place}"
        at = message.publish_ms / 1000
        if message.payload is None:
            return Line(at, "tombstone", place, key, "")
        form, text, note = decoder.content(message.payload, message.version)
        if form == "json":
            text, values = self._masking.line(self._topic, text)
        else:
            hides = self._masking.hides(self._topic)
            text, values = (HIDDEN if hides else text), None
        return Line(at, "message", place, key, f"{text} ({note})" if note else text, values)
