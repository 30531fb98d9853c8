"""Settings without secrets, the ends of logs, and a support bundle: what is needed to help a user.

None of it holds a payload, a key, a row, or a secret.
"""

from __future__ import annotations

import io
import json
import platform
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from lake import DISTRIBUTION
from lake.observe.logs import RECENT_LINES
from lake.settings.settings import LakeSettings
from lake.tables.lake import Lake
from lakehouse.console.watcher import Sample
from lakehouse.operate.doctor import Finding
from pulsar_spark.log_masking import HIDDEN, SECRET_NAME, redact

OWN_LOG = "this process"
LINES = 400  # of a log on the page
LONGEST = 200_000  # bytes at the end of a log that are read
BUNDLED = 1_000_000


@dataclass(frozen=True)
class Setting:
    """The effective value of a setting. `is_given` says whether it was set or is the default."""

    name: str
    value: str
    is_given: bool
    description: str


def settings_shown(settings: LakeSettings) -> list[Setting]:
    """All settings, with their secrets hidden."""
    return [
        Setting(
            name,
            _value(name, getattr(settings, name)),
            name in settings.model_fields_set,
            field.description or "",
        )
        for name, field in sorted(LakeSettings.model_fields.items())
    ]


def _value(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, SecretStr) or SECRET_NAME.search(name):
        return HIDDEN
    return redact(str(value))


def versions() -> dict[str, str]:
    """The versions of the program, of Python and of the machine."""
    return {
        "lakehouse": metadata.version(DISTRIBUTION),
        "Python": platform.python_version(),
        "system": platform.platform(),
    }


def log_names(settings: LakeSettings) -> list[str]:
    """The logs that can be shown: that of this process, and the files in the home."""
    return [OWN_LOG, *(file.name for file in sorted(_files(settings)))]


def log_end(settings: LakeSettings, name: str, lines: int = LINES) -> list[str]:
    """The last lines of a log, with secrets masked; none if there is no such log."""
    if name == OWN_LOG:
        return [*RECENT_LINES][-lines:]
    file = next((each for each in _files(settings) if each.name == name), None)
    return [] if file is None else redact(_tail(file, LONGEST)).splitlines()[-lines:]


def _files(settings: LakeSettings) -> list[Path]:
    return [file for file in (settings.home_dir / "logs").glob("*.log") if file.is_file()]


def _tail(file: Path, most: int) -> str:
    """The end of a log, with its secrets, which the callers mask."""
    try:
        with file.open("rb") as stream:
            stream.seek(max(file.stat().st_size - most, 0))
            return stream.read(most).decode(errors="replace")
    except OSError as error:
        return f"{file.name} cannot be read: {error.strerror}"


def support_bundle(lake: Lake, sample: Sample, findings: Sequence[Finding]) -> bytes:
    """A ZIP file with checks, settings, states, topic file and the ends of logs."""
    settings = lake.settings
    shown = {each.name: each.value for each in settings_shown(settings)}
    packages = sorted(f"{d.name}=={d.version}" for d in metadata.distributions())
    streams = [asdict(each) for each in sample.streams.values()]
    tables = {name: asdict(each) for name, each in sample.tables.items()}
    texts = {
        "versions.json": _json(versions()),
        "packages.txt": "\n".join(dict.fromkeys(packages)),
        "settings.json": _json(shown),
        "checks.json": _json([each._asdict() for each in findings]),
        "streams.json": _json(streams),
        "tables.json": _json({"tables": tables, "lags": sample.lags, "broker": sample.broker}),
        "topics.toml": settings.topics.expanduser().read_text(errors="replace"),
        "log.txt": "\n".join(RECENT_LINES),
    }
    texts |= {f"logs/{file.name}": _tail(file, BUNDLED) for file in _files(settings)}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, text in texts.items():
            bundle.writestr(f"lakehouse-support/{name}", redact(text))
    return content.getvalue()


def _json(value: object) -> str:
    return json.dumps(value, indent=1, default=str, ensure_ascii=False)
