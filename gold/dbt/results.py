"""The results of a dbt run, read from its `run_results.json`."""

import datetime as dt
import json
import re
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from gold.tables import GoldSnapshot

# Spark's own message within an error that Java has prefixed with the names of classes.
SPARKS = re.compile(r"\[[A-Z][A-Z_.0-9]{5,}\] (?!org\.).+(?:\n\s*- .+)*")
STATES = re.compile(r"SQLSTATE: (\w{5})")
COUNTING = ("DELTA_NEW_CHECK_CONSTRAINT_VIOLATION", "DELTA_NEW_NOT_NULL_VIOLATION")
COUNTED = re.compile(r"Got\s+\d+\s+results?\b")  # of a test
UNTOLD = "failed with a message that may hold values of rows"
COMPILING = "Compilation Error"  # dbt's own, before it runs a statement
FAILED = ("error", "fail", "runtime error")
ENCOUNTERED = "Encountered an error:"  # dbt writes what follows when it cannot run at all
STAMP = re.compile(r"^\d\d:\d\d:\d\d\s+")
MACRO = "> "  # begins the lines with the macros that were running
LONGEST = 600


@dataclass(frozen=True)
class NodeResult:
    """The result of one model, test or unit test."""

    name: str
    kind: str
    status: str
    seconds: float
    message: str | None
    sql: str | None

    def __str__(self) -> str:
        message = self.message or "no message"
        sparks = SPARKS.search(message)
        message = " ".join((sparks[0] if sparks else message).split())[:300]
        return f"{self.kind} {self.name}: {message}"

    @property
    def without_values(self) -> str:
        """What failed. Unlike `str`, it holds no values of rows, which may be a person's."""
        return f"{self.kind} {self.name}: {self.message_without_values}"

    @property
    def message_without_values(self) -> str | None:
        """The message if it holds no values of rows, and otherwise only the name of the error.

        Spark quotes values in errors of data. It does not in those of a statement, whose state is
        in class 42 of the SQL standard.
        """
        message = self.message
        if message is None or self.status not in FAILED or COUNTED.match(message):
            return message
        sparks = SPARKS.search(message)
        if sparks is None:
            return message if message.lstrip().startswith(COMPILING) else UNTOLD
        name = sparks[0][1 : sparks[0].index("]")]
        state = STATES.findall(sparks[0])[-1:]  # a value may look like one, but not come last
        if name in COUNTING or (state and state[0].startswith("42")):
            return " ".join(sparks[0].split())
        return f"[{name}]"


@dataclass(frozen=True)
class BuildResult:
    """The results of a dbt run.

    published: the snapshot that readers see now; None if only a part was built.
    due_at: when the first of the models that have waited is to be computed; None if none has.
    """

    nodes: list[NodeResult]
    published: GoldSnapshot | None = None
    due_at: dt.datetime | None = None

    @property
    def models(self) -> list[NodeResult]:
        """The models, in the order in which they finished."""
        return [node for node in self.nodes if node.kind == "model"]

    @property
    def messages(self) -> dict[str, str]:
        """dbt's message for each model, by its name; empty if it has none."""
        return {node.name: node.message or "" for node in self.models}

    @property
    def tests(self) -> list[NodeResult]:
        """Data tests and unit tests."""
        return [node for node in self.nodes if node.kind in ("test", "unit_test")]

    @property
    def failed(self) -> list[NodeResult]:
        """The nodes that failed."""
        return [node for node in self.nodes if node.status in FAILED]


def read_results(path: Path) -> BuildResult:
    """Read the `run_results.json` of a dbt run."""
    results: list[dict[str, Any]] = json.loads(path.read_text())["results"]
    nodes = []
    for result in results:
        kind, _, *name = result["unique_id"].split(".")
        found = result["status"], result["execution_time"], result["message"]
        nodes.append(NodeResult(name[0], kind, *found, result.get("compiled_code")))
    return BuildResult(nodes)


def why_dbt_ended(text: str) -> str:
    """What dbt's log says about a run without results, on one line that ends with a full stop."""
    _, found, after = text.rpartition(ENCOUNTERED)
    lines = [STAMP.sub("", line).strip() for line in (after if found else text).splitlines()]
    lines = [*takewhile(lambda line: line[:2] != MACRO, filter(None, lines))]
    said = " ".join(lines if found else lines[-1:])[:LONGEST] or "it printed nothing"
    return said if said.endswith(".") else f"{said}."
