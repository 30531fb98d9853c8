"""Tests the lists of functions against pyspark's own sections and sqlglot's classes."""

import inspect
import re

import pyspark.sql.functions
import pytest
import sqlglot
from sqlglot import exp

from gold.kept.query import is_aggregate
from lake.kept.functions import AGGREGATES, GENERATORS, OF_A_WINDOW, OF_ONE_ROW, UNORDERED

UNSTABLE = (
    *("rand", "randn", "randstr", "uniform", "uuid", "shuffle", "now", "curdate", "current_date"),
    *("current_timestamp", "localtimestamp", "current_user", "session_user", "input_file_name"),
    *("monotonically_increasing_id", "spark_partition_id", "java_method", "reflect"),
    *("try_reflect", "first", "last", "any_value", "first_value", "last_value"),
)


def sections() -> dict[str, set[str]]:
    """Pyspark's names of functions, by the comments that divide its list of them."""
    found: dict[str, set[str]] = {}
    section = ""
    for line in inspect.getsource(pyspark.sql.functions).splitlines():
        if head := re.match(r"\s+# ([A-Z][\w ]+ Functions)$", line):
            section = head[1]
        elif name := re.match(r'\s+(?:# )?"(\w+)"', line):
            found.setdefault(section, set()).add(name[1])
    return found


def test_each_function_is_in_the_section_of_its_kind() -> None:
    of = sections()
    ours = {"Aggregate Functions": AGGREGATES, "Window Functions": OF_A_WINDOW}
    for section, names in ours.items():
        assert names - {"percentile_cont", "percentile_disc"} <= of[section]
        assert not OF_ONE_ROW & of[section]
    assert of["Generator Functions"] >= GENERATORS
    assert not OF_ONE_ROW & of["Generator Functions"]


@pytest.mark.parametrize("name", sorted(AGGREGATES))
def test_an_aggregate_is_recognised_when_it_is_called(name: str) -> None:
    calls = [f"{name}({given})" for given in ("x", "x, y", "x, 0.5")]
    calls.append(f"{name}(0.5) within group (order by x)")
    found = []
    for call in calls:
        try:
            found.append(sqlglot.parse_one(f"select {call} from t", read="spark").selects[0])
        except sqlglot.ParseError:
            continue
    assert found
    assert all(any(map(is_aggregate, each.find_all(exp.Func))) for each in found)


@pytest.mark.parametrize("name", UNSTABLE)
def test_a_function_with_another_value_in_each_run_is_not_listed(name: str) -> None:
    assert name not in OF_ONE_ROW | AGGREGATES | OF_A_WINDOW | GENERATORS | UNORDERED
