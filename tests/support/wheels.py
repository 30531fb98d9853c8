"""Wheels of this repository, and environments with nothing but them and locked dependencies."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

UV = Path(sys.executable).with_name("uv")


def built(package: Path, folder: Path) -> Path:
    """Build the wheel of a package into a folder, and return it."""
    build = ("build", "--quiet", "--wheel", "--out-dir", folder, package)
    subprocess.run([UV, *build], check=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def environment(folder: Path, lock: Path, wheel: Sequence[str | Path]) -> Path:
    """Make an environment, and return its Python.

    Args:
        folder: where to make it.
        lock: the file with all dependencies and their hashes.
        wheel: the wheel, with further options of its installation.
    """
    python = folder / "bin" / "python"
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    locked = ("--require-hashes", "-r", lock, "--link-mode", "symlink")
    for what in (locked, wheel):
        install = ("pip", "install", "--quiet", "--python", python, "--no-deps")
        subprocess.run([UV, *install, *what], check=True)
    subprocess.run([UV, "pip", "check", "--python", python], check=True)
    return python
