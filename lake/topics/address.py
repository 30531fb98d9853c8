"""Checks what a topic file says about a topic on the broker: its addresses, and where to start."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pulsar_spark.broker.admin import PulsarAdmin

# A topic's own name on the broker: printable ASCII without `/` and `,`, which separate names.
_LOCAL_NAME = re.compile(r"[!-+\-.0-~]+")
_NAMESPACE = r"persistent://[\w=:.-]+/[\w=:.-]+/"
_FULL_NAME = re.compile(_NAMESPACE + _LOCAL_NAME.pattern, re.ASCII)
_PATTERN = re.compile(rf"({_NAMESPACE})?(?P<local>[^/\s]+)", re.ASCII)
_CHOICE = re.compile(r"\((?:\?:)?([^()]*)\)")  # a group in a pattern
# A part of a pattern that stands for several characters.
_ANY = re.compile(r"(\\[dw]|\[(?:[^\]\\]|\\.)+\]|\.(?=[*+?{]))([*+?]|\{[\d,]+\})?\??|(?<!\\)\.")
_FILLERS = ("1", "2", "3", "a", "b", "01", "02", "2026", "")


class Address(NamedTuple):
    """Where the messages of a declared topic are on the broker. `Lake.address` returns it.

    names: full names, `persistent://tenant/namespace/name`; one, or several whose messages land in
        one table.
    pattern: instead of names, `persistent://tenant/namespace/` and a regular expression that the
        whole name of a topic matches.
    """

    names: tuple[str, ...] = ()
    pattern: str | None = None

    @classmethod
    def parse(cls, text: str) -> Address:
        """The address with this text, as `str` writes it."""
        if text.startswith(MATCHING):
            return cls(pattern=text.removeprefix(MATCHING))
        return cls(tuple(text.split(",")))

    def __str__(self) -> str:
        return f"{MATCHING}{self.pattern}" if self.pattern else ",".join(self.names)

    @property
    def options(self) -> dict[str, str]:
        """The option of `format("pulsar")` that reads these topics."""
        return {"topicsPattern": self.pattern} if self.pattern else {"topics": ",".join(self.names)}

    @property
    def namespaces(self) -> list[str]:
        """`tenant/namespace` of each topic, without repetition."""
        full = [self.pattern] if self.pattern else self.names
        return list(dict.fromkeys("/".join(name.split("/")[2:4]) for name in full))

    def holds(self, name: str) -> bool:
        """Whether the topic with this full name is one of these."""
        if self.pattern is None:
            return name in self.names
        return re.fullmatch(self.pattern, name) is not None

    @property
    def examples(self) -> list[str]:
        """Full names of its topics: all, or a few that the pattern matches, if some can be made."""
        if self.pattern is None:
            return [*self.names]
        head, slash, local = self.pattern.rpartition("/")
        found = (f"{head}{slash}{name}" for name in _examples(local))
        return [name for name in dict.fromkeys(found) if self.holds(name)][:3]

    def named(self, text: str) -> str | None:
        """The full name of the topic of this address with a full or short name; None if none."""
        if self.pattern is not None:
            names = [text if "://" in text else f"persistent://{self.namespaces[0]}/{text}"]
        else:
            names = [name for name in self.names if text in (name, name.rpartition("/")[2])]
        return names[0] if len(names) == 1 and self.holds(names[0]) else None

    def topics(self, admin: PulsarAdmin) -> list[str]:
        """The full names of the topics. A pattern is matched with those that the broker has.

        Raises:
            BrokerError: there is a pattern, and the broker does not answer.
        """
        return admin.matching_topics(self.pattern) if self.pattern else [*self.names]


MATCHING = "topics matching "


def declared_address(
    topic: str, names: tuple[str, ...], pattern: str | None, namespace: str | None
) -> Address:
    """The address of a declaration.

    Args:
        topic: the name of the declaration, which is the default.
        names: the declared names, full or short.
        pattern: the declared pattern.
        namespace: `tenant/namespace` of short names; None to leave them short.
    """
    if pattern is not None:
        head, slash, local = full_name(pattern, namespace).rpartition("/")
        # Without a group, `a|b` after a namespace would match only `a` in it.
        return Address(pattern=f"{head}{slash}{f'(?:{local})' if _is_choice(local) else local}")
    return Address(tuple(full_name(name, namespace) for name in names or (topic,)))


def _is_choice(pattern: str) -> bool:
    """Whether a pattern has a `|` outside its groups."""
    rest = re.sub(r"\\.|\[[^\]]*\]", "", pattern)
    while (inner := re.sub(r"\([^()]*\)", "", rest)) != rest:
        rest = inner
    return "|" in rest


def _examples(pattern: str) -> Iterator[str]:
    """Texts that a pattern may match: each group and each placeholder is filled in some ways."""
    for number, filler in enumerate(_FILLERS):
        text = pattern
        while (found := _CHOICE.search(text)) is not None:
            choices = found[1].split("|")
            text = text[: found.start()] + choices[number % len(choices)] + text[found.end() :]
        text = _ANY.sub(filler, text.strip("^$"))
        yield re.sub(r"\\(.)", r"\1", text)


def full_name(name: str, namespace: str | None) -> str:
    """A name with its namespace, if it is short and there is one."""
    is_done = namespace is None or "://" in name
    return name if is_done else f"persistent://{namespace}/{name}"


def checked_start(value: Any) -> Any:
    """Check where a topic starts: `earliest`, `latest`, or an instant, which TOML has a type for.

    Raises:
        ValueError: the value is something else.
    """
    if value in ("earliest", "latest"):
        return value
    text = value.isoformat() if isinstance(value, dt.datetime) else str(value)
    with contextlib.suppress(ValueError):
        if dt.datetime.fromisoformat(text.replace("Z", "+00:00")).tzinfo is not None:
            return text
    message = (
        f"'{text}' is neither earliest, latest nor an instant with a time zone, such as "
        "2026-01-31T00:00:00Z"
    )
    raise ValueError(message)


def checked_names(value: Any) -> Any:
    """Check the names of a topic on the broker: one, or a list of several.

    A name is short, or `persistent://tenant/namespace/name`.

    Returns:
        The names, as a tuple.

    Raises:
        ValueError: a value is not the name of a persistent topic, or a name is in the list twice.
    """
    names = value if isinstance(value, list) else [value]
    if not names:
        message = "is an empty list; name at least one topic"
        raise ValueError(message)
    for each in names:
        checked_name(each)
    twice = next((each for each in names if names.count(each) > 1), None)
    if twice is not None:
        message = f"has '{twice}' twice, so each message would be stored twice"
        raise ValueError(message)
    return tuple(names)


def checked_name(value: Any) -> Any:
    """Check the name of one topic on the broker, as `checked_names`."""
    if not isinstance(value, str):
        message = f"must be the name of a topic, not {value!r}"
        raise ValueError(message)
    _see_it_is_stored(value)
    if not _FULL_NAME.fullmatch(value) and not _LOCAL_NAME.fullmatch(value):
        message = (
            f"'{value}' is neither a short name (printable ASCII without blanks, '/' and ',') nor "
            "persistent://tenant/namespace/name"
        )
        raise ValueError(message)
    if re.search(r"-partition-\d+$", value):
        message = f"'{value}' is one partition of a topic; name the topic, without '-partition-N'"
        raise ValueError(message)
    return value


def checked_pattern(value: Any) -> Any:
    """Check a pattern of names: a regular expression, alone or after a tenant and a namespace.

    Raises:
        ValueError: the value is something else.
    """
    if not isinstance(value, str):
        message = f"must be a regular expression in quotes, not {value!r}"
        raise ValueError(message)
    _see_it_is_stored(value)
    found = _PATTERN.fullmatch(value)
    if found is None:
        message = (
            f"'{value}' is neither a regular expression without blanks and '/' nor one after "
            "persistent://tenant/namespace/, where tenant and namespace are plain names"
        )
        raise ValueError(message)
    try:
        re.compile(f"persistent://{found['local']}")  # it will follow a namespace, too
    except re.error as error:
        message = f"'{value}' is not a regular expression: {error}"
        raise ValueError(message) from error
    return value


def _see_it_is_stored(value: str) -> None:
    if value.startswith("non-persistent://"):
        message = (
            f"'{value}' is not persistent: the broker does not store its messages, so they could "
            "not be read again after a restart"
        )
        raise ValueError(message)


def refuse_equal(addresses: Mapping[str, Address]) -> None:
    """Check that no two declarations have the same topic on the broker.

    Nobody knows which names will exist, so two patterns are compared by some names that they match.
    `refuse_other_address` of bronze sees all names that have landed.

    Args:
        addresses: the address of each topic, by its declared name.

    Raises:
        ValueError: two declarations have a topic in common.
    """
    seen: dict[str, str] = {}
    for name, address in addresses.items():
        for each in (str(address),) if address.pattern else address.names:
            if each in seen:
                message = (
                    f"topics '{seen[each]}' and '{name}' are both the topic {each} on the "
                    "broker; declare it once"
                )
                raise ValueError(message)
            seen[each] = name
    for name, address in addresses.items():
        if address.pattern is None:
            continue
        for known, theirs in addresses.items():
            if known == name or theirs.pattern is None:
                continue
            both = next(filter(address.holds, theirs.examples), None)
            if both is not None:
                message = (
                    f"the patterns of topics '{known}' and '{name}' both match names such as "
                    f"{both}, so each message would be stored twice; change one of them"
                )
                raise ValueError(message)
        other = next((n for n in seen if seen[n] != name and address.holds(n)), None)
        if other is not None:
            message = (
                f"the pattern of topic '{name}' matches {other}, which topic '{seen[other]}' also "
                "reads, so each message would be stored twice; change the pattern"
            )
            raise ValueError(message)
