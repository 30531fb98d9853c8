"""The format version of a lake, by which an older release refuses the lake of a newer one.

The file `format.json` lies beside the tables, in a folder as in a bucket. It holds the number of
the format and the release that wrote it. A lake without the file has format 1, which all releases
before the file had; it gets the file when its streams next start.

Increase `FORMAT` when earlier releases would read or continue a lake wrongly: when the meaning of a
table, a checkpoint or a savepoint changes. A new table, column or setting does not need it.
"""

import importlib.metadata
import json
from typing import NamedTuple

from filelock import FileLock

from lake import DISTRIBUTION
from lake.settings.settings import LakeSettings
from lake.tables.storage import Place, read_text, require_bucket, write_text
from pulsar_spark.errors import LakehouseError

FORMAT = 1
FIRST = 1  # of lakes without the file
FILE = "format.json"
UNKNOWN = "an unknown release"


class FormatError(LakehouseError):
    """The lake cannot be opened by this release."""


class LakeFormat(NamedTuple):
    """The number of a format, and the release that wrote a lake in it."""

    format: int
    release: str


def release() -> str:
    """The release of this code, such as `0.1.0`."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:  # such as a folder of files on a cluster
        return UNKNOWN


def format_of(settings: LakeSettings) -> LakeFormat | None:
    """The format of a lake; None if it is not noted, as in a lake that does not exist yet.

    Raises:
        FormatError: the file is not what a release writes.
        SettingsError: the tables are in a bucket that cannot be used.
    """
    require_bucket(settings)
    file = format_file(settings)
    text = read_text(settings, file)
    return None if text is None else parse_format(file, text)


def parse_format(file: Place, text: str) -> LakeFormat:
    """The format that the content of a file states.

    Raises:
        FormatError: it states none.
    """
    try:
        stored = json.loads(text)
        return LakeFormat(int(stored["format"]), str(stored["release"]))
    except (ValueError, TypeError, KeyError) as error:
        what = f"{file} does not say which format the lake has, perhaps because of a power cut."
        remedy = (
            "Delete the file if no release newer than this one has used the lake. It is written "
            "again when the streams start."
        )
        raise FormatError(what, remedy) from error


def require_known(found: LakeFormat, what: str) -> None:
    """Check that this release knows a format.

    Args:
        found: the format.
        what: what has the format, such as "The lake in /data", for the error.

    Raises:
        FormatError: the format is newer than this release.
    """
    if found.format > FORMAT:
        message = (
            f"{what} has format {found.format}, written by {_named(found.release)}. This is "
            f"{_named(release())}, which knows formats up to {FORMAT} and would damage it. "
            "Nothing was changed."
        )
        remedy = f"Install {_named(found.release)} or a later one."
        raise FormatError(message, remedy)


def require_known_format(settings: LakeSettings) -> None:
    """Check that this release may open a lake. Called by each command that does.

    Raises:
        FormatError: the lake has a newer format, or the file is damaged.
        SettingsError: the tables are in a bucket that cannot be used.
    """
    found = format_of(settings)
    if found is not None:
        require_known(found, f"The lake in {settings.tables}")


def mark_format(settings: LakeSettings) -> None:
    """Note the format of a lake that has no note. Called before its tables are first written.

    Raises:
        FormatError: the lake has a newer format, or the file is damaged.
    """
    settings.lake_dir.mkdir(parents=True, exist_ok=True)
    # Bronze and silver may start at the same time, in two processes.
    with FileLock(settings.lake_dir / f".{FILE}.lock"):
        require_known_format(settings)
        if format_of(settings) is None:
            write_text(settings, format_file(settings), as_text(LakeFormat(FORMAT, release())))


def _named(number: str) -> str:
    return number if number == UNKNOWN else f"release {number}"


def as_text(found: LakeFormat) -> str:
    """The content of the file that states a format."""
    return json.dumps(found._asdict())


def format_file(settings: LakeSettings) -> Place:
    """The place of the file that states the format of a lake."""
    return f"{settings.tables}/{FILE}"
