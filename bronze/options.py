"""Options of `format("pulsar")`, parsed once; plain dataclass, as it travels to the workers."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from bronze.errors import SettingsError

KNOWN = {
    "serviceurl": "serviceUrl",
    "adminurl": "adminUrl",
    "topic": "topic",
    "subscription": "subscription",
    "readtimeoutms": "readTimeoutMs",
}


@dataclass(frozen=True)
class PulsarOptions:
    """What to read, and from where.

    serviceUrl: broker, e.g. `pulsar://127.0.0.1:6650`. Required.
    adminUrl: admin API, e.g. `http://127.0.0.1:8080`. Required: offsets are planned with it.
    topic: full name, `persistent://tenant/namespace/topic`. Required.
    subscription: durable subscription that keeps unread messages on the broker. Required.
    readTimeoutMs: how long one message may take to come before the task fails. Default 60000.
    """

    service_url: str
    admin_url: str
    topic: str
    subscription: str
    read_timeout_ms: int = 60_000

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "PulsarOptions":
        """Check the options of a reader.

        Raises:
            SettingsError: an option is unknown, missing or no number.
        """
        given = {name.lower(): value for name, value in options.items()}
        for name in given:
            if name not in KNOWN:
                near = difflib.get_close_matches(name, KNOWN, n=1)
                known = ", ".join(KNOWN.values())
                hint = f"did you mean '{KNOWN[near[0]]}'?" if near else f"known are {known}"
                message = f"Unknown option '{name}' of format(\"pulsar\"); {hint}"
                raise SettingsError(message)
        for name in ("serviceurl", "adminurl", "topic", "subscription"):
            if not given.get(name):
                message = f"Option '{KNOWN[name]}' of format(\"pulsar\") is missing; set it."
                raise SettingsError(message)
        timeout = given.get("readtimeoutms", "60000")
        if not timeout.isdigit() or int(timeout) == 0:
            message = f"Option readTimeoutMs: '{timeout}' is no positive number of milliseconds."
            raise SettingsError(message)
        return cls(
            service_url=given["serviceurl"],
            admin_url=given["adminurl"],
            topic=given["topic"],
            subscription=given["subscription"],
            read_timeout_ms=int(timeout),
        )
