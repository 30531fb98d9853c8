"""Tests that a real Prometheus answers the dashboard and the alerts for a running project."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from live_shop import until
from postgres_server import PostgresServer
from project import SECONDS, Project, export_turnover

from lakehouse.runtime.ports import free_port

pytestmark = [pytest.mark.jvm, pytest.mark.nightly, pytest.mark.timeout(900)]
DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "lakehouse.json").read_text())
TARGETS = [
    (panel["title"], target["expr"])
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", ())
]
Sample = tuple[dict[str, str], float]


class Prometheus:
    """A running server."""

    def __init__(self, port: int) -> None:
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=30)

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer, which must not be an error or have warnings."""
        answer = self._client.get(path, params=parameters).json()
        assert answer["status"] == "success", answer
        assert not answer.get("warnings"), answer
        return answer["data"]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def is_ready(self) -> bool:
        """Whether the server answers, and has read the target once."""
        try:
            if not self._client.get("../../-/ready").is_success:
                return False
        except httpx.TransportError:
            return False
        targets = self.get("/targets")["activeTargets"]
        return [target["health"] for target in targets] == ["up"]

    def samples(self, expression: str) -> list[Sample]:
        """Return the labels and values of an expression, as Grafana would ask for all instances."""
        for variable, value in (("$__rate_interval", "1m"), ("$instance", ".+")):
            expression = expression.replace(variable, value)
        found = self.get("/query", query=expression)["result"]
        return [(each["metric"], float(each["value"][1])) for each in found]


@contextmanager
def scraping(folder: Path, metrics_port: int) -> Iterator[Prometheus]:
    """Run Prometheus with the shipped configuration, on other ports and more often."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("Prometheus (Debian package prometheus) is not installed")
    shutil.copytree(DEPLOY / "prometheus", folder)
    config = yaml.safe_load((folder / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    [[job], port] = config["scrape_configs"], free_port()
    job["static_configs"] = [{"targets": [f"127.0.0.1:{metrics_port}"]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    options = {
        "config.file": folder / "prometheus.yml",
        "storage.tsdb.path": folder / "data",
        "web.listen-address": f"127.0.0.1:{port}",
    }
    command = [program, *(f"--{name}={value}" for name, value in options.items())]
    with (folder / "log").open("w") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log)
    server = Prometheus(port)
    try:
        until(server.is_ready, "the first scrape", 60)
        yield server
    finally:
        server.close()
        running.terminate()
        running.wait(60)


def test_prometheus_answers_each_panel_and_fires_the_alert_of_a_refused_record(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    project = Project(tmp_path / "bank", "--example", "bank")
    export_turnover(project, postgres.create_database())
    project.env["LAKEHOUSE_METRICS_PORT"] = str(free_port())
    sent = len(project.sample("transactions"))
    with (
        project.up(),
        scraping(tmp_path / "prometheus", int(project.env["LAKEHOUSE_METRICS_PORT"])) as server,
    ):
        project.run("publish", "--data", "sample")
        project.run("produce", "customers", "--raw", "{}")
        until(lambda: len(project.rows("silver.enriched_transactions")) == sent, "the sample")
        project.run("gold", "--available-now")
        until(lambda: not unanswered(server), "each panel", SECONDS)

        def shows(title: str, expected: dict[str, float], label: str = "") -> None:
            """Wait until the first expression of a panel has these values."""
            expression = dict(reversed(TARGETS))[title]

            def found() -> dict[str, float]:
                return {
                    labels.get(label, ""): value for labels, value in server.samples(expression)
                }

            until(lambda: expected.items() <= found().items(), f"{expected} in {title}", 60)

        shows("Not landed", {"": 0})
        shows("In quarantine", {"": 1})
        tables = ("bronze.customers", "silver.enriched_transactions", "silver.accounts_state")
        rows = {table: float(len(project.rows(table))) for table in tables}
        assert all(rows.values())
        shows("Rows of the tables", rows, "table")
        shows("Versions to send", {"export.turnover": 0}, "sink")

        asked = DASHBOARD["templating"]["list"][1]["query"]["query"]
        assert asked == "label_values(lakehouse_collector_up, instance)"
        named = {"match[]": "lakehouse_collector_up"}
        [instance] = server.get("/label/instance/values", **named)
        assert instance == f"127.0.0.1:{project.env['LAKEHOUSE_METRICS_PORT']}"

        # The record in quarantine is what an alert is for. Nothing else is wrong.
        until(lambda: firing(server) == ["LakehouseQuarantineGrows"], "its alert alone", 60)
        [group] = server.get("/rules")["groups"]
        healths = {(rule["health"], rule.get("lastError", "")) for rule in group["rules"]}
        assert healths == {("ok", "")}


def firing(server: Prometheus) -> list[str]:
    """The names of the alerts that fire."""
    [group] = server.get("/rules")["groups"]
    return [rule["name"] for rule in group["rules"] if rule["state"] == "firing"]


def unanswered(server: Prometheus) -> list[str]:
    """The panels one of whose expressions has no sample."""
    return [title for title, expression in TARGETS if not server.samples(expression)]
