"""Tests that the dashboard and the alerts query existing metrics, without a server.

Prometheus answers them in `test_prometheus.py`. Grafana itself is not run.
"""

import copy
import importlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml

from gold.metrics import OUTCOMES as BUILDS
from lake.observe.metrics import METRICS
from lake.settings.settings import LakeSettings
from silver.audit.totals import OUTCOMES as BOOKED

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "lakehouse.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
DOCS = (ROOT / "docs" / "operations.md").read_text()
OF_A_TARGET = {"instance", "job"}
VALUES = {"outcome": {*BOOKED, *BUILDS}, "query": {"silver"}, "job": {"lakehouse"}}
NEEDS = "grafana-foundation-sdk is for Python 3.11 and later"
VARIABLES = {"$__rate_interval": "5m", "$instance": ".+"}

SERIES = {"up": OF_A_TARGET}
for _metric in METRICS.values():
    _parts = ("_bucket", "_sum", "_count") if _metric.kind == "histogram" else ("",)
    for _part in _parts:
        _le = {"le"} if _part == "_bucket" else set()
        SERIES[_metric.name + _part] = {*_metric.labels, *OF_A_TARGET, *_le}

EXPRESSIONS = [
    *((rule["alert"], rule["expr"]) for rule in RULES),
    *((panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]),
]


def nodes(expression: str) -> list[Any]:
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    found: list[Any] = []
    promql.walk(promql.parse(expression), lambda node: found.append(node))
    return found


def selectors(found: list[Any]) -> Iterator[Any]:
    for node in found:
        if isinstance(node, promql.VectorSelector):
            yield node
        elif isinstance(node, promql.MatrixSelector):
            yield node.vector_selector


def complaints(expression: str) -> list[str]:
    """Return the metrics and labels in an expression that /metrics does not provide."""
    found = nodes(expression)
    names = {each.name for each in selectors(found)}
    labels = set().union(*(SERIES.get(name, set()) for name in names))
    said = [f"no metric {name}" for name in names - SERIES.keys()]
    for each in selectors(found):
        for matcher in each.matchers.matchers:
            if matcher.name not in SERIES.get(each.name, set()):
                said.append(f"{each.name} has no label {matcher.name}")
            elif matcher.name in VALUES and matcher.value not in VALUES[matcher.name]:
                said.append(f"{each.name} has no {matcher.name} {matcher.value}")
    for node in found:
        modifier = getattr(node, "modifier", None)
        named = getattr(modifier, "matching", modifier)
        said += [f"no label {each}" for each in getattr(named, "labels", ()) if each not in labels]
    return said


@pytest.mark.parametrize(
    ("where", "expression"), EXPRESSIONS, ids=[name for name, _ in EXPRESSIONS]
)
def test_each_expression_uses_existing_metrics_and_labels(where: str, expression: str) -> None:
    assert complaints(expression) == [], where


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("lakehouse_lag", "no metric lakehouse_lag"),
        ("lakehouse_batch_seconds", "no metric lakehouse_batch_seconds"),
        ('lakehouse_lag_messages{tpoic="x"}', "lakehouse_lag_messages has no label tpoic"),
        ("sum by (query) (rate(lakehouse_landed_messages_total[5m]))", "no label query"),
        ("lakehouse_broker_up and on (topic) up", "no label topic"),
        (
            'lakehouse_refined_messages_total{outcome="refused"}',
            "lakehouse_refined_messages_total has no outcome refused",
        ),
    ],
)
def test_the_check_can_fail(expression: str, said: str) -> None:
    assert complaints(expression) == [said]


def test_each_alert_says_what_happened_what_it_means_and_what_to_do() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES) >= 10
    for rule in RULES:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert set(rule["annotations"]) == {"summary", "meaning", "action"}
        assert all(len(text) > 20 for text in rule["annotations"].values()), rule["alert"]
        found = SERIES.keys() & {each.name for each in selectors(nodes(rule["expr"]))}
        known = set().union(*(SERIES[name] for name in found))
        used = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        assert used <= known, rule["alert"]


