"""Tests that the mutations still fit the product, and that each package has one.

`make mutations` runs them (`mutate.py`).
"""

import ast
from pathlib import Path

import pytest
from mutate import ROOT, Mutation, main, read_mutations

MUTATIONS = read_mutations()
PACKAGES = (
    *("pulsar_spark", "lake", "bronze", "silver", "gold", "lakehouse", "shop", "dbt_project"),
    "gold/package",
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[each.fault[:60] for each in MUTATIONS])
def test_a_mutation_fits_the_file_and_its_test_is_in_make_test(mutation: Mutation) -> None:
    applied = mutation.applied(ROOT)
    if mutation.file.endswith(".py"):
        ast.parse(applied)
    file, _, name = mutation.test.partition("::")
    tests = {
        node.name: " ".join(map(ast.unparse, node.decorator_list))
        for node in ast.parse((ROOT / file).read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    assert name in tests
    assert not tests[name].startswith("pytest.mark.nightly")


def test_each_package_has_a_mutation() -> None:
    assert len(MUTATIONS) >= 30
    assert len({each.fault for each in MUTATIONS}) == len(MUTATIONS)
    folders = {str(folder) for each in MUTATIONS for folder in Path(each.file).parents}
    assert {*PACKAGES} <= folders


def test_words_that_no_mutation_contains_run_no_test(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no such word"]) == 2
    assert "No mutation has a file or a test" in capsys.readouterr().out
