"""The ports of a project, where the settings name none: chosen once, and kept in its home.

Several projects can run on one machine. Each home has a file `ports.json` with the ports on which
its broker, its SQL endpoint and its console listen, so commands in the folder of a project find its
services, and clients stay connected over restarts. `lakehouse up` writes the file. The cache
folder, which all projects of a user share, lists the homes that have one.

A port that a setting names is used unchanged.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from lake.durable import read_json, write_durably

FILE = "ports.json"
HOMES = "homes"
# By kind: the port that the first project gets.
DEFAULTS = {"broker": 6650, "admin": 8080, "sql": 10000, "console": 8090}
# Below the ephemeral range: an outgoing connection could take such a port between two starts.
FIRST, LAST = 15_000, 32_000


def known_ports(home: Path) -> dict[str, int]:
    """The ports that a home has chosen, by kind; empty if it has chosen none.

    Raises:
        LakehouseError: the file is torn.
    """
    remedy = "Delete it; the next `lakehouse up` chooses ports again."
    stored = read_json(home / FILE, remedy) or {}
    return {kind: int(port) for kind, port in stored.items() if kind in DEFAULTS}


def ports_of_others(home: Path, cache: Path) -> dict[int, Path]:
    """The ports that other homes of this user have chosen, and which home it is."""
    return {
        port: other
        for other in _homes(cache)
        if other != home
        for port in known_ports(other).values()
    }


def expected_port(kind: str, home: Path, others: Mapping[int, Path]) -> int:
    """The port that a home without a choice would choose if it were free.

    The default, unless another home has it. Then it depends on the path of the home, so that a
    command finds nothing there before `up`, instead of the services of the other home.
    """
    default = DEFAULTS[kind]
    if default not in others:
        return default
    digest = int(hashlib.sha256(str(home).encode()).hexdigest(), 16)
    size = len(DEFAULTS)
    block = digest % ((LAST - FIRST) // size)
    return FIRST + block * size + [*DEFAULTS].index(kind)


def keep_ports(home: Path, cache: Path, chosen: Mapping[str, int]) -> None:
    """Note the ports of a home, and the home among those of this user."""
    home.mkdir(parents=True, exist_ok=True)
    write_durably(home / FILE, json.dumps(dict(sorted(chosen.items())), indent=1))
    listed = _entry(home, cache)
    listed.parent.mkdir(parents=True, exist_ok=True)
    write_durably(listed, str(home))


def _homes(cache: Path) -> Iterator[Path]:
    """The homes that have chosen ports and still exist."""
    for file in sorted((cache / HOMES).glob("*")):
        home = Path(file.read_text()) if not file.name.startswith(".") else None
        if home is not None and (home / FILE).exists():
            yield home


def _entry(home: Path, cache: Path) -> Path:
    return cache / HOMES / hashlib.sha256(str(home).encode()).hexdigest()[:16]
