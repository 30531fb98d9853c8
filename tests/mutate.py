"""Shows that the suite catches faults: it plants each one of `mutations.toml` and runs a test.

Run `make mutations`, or `python tests/mutate.py WORD...` for the mutations whose file or test
contains one of the words. Each test first runs on the unchanged tree, where it must pass. Then each
mutation is applied to a copy of the tree, and its test must fail. The exit code is 1 if a mutation
survives, if its text is not in its file exactly once, or if a test cannot be run; 2 if no mutation
contains a word.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
FILE = Path(__file__).with_name("mutations.toml")
SECONDS = 1800  # of a test
FAILED = 1  # pytest's exit code if tests failed, and not if they could not be run


class Mutation(NamedTuple):
    """A fault of the kind that a programmer makes.

    fault: what is wrong. file: the file of the product. before, after: the text that is replaced,
    which is in the file once, and the faulty text. test: the test that must fail.
    """

    fault: str
    file: str
    before: str
    after: str
    test: str

    def applied(self, root: Path) -> str:
        """The text of the file with the fault.

        Raises:
            ValueError: the text is not in the file exactly once, or would not change.
        """
        text = (root / self.file).read_text(encoding="utf-8")
        times = text.count(self.before)
        if times != 1:
            message = f"{self.file} has the text {times} times, and not once: {self.before!r}"
            raise ValueError(message)
        if self.before == self.after:
            message = f"{self.file}: the mutation changes nothing: {self.before!r}"
            raise ValueError(message)
        return text.replace(self.before, self.after)


def read_mutations() -> list[Mutation]:
    """The mutations, in the order of the file."""
    content = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return [Mutation(**each) for each in content["mutation"]]


def copy_tree(to: Path) -> None:
    """Copy the files that git knows or would add."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def run(tests: Sequence[str], tree: Path) -> subprocess.CompletedProcess[str]:
    """Run tests in a copy of the tree, whose modules come before those that are installed."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


def main(words: Iterable[str]) -> int:
    """Run the mutations that contain one of the words, or all. Returns the exit code."""
    wanted = [*words]
    mutations = [
        each
        for each in read_mutations()
        if not wanted or any(word in each.file or word in each.test for word in wanted)
    ]
    if not mutations:
        print(f"No mutation has a file or a test with one of the words: {', '.join(wanted)}")
        return 2
    survived = 0
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        tree = Path(folder)
        copy_tree(tree)
        tests = [*dict.fromkeys(each.test for each in mutations)]
        done = run(tests, tree)
        if done.returncode:
            print(done.stdout[-5000:], done.stderr[-2000:], "The tests fail without a mutation.")
            return 1
        for number, each in enumerate(mutations, 1):
            begun, file = time.monotonic(), tree / each.file
            file.write_text(each.applied(tree), encoding="utf-8")
            ended = run([each.test], tree)
            shutil.copy2(ROOT / each.file, file)
            is_caught = ended.returncode == FAILED
            survived += not is_caught
            verdict = "caught  " if is_caught else f"SURVIVED (exit code {ended.returncode})"
            seconds = time.monotonic() - begun
            print(f"{number:3} {verdict} {each.file}: {each.fault} ({each.test}, {seconds:.0f} s)")
            if ended.returncode not in (0, FAILED):
                print(ended.stdout[-3000:], ended.stderr[-2000:])
            sys.stdout.flush()
    print(f"{len(mutations) - survived} of {len(mutations)} mutations were caught.")
    return min(survived, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
