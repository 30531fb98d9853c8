"""Checks what a topic file says about a topic on the broker: its address, and where to start."""

import contextlib
import datetime as dt
import re
from collections.abc import Mapping
from typing import Any

# A topic's own name on the broker: printable ASCII without `/` and `,`, which separate names.
_LOCAL_NAME = re.compile(r"[!-+\-.0-~]+")
_FULL_NAME = re.compile(rf"persistent://[\w=:.-]+/[\w=:.-]+/{_LOCAL_NAME.pattern}", re.ASCII)


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


def checked_address(value: Any) -> Any:
    """Check an address: a short name, or `persistent://tenant/namespace/name`.

    Raises:
        ValueError: the value is not the name of one persistent topic.
    """
    if not isinstance(value, str):
        message = (
            "must be the name of one topic. Several topics cannot be landed in one table, because "
            "positions do not order the messages of different topics; declare each of them"
        )
        raise ValueError(message)
    if value.startswith("non-persistent://"):
        message = (
            f"'{value}' is not persistent: the broker does not store its messages, so they could "
            "not be read again after a restart"
        )
        raise ValueError(message)
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


def refuse_equal(addresses: Mapping[str, str]) -> None:
    """Check that no two declarations are the same topic on the broker.

    Args:
        addresses: the address of each topic, by its declared name.

    Raises:
        ValueError: two addresses are equal.
    """
    seen: dict[str, str] = {}
    for name, address in addresses.items():
        if address in seen:
            message = (
                f"topics '{seen[address]}' and '{name}' are both the topic {address} on the "
                "broker; declare it once"
            )
            raise ValueError(message)
        seen[address] = name
