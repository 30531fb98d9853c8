"""Ports for the servers that tests start."""

import random
import socket

# Below those that a system gives to outgoing connections: one chosen for later is free then, too.
FIRST, LAST = 15_000, 32_000


def free_port() -> int:
    """A port of loopback that nothing listens on."""
    while True:
        port = random.randint(FIRST, LAST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
