"""Java's ahead-of-time caches: classes that are loaded and linked already, and method profiles.

With a cache (JEP 483, 514 and 515), Spark and the broker start and warm up faster. A cache is only
good for the same Java, jars and flags, so its name is a digest of them, and Java itself checks them
again. If a cache is missing, broken or foreign, the programs start without it.
`lakehouse warm-up` makes them (`lakehouse/warm_up.py`).
"""

import hashlib
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from lake.settings.settings import LakeSettings
from lakehouse.runtime.java import find_java, release_file, released_version

FIRST_VERSION = 25
DUMP_SECONDS = 300  # in which a trained program writes its cache when it stops
UNUSED_DAYS = 30
# Without a cache. The jars are checksummed. Verifying their byte code as well takes a tenth of the
# start-up time. A cache holds verified classes.
TRUST_JARS = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
QUIET = "-Xlog:aot*=off,cds*=off"  # Java would print on stdout why it does not use a cache

_training: list[Path] = []  # the folder for the caches, while this process trains


def train_into(folder: Path) -> None:
    """Let each Java that this process starts write a cache into a folder when it stops."""
    _training[:] = [folder]


def is_training() -> bool:
    """Whether the programs that this process starts write caches when they stop."""
    return bool(_training)


def cache_folder(settings: LakeSettings) -> Path:
    """The folder of all caches."""
    return settings.cache_dir / "aot"


def cache_file(
    settings: LakeSettings, program: str, jars: Iterable[Path], flags: Iterable[str]
) -> Path | None:
    """The file of a program's cache, which need not exist; None if the Java has no such caches.

    Args:
        settings: name the cache folder.
        program: a name, such as `spark`.
        jars: the folders of its jars.
        flags: the Java flags that it starts with, apart from those of `aot_flags`.
    """
    java = find_java()
    if (released_version(java) or 0) < FIRST_VERSION:
        return None
    release = release_file(java)
    files = [line for folder in jars for line in _jars_in(folder)]
    content = "\n".join([release.read_text(), str(release.resolve()), *files, *flags])
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    return cache_folder(settings) / f"{program}-{digest}.aot"


def _jars_in(folder: Path) -> list[str]:
    """A line for each jar in a folder, with all that Java compares before it uses a cache.

    The times are whole seconds, and the folder's own time is left out, because an image or a volume
    that a folder is copied into keeps neither.
    """
    jars = [(file, file.stat()) for file in sorted(folder.glob("*.jar"))]
    return [f"{file} {found.st_size} {int(found.st_mtime)}" for file, found in jars]


def aot_flags(file: Path | None) -> tuple[str, ...]:
    """The Java flags to use a program's cache, or to make it while this process trains.

    Args:
        file: the result of `cache_file`.
    """
    if file is None:
        return TRUST_JARS
    if _training:
        return (f"-XX:AOTCacheOutput={_training[0] / file.name}", QUIET)
    if not file.exists():
        return TRUST_JARS
    with suppress(OSError):  # of a cache that others own
        os.utime(file)
    return (f"-XX:AOTCache={file}", QUIET)


def delete_unused(settings: LakeSettings) -> None:
    """Delete caches that no start has used for `UNUSED_DAYS`, as of earlier versions."""
    oldest = time.time() - UNUSED_DAYS * 86_400
    for file in cache_folder(settings).glob("*.aot*"):
        with suppress(OSError):
            if file.stat().st_mtime < oldest:
                file.unlink()
