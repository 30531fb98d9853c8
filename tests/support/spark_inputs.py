"""The statements with which Spark tests its own SQL, as its release publishes them."""

import re
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

from lake.settings.settings import load_settings
from lakehouse.runtime.jars import fetch_jars

LOCK = Path(__file__).with_name("spark_inputs.lock")
# What is between these comments is one statement, although it holds semicolons.
BLOCK = re.compile(
    r"^--QUERY-DELIMITER-START$(.*?)^--QUERY-DELIMITER-END$", re.MULTILINE | re.DOTALL
)
COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)
END = re.compile(r"(?<=[^\\]);")


def spark_inputs() -> list[str]:
    """Return all statements, about 16,700. Fetches the jar of Spark's tests if needed."""
    [jar] = fetch_jars(load_settings(), "spark-inputs", lock=LOCK).glob("*.jar")
    with ZipFile(jar) as files:
        names = [
            name
            for name in sorted(files.namelist())
            if name.startswith("sql-tests/inputs/") and name.endswith(".sql")
        ]
        return [each for name in names for each in _statements(files.read(name).decode())]


def _statements(text: str) -> Iterator[str]:
    yield from (COMMENT.sub("", block).strip(" \n;") for block in BLOCK.findall(text))
    rest = COMMENT.sub("", BLOCK.sub("", text))
    yield from (each for part in END.split(rest) if (each := part.strip()))