def test_commands_settings_and_views_named_by_alerts_exist() -> None:
    text = (PROMETHEUS / "alerts.yml").read_text() + (PROMETHEUS / "prometheus.yml").read_text()
    settings = {name.lower() for name in re.findall(r"LAKEHOUSE_([A-Z_]+)", text)}
    assert settings <= set(LakeSettings.model_fields)
    assert set(re.findall(r"`lakehouse ([a-z]+)", text)) == {
        "up",
        "quarantine",
        "gold",
        "sql",
        "status",
    }
    assert "## Heavy keys" in DOCS


def test_the_example_scrapes_the_port_of_the_docs() -> None:
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    assert [(PROMETHEUS / name).is_file() for name in config["rule_files"]] == [True]
    [job] = config["scrape_configs"]
    [[target]] = [each["targets"] for each in job["static_configs"]]
    assert job["job_name"] == "lakehouse"
    assert f"LAKEHOUSE_METRICS_PORT={target.rpartition(':')[2]}" in DOCS


def test_each_alert_is_made_to_fire() -> None:
    """By `alerts_test.yml`, which promtool runs below."""
    tests = yaml.safe_load((ROOT / "tests" / "e2e" / "alerts_test.yml").read_text())["tests"]
    fired = re.findall(r'alertname="(\w+)"', str(tests))
    assert {*fired} == {rule["alert"] for rule in RULES}


def test_each_metric_is_shown_or_alerted_on() -> None:
    asked = {each.name for _, text in EXPRESSIONS for each in selectors(nodes(text))}
    unseen = [name for name in METRICS if not any(each.startswith(name) for each in asked)]
    assert unseen == []


def test_panels_are_explained_and_do_not_overlap() -> None:
    every = DASHBOARD["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    assert all(panel["title"] and panel["description"].endswith(".") for panel in PANELS)
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in PANELS)
    places = [panel["gridPos"] for panel in every]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    for a, b in combinations(places, 2):
        apart_x = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        apart_y = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert apart_x or apart_y


def unknown(document: Any) -> list[str]:
    """Return the places of a dashboard that Grafana's own classes do not keep as they are."""
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard", reason=NEEDS)
    cog = pytest.importorskip("grafana_foundation_sdk.cog", reason=NEEDS)
    plugins, encoder = (
        importlib.import_module(f"{cog.__name__}.{n}") for n in ("plugins", "encoder")
    )
    plugins.register_default_plugins()
    known = encoder.JSONEncoder().encode(models.Dashboard.from_json(document))

    def differences(given: Any, kept: Any, place: str) -> Iterator[str]:
        if isinstance(given, dict) and isinstance(kept, dict):
            for name, value in given.items():
                yield from differences(value, kept.get(name), f"{place}.{name}")
        elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
            for number, pair in enumerate(zip(given, kept, strict=True)):
                yield from differences(*pair, f"{place}[{number}]")
        elif given != kept:
            yield place

    return [*differences(document, json.loads(known), "")]


def test_the_dashboard_has_only_what_grafanas_schema_knows() -> None:
    assert unknown(DASHBOARD) == []
    wrong = copy.deepcopy(DASHBOARD)
    wrong["refreshes"] = "15s"
    wrong["panels"][1]["gridPos"]["width"] = 4
    assert {*unknown(wrong)} == {".refreshes", ".panels[1].gridPos.width"}


def test_the_docs_list_each_metric_as_declared() -> None:
    rows = re.findall(
        r"^\| `(lakehouse_\w+)` \| ([^|]*) \| ([^|]*) \| (.+) \|$", DOCS, re.MULTILINE
    )
    listed = {
        name: (kind, labels.split(", ") if labels else [], said)
        for name, kind, labels, said in rows
    }
    assert listed == {
        name: (metric.kind, list(metric.labels), metric.meaning) for name, metric in METRICS.items()
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "config", PROMETHEUS / "prometheus.yml"),
        ("check", "rules", PROMETHEUS / "alerts.yml"),
        ("test", "rules", ROOT / "tests" / "e2e" / "alerts_test.yml"),
    ],
    ids=["configuration", "rules", "what fires"],
)
def test_promtool_agrees(arguments: tuple[str, str, Path]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool (Debian package prometheus) is not installed")
    done = subprocess.run([promtool, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
