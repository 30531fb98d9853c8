"""Tests the source as a separate distribution, in an environment with nothing else."""

import email
import importlib.metadata
import os
import re
import subprocess
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from topic import LiveTopic, Outgoing
from wheels import built, environment

from lake.settings.settings import LakeSettings, load_settings
from lakehouse.runtime.broker import Broker
from lakehouse.runtime.java import java_home

PACKAGE = Path(__file__).parents[2] / "pulsar_spark"

pytestmark = pytest.mark.nightly  # an installation of Spark


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel and its locked dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel = built(PACKAGE, folder)
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [name for name in archive.namelist() if name.endswith("/METADATA")]
        depends = email.message_from_bytes(archive.read(metadata)).get_all("Requires-Dist", [])
    (folder / "locked.txt").write_text("".join(locked(depends)))
    how = ("--link-mode", "symlink")
    return environment(folder / "environment", folder / "locked.txt", (wheel, *how))


def locked(depends: Iterable[str]) -> Iterator[str]:
    """Yield the part of the project's lock that the requirements need; all of it is installed."""
    needed = set()
    todo = [Requirement(each) for each in depends]
    while todo:
        each = todo.pop()
        name = canonicalize_name(each.name)
        if (each.marker and not each.marker.evaluate({"extra": ""})) or name in needed:
            continue
        needed.add(name)
        todo += map(Requirement, importlib.metadata.requires(each.name) or [])
    text = (PACKAGE.parent / "requirements.lock").read_text()
    for block in re.findall(r"^\S.*(?:\n\s+.*)*\n", text, re.MULTILINE):
        if block.partition("==")[0] in needed:
            yield block


def run(python: Path, folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script with a Java that may lack a module that Spark's launcher asks for."""
    path = f"{python.parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "JAVA_HOME": str(java_home(load_settings()))}
    return subprocess.run(
        [python, "-c", script],
        cwd=folder,
        env={**environment, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_example_lands_a_topic_with_plain_spark(
    python: Path, broker: Broker, settings: LakeSettings, tmp_path: Path
) -> None:
    topic = LiveTopic(settings, "plain", 2)
    sent = topic.send(Outgoing(f"value {n}".encode(), key=str(n)) for n in range(50))
    [example] = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)
    connection = settings.connection
    for here, there in (
        ("pulsar://localhost:6650", connection.service_url),
        ("http://localhost:8080", connection.admin_url),
        ("persistent://public/default/orders", topic.name),
    ):
        assert here in example
        example = example.replace(here, there)
    ended = run(python, tmp_path, example)
    assert ended.returncode == 0, ended.stderr[-3000:]
    rows = pq.read_table(tmp_path / "orders").to_pylist()
    names = ("partition", "ledger", "entry", "key", "payload")
    landed = sorted(tuple(row[name] for name in names) for row in rows)
    assert landed == sorted(tuple(getattr(each, name) for name in names) for each in sent)


@pytest.mark.parametrize(
    ("extra", "library", "options"),
    [
        ("losses", "deltalake", {"failOnDataLoss": "false", "dataLossTable": "losses"}),
        ("losses", "deltalake", {"incompleteTable": "incomplete"}),
        ("oauth2", "httpx_auth", {"oauth2IssuerUrl": "https://a", "oauth2KeyFile": "key.json"}),
    ],
)
def test_an_option_whose_library_is_missing_says_what_to_install(
    python: Path, tmp_path: Path, extra: str, library: str, options: dict[str, str]
) -> None:
    required = {"serviceUrl": "pulsar://b:6650", "adminUrl": "http://b:8080"}
    given = {**required, "topic": "persistent://a/b/c", **options}
    ended = run(
        python,
        tmp_path,
        "from pulsar_spark.errors import SettingsError\n"
        "from pulsar_spark.options import PulsarOptions\n"
        f"try: PulsarOptions.parse({given!r})\n"
        "except SettingsError as error: print(error)",
    )
    assert ended.stdout == (
        f"Option '{list(options)[-1]}' needs the library {library}, which is not installed. "
        f"Install it with `pip install 'pulsar-spark[{extra}]'`.\n"
    ), ended.stderr
