"""Compares the short benchmarks with those of an earlier commit, in one run on one machine.

    python -m benchmarks.check [--rounds 3] [--only landing]

`benchmarks/baseline` names the earlier commit. It is checked out into a temporary folder and gets
an environment of its own. The two versions take turns, because machines are noisy, and the medians
are compared. The exit code is 1 if a ratio is worse than `--worst`.
"""

import contextlib
import os
import re
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from lakehouse.runtime.terminal import out, print_rows

ROOT = Path(__file__).parents[1]
BASELINE = ROOT / "benchmarks" / "baseline"


class Figure(NamedTuple):
    """A figure of a benchmark: its arguments, the column that holds it, and what is better."""

    arguments: tuple[str, ...]
    column: str
    more_is_better: bool = True


FIGURES = {
    "landing": Figure(
        ("benchmarks.bronze", "--messages", "1000000", "--partitions", "4"), "landed msg/s"
    ),
    "backfill": Figure(("benchmarks.silver", "backfill", "--orders", "500000"), "orders/s"),
    "freshness": Figure(
        ("benchmarks.silver", "freshness", "--seconds", "60", "--warm-up", "30"),
        "p50 s",
        more_is_better=False,
    ),
    "gold": Figure(
        ("benchmarks.gold", "--lines", "50000", "--changes", "100"),
        "100 changes s",
        more_is_better=False,
    ),
}


def value_of(column: str, printed: str) -> float:
    """The value of a column in the first row of the table that has it.

    Raises:
        ValueError: no table has the column.
    """
    rows = (re.split("[│┃]", line.strip(" │┃")) for line in printed.splitlines())
    lines = [[cell.strip() for cell in row] for row in rows]
    for number, cells in enumerate(lines):
        if column in cells:
            for row in lines[number + 1 :]:
                if len(row) == len(cells):
                    return float(row[cells.index(column)].replace(",", ""))
    message = f"No table has a column '{column}':\n{printed}"
    raise ValueError(message)


def run(tree: Path, figure: Figure) -> float:
    """Run a benchmark of a checkout with its own environment, and return the figure."""
    command = [str(tree / ".venv" / "bin" / "python"), "-m", *figure.arguments]
    wide = {**os.environ, "COLUMNS": "200"}  # so that no heading is folded
    ended = subprocess.run(
        command, cwd=tree, env=wide, stdout=subprocess.PIPE, text=True, check=True
    )
    return value_of(figure.column, ended.stdout)


@contextlib.contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """A temporary checkout of a commit, with its environment."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "baseline"
        add = ["git", "worktree", "add", "--quiet", "--detach", str(tree), commit]
        subprocess.run(add, cwd=ROOT, check=True)
        try:
            subprocess.run(["make", "--quiet", ".venv/ready"], cwd=tree, check=True)
            yield tree
        finally:
            remove = ["git", "worktree", "remove", "--force", str(tree)]
            subprocess.run(remove, cwd=ROOT, check=False)


def main(
    rounds: Annotated[int, typer.Option(help="Runs of each version.", min=1)] = 3,
    only: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(FIGURES)}.")] = None,
    worst: Annotated[float, typer.Option(help="The smallest ratio that passes.")] = 0.8,
) -> None:
    """Print each figure of both versions and their ratio; above 1, this version is better."""
    names = only or [*FIGURES]
    if unknown := {*names} - {*FIGURES}:
        message = f"There is no benchmark '{min(unknown)}'; use {', '.join(FIGURES)}."
        raise typer.BadParameter(message)
    commit = BASELINE.read_text().split()[0]
    rows, bad = [], []
    with checkout(commit) as before:
        for name in names:
            figure = FIGURES[name]
            pairs = [(run(before, figure), run(ROOT, figure)) for _ in range(rounds)]
            was, now = (statistics.median(each) for each in zip(*pairs, strict=True))
            ratio = now / was if figure.more_is_better else was / now
            rows.append((name, figure.column, f"{was:,.2f}", f"{now:,.2f}", f"{ratio:.2f}"))
            bad += [name] if ratio < worst else []
            print_rows(("benchmark", "figure", commit[:7], "now", "ratio"), rows)
    if bad:
        out.print(f"Worse than {worst} of {commit[:7]}: {', '.join(bad)}.")
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
