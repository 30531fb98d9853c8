"""What `lakehouse forget` is going to do, written down before it changes anything.

The run rewrites the messages by which it has found the person: which accounts are merged, and which
orders refer to them. A run that goes on after an interruption could not find all of that again, so
it goes on by the plan. The file names the person, so only its owner may read it, and the run
deletes it at its end.
"""

import base64
import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lake.durable import PRIVATE, delete_durably, read_json, write_durably
from lake.settings.settings import LakeSettings
from lake.topics.topic import Topic
from lake.topics.topic_file import TopicFile
from lakehouse.erasure.person import Found, Person, required_secret
from lakehouse.erasure.redact import Redacted
from pulsar_spark.errors import SettingsError

NAME = "_forget.json"
TORN = "Restore it from a backup, or start over with `lakehouse reset`."


@dataclass(frozen=True)
class Plan:
    """A person, and what becomes of the person's messages.

    reason: as it is recorded in `silver.forgotten`. secret: fingerprint of the secret of the
    pseudonyms. is_done: whether bronze and silver are done, so that only gold is left.
    """

    person: Person
    found: list[Found]
    reason: str
    secret: str
    is_done: bool = False
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def is_of(self, topic: Topic, key: str) -> bool:
        """Whether a key is one of the person's."""
        return self.person.topic == topic and key in self.person.pseudonyms

    def done(self, settings: LakeSettings) -> "Plan":
        """Note that bronze and silver are done."""
        plan = replace(self, is_done=True)
        plan.write(settings)
        return plan

    def write(self, settings: LakeSettings) -> None:
        """Write it to the disk."""
        stored = {
            "id": self.id,
            "reason": self.reason,
            "secret": self.secret,
            "is_done": self.is_done,
            "topic": self.person.topic.name,
            "pseudonyms": self.person.pseudonyms,
            "values": {name: sorted(values) for name, values in self.person.values.items()},
            "found": [
                {
                    "topic": each.topic.name,
                    "messages": [_stored(message) for message in each.messages],
                    "refused": [_stored(message) for message in each.refused],
                }
                for each in self.found
            ],
        }
        write_durably(_file(settings), json.dumps(stored), mode=PRIVATE)

    @classmethod
    def read(cls, settings: LakeSettings, topics: TopicFile) -> "Plan | None":
        """The plan of a run that has not ended; None if there is none.

        Raises:
            LakehouseError: the file is torn.
            SettingsError: the secret or the topic file is not that of the run.
        """
        stored = read_json(_file(settings), TORN)
        if stored is None:
            return None
        if stored["secret"] != required_secret(settings).fingerprint():
            message = (
                "`lakehouse forget` was interrupted, and began with another pseudonym secret. Run "
                "it again with that secret: it goes on."
            )
            raise SettingsError(message)
        found = [
            Found(
                _topic(topics, each["topic"]),
                _messages(each["messages"]),
                _messages(each["refused"]),
            )
            for each in stored["found"]
        ]
        values = {name: set(values) for name, values in stored["values"].items()}
        person = Person(_topic(topics, stored["topic"]), stored["pseudonyms"], values)
        rest = {name: stored[name] for name in ("reason", "secret", "is_done", "id")}
        return cls(person, found, **rest)

    def delete(self, settings: LakeSettings) -> None:
        """Delete it from the disk, as all is done."""
        delete_durably(_file(settings))


def _file(settings: LakeSettings) -> Path:
    return settings.lake_dir / NAME


def _topic(topics: TopicFile, name: str) -> Topic:
    if name not in topics.topics:
        message = (
            f"`lakehouse forget` was interrupted, and the topic '{name}' is no longer in the topic "
            "file. Declare it as before, then run the command again: it goes on."
        )
        raise SettingsError(message)
    return topics.topics[name]


def _stored(message: Redacted) -> list[Any]:
    payload = message.payload
    encoded = None if payload is None else base64.b64encode(payload).decode()
    return [message.place, message.key, encoded]


def _messages(stored: Iterable[list[Any]]) -> list[Redacted]:
    return [
        Redacted(tuple(place), key, None if payload is None else base64.b64decode(payload))
        for place, key, payload in stored
    ]
