"""The plan of `lakehouse forget`, which is stored before anything changes.

The run rewrites the messages by which it found the person, such as which accounts are merged and
which orders refer to them. An interrupted run could not find all of that again, so it continues
from the plan. The file identifies the person. Therefore only its owner may read it, and the run
deletes it at the end.
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
from lake.tables.lake import Lake
from lake.topics.topic import Topic
from lake.topics.topic_file import TopicFile
from lakehouse.erasure.person import Found, Person, required_secret
from lakehouse.erasure.redact import Redacted
from pulsar_spark.errors import SettingsError

NAME = "_forget.json"
TORN = "Restore it from a backup, or start over with `lakehouse reset`."


@dataclass(frozen=True)
class Plan:
    """A person, and the new content of the person's messages.

    reason: the text recorded in `silver.forgotten`. secret: fingerprint of the secret from which
    pseudonyms are computed. is_done: whether bronze and silver are done, so that only gold is left.
    number: the negative batch id of the change in silver, None until it is known. id: identifies
    the run, so that it is recorded only once.
    """

    person: Person
    found: list[Found]
    reason: str
    secret: str
    is_done: bool = False
    number: int | None = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def is_of(self, topic: Topic, key: str) -> bool:
        """Whether a key of a topic is one of the person's keys."""
        return self.person.topic == topic and key in self.person.pseudonyms

    def done(self, settings: LakeSettings) -> "Plan":
        """Record that bronze and silver are done, and return the updated plan."""
        plan = replace(self, is_done=True)
        plan.write(settings)
        return plan

    def numbered(self, settings: LakeSettings, number: int) -> "Plan":
        """Record the batch id of the change in silver, and return the updated plan."""
        plan = replace(self, number=number)
        plan.write(settings)
        return plan

    def write(self, settings: LakeSettings) -> None:
        """Write the plan to a file that only its owner can read."""
        stored = {
            "id": self.id,
            "reason": self.reason,
            "secret": self.secret,
            "is_done": self.is_done,
            "number": self.number,
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
    def read(cls, lake: Lake) -> "Plan | None":
        """The plan of a run that has not ended, or None if there is none.

        Raises:
            LakehouseError: the file is damaged.
            SettingsError: the run began with another secret, or a topic that it needs is no longer
                declared.
        """
        stored = read_json(_file(lake.settings), TORN)
        if stored is None:
            return None
        if stored["secret"] != required_secret(lake).fingerprint():
            message = (
                "`lakehouse forget` was interrupted, and it had started with another pseudonym "
                "secret. Run it again with that secret to finish it."
            )
            raise SettingsError(message)
        found = [
            Found(
                _topic(lake.topics, each["topic"]),
                _messages(each["messages"]),
                _messages(each["refused"]),
            )
            for each in stored["found"]
        ]
        values = {name: set(values) for name, values in stored["values"].items()}
        person = Person(_topic(lake.topics, stored["topic"]), stored["pseudonyms"], values)
        rest = {name: stored[name] for name in ("reason", "secret", "is_done", "id")}
        return cls(person, found, number=stored.get("number"), **rest)

    def delete(self, settings: LakeSettings) -> None:
        """Delete the file. Called when everything is done."""
        delete_durably(_file(settings))


def _file(settings: LakeSettings) -> Path:
    return settings.lake_dir / NAME


def _topic(topics: TopicFile, name: str) -> Topic:
    if name not in topics.topics:
        message = (
            f"`lakehouse forget` was interrupted, and the topic '{name}' is no longer in the topic "
            "file. Declare it as before, then run the command again to finish it."
        )
        raise SettingsError(message)
    return topics.topics[name]


def _stored(message: Redacted) -> list[Any]:
    payload = message.payload
    encoded = None if payload is None else base64.b64encode(payload).decode()
    return [message.place, message.key, encoded, message.properties]


def _messages(stored: Iterable[list[Any]]) -> list[Redacted]:
    return [
        Redacted(
            *(tuple(place), key, None if payload is None else base64.b64decode(payload)),
            *map(tuple, kept),  # absent from the plan of a run that an older version began
        )
        for place, key, payload, *kept in stored
    ]
