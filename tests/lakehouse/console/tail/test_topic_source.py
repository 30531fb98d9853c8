"""Tests that the live page reads the messages of a real topic, and leaves nothing there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tenacity import Retrying, retry_if_not_result, stop_after_delay, wait_fixed
from topic import LiveTopic, Outgoing

from lake.settings.settings import LakeSettings
from lake.tables.lake import Lake
from lakehouse.console.masking import HIDDEN, Masking
from lakehouse.console.tail import topic_source
from lakehouse.console.tail.lines import Line
from lakehouse.console.tail.topic_source import TopicSource
from lakehouse.messages.publish import create_topics
from lakehouse.runtime.broker import Broker
from pulsar_spark.errors import BrokerError, SettingsError

TOPICS = """
[topics.things]
kind = "events"
key = ["id"]
[topics.things.fields]
id = "long"
email = { type = "string", personal = "keep" }

[topics.many]
kind = "events"
key = ["id"]
pattern = "persistent://public/default/many-.*"
fields = { id = "long" }
"""


@pytest.fixture
def lake(broker: Broker, settings: LakeSettings, tmp_path: Path) -> Lake:
    (tmp_path / "topics.toml").write_text(TOPICS)
    return Lake(settings.model_copy(update={"topics": tmp_path / "topics.toml"}))


def lines_of(source: TopicSource, enough: Callable[[list[Line]], bool]) -> list[Line]:
    found: list[Line] = []

    def more() -> bool:
        found.extend(source.poll(100)[0])
        return enough(found)

    Retrying(retry=retry_if_not_result(bool), stop=stop_after_delay(30), wait=wait_fixed(0.05))(
        more
    )
    return found


def test_messages_are_shown_as_they_come_with_personal_fields_masked(
    lake: Lake, settings: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = LiveTopic(settings, "things", 2)
    topic.send([Outgoing(b'{"id": %d, "email": "a@b.org"}' % n, key=str(n)) for n in range(40)])
    source = TopicSource(lake, Masking(lake.topics, shows_all=False), "things")
    try:
        before = lines_of(source, lambda found: len(found) >= topic_source.NEWEST)
        assert len(before) == topic_source.NEWEST
        assert {each.values["email"] for each in before} == {"***"}
        sent = [
            Outgoing(b'{"id": 41, "email": "c@d.org"}', key="k41"),
            Outgoing(b"<a@b.org>", key="x"),
            Outgoing(b"", key="gone"),
        ]
        topic.send(sent)
        after = {each.key: each for each in lines_of(source, lambda found: len(found) >= 3)}
        assert {key: (each.kind, each.text) for key, each in after.items()} == {
            "k41": ("message", '{"id": 41, "email": "***"}'),
            "x": ("message", HIDDEN),
            "gone": ("tombstone", ""),
        }
        monkeypatch.setattr(topic_source, "LATE_SECONDS", -1.0)
        topic.send([Outgoing(b'{"id": %d}' % n, key=str(n)) for n in range(2000)])
        notes: list[str] = []
        Retrying(retry=retry_if_not_result(bool), stop=stop_after_delay(30), wait=wait_fixed(0.05))(
            lambda: notes.append(source.poll(10)[1]) or any(notes)
        )
        assert "Older messages were skipped" in next(filter(None, notes))
    finally:
        source.close()


def test_topics_that_cannot_be_followed_say_why(lake: Lake) -> None:
    masking: Any = Masking(lake.topics, shows_all=True)
    with pytest.raises(SettingsError, match=r"pattern.*"):
        TopicSource(lake, masking, "many")
    with pytest.raises(BrokerError):
        TopicSource(lake, masking, "things")
    create_topics(lake)
    TopicSource(lake, masking, "things").close()
