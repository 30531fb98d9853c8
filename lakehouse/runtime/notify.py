"""Tells systemd the state of a service that it has started (`Type=notify`).

The protocol is a datagram to the socket that `NOTIFY_SOCKET` names; see sd_notify(3).
"""

import os
import socket
from contextlib import suppress

READY = "READY=1"
STOPPING = "STOPPING=1"


def notify(state: str) -> None:
    """Send a state such as `READY`. Does nothing if systemd has not started this process."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place:
        return
    address = f"\0{place[1:]}" if place.startswith("@") else place
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(address)
        sender.sendall(state.encode())
