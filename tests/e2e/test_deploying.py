"""Tests that the manifests in deploy/kubernetes are valid.

What they and docs/deploying.md refer to must exist. There is no cluster, so nothing is applied.
"""

import copy
import importlib.metadata
import itertools
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pydantic
import pyspark
import pytest
import yaml
from typer.main import get_command

from lake.settings.settings import LakeSettings
from lake.streams.job import DELTA
from lakehouse import cli
from lakehouse.sql.guard import require_guard

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
VERSION = "1.34"
DOCS = (ROOT / "docs" / "deploying.md").read_text()
IMAGE = (FOLDER / "Dockerfile").read_text()

Manifest = dict[str, Any]
MANIFESTS: list[Manifest] = [
    each for file in sorted(FOLDER.glob("*.yaml")) for each in yaml.safe_load_all(file.read_text())
]
NAMED = {(each["kind"], each["metadata"]["name"]): each for each in MANIFESTS}
STREAMS = {name: NAMED["SparkApplication", f"lakehouse-{name}"] for name in ("bronze", "silver")}
GOLD = NAMED["StatefulSet", "lakehouse-gold"]
POD = GOLD["spec"]["template"]["spec"]
[CONTAINER] = POD["containers"]
SETTINGS: dict[str, str] = NAMED["ConfigMap", "lakehouse"]["data"]
# Spark's own code, which contains the names of its Kubernetes settings.
[JAR] = (Path(pyspark.__file__).parent / "jars").glob("spark-kubernetes_*.jar")
KUBERNETES = zipfile.ZipFile(JAR).read("org/apache/spark/deploy/k8s/Config$.class")


def check(manifest: Manifest) -> None:
    """Validate a manifest against the Kubernetes schemas or the operator's models.

    The models ignore unknown fields, so such a field is missing from the result of the conversion.
    """
    # To import these two takes longer than all tests of this file.
    from kubeflow_spark_api.models.spark_v1beta2_spark_application import (
        SparkV1beta2SparkApplication,
    )
    from kubernetes_validate import validate

    if manifest["kind"] != "SparkApplication":
        validate(manifest, VERSION, strict=True)
        return
    known = SparkV1beta2SparkApplication.from_dict(manifest)
    assert known is not None
    assert unknown(manifest, known.to_dict()) == []


def unknown(manifest: Any, known: Any, place: str = "") -> list[str]:
    """Return the paths at which a manifest differs from its converted form."""
    if isinstance(manifest, dict) and isinstance(known, dict):
        each = [unknown(manifest[k], known.get(k), f"{place}.{k}") for k in manifest]
    elif isinstance(manifest, list) and isinstance(known, list):
        pairs = itertools.zip_longest(manifest, known)
        each = [unknown(a, b, f"{place}.{n}") for n, (a, b) in enumerate(pairs)]
    else:
        return [] if manifest == known else [place]
    return [found for within in each for found in within]


def values(key: str, within: Any) -> list[Any]:
    """Return all values of a key anywhere in a manifest."""
    if isinstance(within, list):
        return [value for each in within for value in values(key, each)]
    if not isinstance(within, dict):
        return []
    own = [within[key]] if key in within else []
    return own + values(key, list(within.values()))


def flat(key: str, within: Any) -> list[Any]:
    """Return all members of the lists that are values of a key."""
    return [each for found in values(key, within) for each in found]


@pytest.mark.parametrize("manifest", NAMED.values(), ids=["-".join(name) for name in NAMED])
def test_a_manifest_is_valid(manifest: Manifest) -> None:
    check(manifest)


@pytest.mark.parametrize(
    ("kind", "name", "place"),
    [
        ("StatefulSet", "lakehouse-gold", ["spec", "template", "spec"]),
        ("NetworkPolicy", "lakehouse", ["spec"]),
        ("SparkApplication", "lakehouse-bronze", ["spec"]),
        ("SparkApplication", "lakehouse-silver", ["spec", "driver", "securityContext"]),
        ("SparkApplication", "lakehouse-silver", ["spec", "volumes", 0]),
    ],
)
def test_a_misspelt_field_is_refused(kind: str, name: str, place: list[Any]) -> None:
    manifest = within = copy.deepcopy(NAMED[kind, name])
    for step in place:
        within = within[step]
    within["misspelt"] = "x"
    from kubernetes_validate import ValidationError

    with pytest.raises((ValidationError, AssertionError), match="misspelt"):
        check(manifest)


def test_a_value_of_another_type_is_refused() -> None:
    manifest = copy.deepcopy(STREAMS["bronze"])
    manifest["spec"]["sparkConf"]["spark.sql.shuffle.partitions"] = 4
    with pytest.raises(pydantic.ValidationError, match="sparkConf"):
        check(manifest)


def test_settings_exist_and_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    settings = LakeSettings()
    given = {name.removeprefix("LAKEHOUSE_").lower() for name in SETTINGS}
    assert given <= LakeSettings.model_fields.keys()
    own = {each["name"]: each["value"] for each in CONTAINER["env"]}
    assert own.pop("SPARK_LOCAL_DIRS") == "/tmp"  # noqa: S108 - a volume of the pod
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    require_guard(LakeSettings())
    assert values("envFrom", MANIFESTS) == 3 * [[{"configMapRef": {"name": "lakehouse"}}]]
    assert settings.exit_when_given_up
    assert settings.connection.token_file == SETTINGS["LAKEHOUSE_PULSAR_TOKEN_FILE"]
    for grace in values("terminationGracePeriodSeconds", MANIFESTS):
        assert grace >= settings.stop_seconds + 10
    metrics = {settings.metrics_port, LakeSettings.model_fields["sql_port"].default}
    assert set(values("containerPort", MANIFESTS)) == metrics
    assert set(values("prometheus.io/port", MANIFESTS)) == {str(settings.metrics_port)}
    policy = NAMED["NetworkPolicy", "lakehouse"]["spec"]["ingress"]
    assert {each["port"] for each in flat("ports", policy)} == metrics


def test_spark_is_configured_as_outside_kubernetes() -> None:
    file = (ROOT / "lakehouse" / "runtime" / "conf" / "spark-defaults.conf").read_text()
    elsewhere = dict(re.findall(r"^(spark\.\S+)\s+(.+)$", file, re.MULTILINE))
    for name, manifest in STREAMS.items():
        given = manifest["spec"]["sparkConf"]
        own = {key for key in given if key.startswith("spark.kubernetes.")}
        assert {key: given[key] for key in given.keys() - own} == elsewhere, name
        assert [key for key in own if key.encode() not in KUBERNETES] == []


def test_jobs_and_their_image_match_the_lakehouse() -> None:
    for name, manifest in STREAMS.items():
        spec = manifest["spec"]
        assert (spec["type"], spec["mode"]) == ("Python", "cluster")
        assert spec["sparkVersion"] == pyspark.__version__
        job = spec["mainApplicationFile"].removeprefix("local:///app/")
        assert job == f"{name}/__main__.py"
        told = subprocess.run(
            [sys.executable, ROOT / job, "--help"], capture_output=True, check=True
        )
        assert b"--available-now" in told.stdout
    assert "WORKDIR /app\n" in IMAGE
    assert f"\nFROM apache/spark:{pyspark.__version__}-scala2.13-java17-python3-ubuntu\n" in IMAGE
    copied = re.findall(r"^COPY (.+) \./$", IMAGE, re.MULTILINE)
    assert all((ROOT / file).is_file() for line in copied for file in line.split())
    [image] = set(values("image", MANIFESTS))
    assert f"docker build -f deploy/kubernetes/Dockerfile -t {image} ." in IMAGE
    assert image in DOCS


def test_gold_runs_an_existing_command() -> None:
    program, *arguments = CONTAINER["args"]
    assert program == "lakehouse"
    command = get_command(cli.app)
    with command.make_context("lakehouse", list(arguments), resilient_parsing=True) as context:
        group = command.get_command(context, "gold")  # type: ignore[attr-defined]
        given = group.make_context("gold", arguments[1:]).params
        assert (given["every"], given["serve"]) == ("5m", True)


def test_no_two_drivers_or_builds_run_at_once() -> None:
    for manifest in STREAMS.values():
        assert "podName" not in manifest["spec"]["driver"]  # the operator's own, one per job
        restart = manifest["spec"]["restartPolicy"]
        assert restart["type"] == "Always"
        # Without these the operator cannot compute when to restart a job.
        assert restart["onFailureRetryInterval"] >= 1
        assert restart["onSubmissionFailureRetryInterval"] >= 1
    assert GOLD["spec"]["replicas"] == 1
    assert "podManagementPolicy" not in GOLD["spec"]


def test_everything_pods_refer_to_exists_or_is_created_in_the_docs() -> None:
    created = set(re.findall(r"kubectl create (configmap|secret generic) (\S+)", DOCS))
    assert set(values("secretName", MANIFESTS)) == {
        name for kind, name in created if kind == "secret generic"
    }
    topics = {each["name"] for each in values("configMap", MANIFESTS)}
    assert topics == {name for kind, name in created if kind == "configmap"}
    for claim in values("claimName", MANIFESTS):
        assert ("PersistentVolumeClaim", claim) in NAMED
    accounts = [*values("serviceAccount", MANIFESTS), *values("serviceAccountName", MANIFESTS)]
    assert {("ServiceAccount", name) for name in accounts} <= NAMED.keys()
    binding = NAMED["RoleBinding", "lakehouse-driver"]
    assert ("Role", binding["roleRef"]["name"]) in NAMED
    assert [("ServiceAccount", each["name"]) for each in binding["subjects"]] == [
        ("ServiceAccount", "lakehouse-driver")
    ]
    assert GOLD["spec"]["serviceName"] == "lakehouse-sql"
    service = NAMED["Service", "lakehouse-sql"]["spec"]
    assert service["selector"].items() <= GOLD["spec"]["template"]["metadata"]["labels"].items()
    for spec in (*(each["spec"] for each in STREAMS.values()), POD):
        volumes = {each["name"] for each in spec["volumes"]}
        assert {each["name"] for each in flat("volumeMounts", spec)} == volumes
    [home] = {
        each["mountPath"] for each in flat("volumeMounts", MANIFESTS) if each["name"] == "lake"
    }
    assert home == SETTINGS["LAKEHOUSE_HOME"]


def test_files_named_by_settings_are_mounted_where_they_are_read() -> None:
    keys = dict(re.findall(r"--from-file=(\w+(?:\.\w+)?)=(\S+)", DOCS))
    mounts = {
        each["name"]: each["mountPath"]
        for each in STREAMS["bronze"]["spec"]["driver"]["volumeMounts"]
    }
    token, topics = (
        Path(SETTINGS[f"LAKEHOUSE_{name}"]) for name in ("PULSAR_TOKEN_FILE", "TOPICS")
    )
    assert (str(token.parent), str(topics.parent)) == (mounts["pulsar"], mounts["topics"])
    assert {token.name, topics.name} <= keys.keys()
    assert (ROOT / keys[topics.name]).is_file()
    for manifest in STREAMS.values():  # executors read from the broker too
        executor = manifest["spec"]["executor"]["volumeMounts"]
        assert {"lake", "pulsar"} <= {each["name"] for each in executor}


def test_everything_the_docs_name_exists() -> None:
    paths = set(re.findall(r"`([a-z_]+/[\w./-]+\.\w+)`", DOCS)) - {"environment.tar.gz"}
    assert {"lakehouse/runtime/jars.lock", "silver/__main__.py"} <= paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert set(re.findall(r"--packages (\S+)", DOCS)) == {DELTA}
    assert set(re.findall(r"([\w.-]+)\.whl", DOCS)) == {
        f"orders_lakehouse-{importlib.metadata.version('orders-lakehouse')}-py3-none-any"
    }
    settings = set(re.findall(r"LAKEHOUSE_([A-Z_]+[A-Z])", DOCS))
    assert {name.lower() for name in settings} <= LakeSettings.model_fields.keys()
    listed = re.findall(r"`(\w+\.yaml)`", DOCS)
    assert {file.name for file in FOLDER.glob("*.yaml")} <= set(listed)
    alerts = (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text()
    assert "alert: LakehouseStreamStuck" in alerts


def test_pods_have_only_the_permissions_they_need() -> None:
    pods = [
        spec
        for each in STREAMS.values()
        for spec in (each["spec"]["driver"], each["spec"]["executor"])
    ]
    contexts = [spec["podSecurityContext"] for spec in pods] + [POD["securityContext"]]
    for context in contexts:
        assert context["runAsNonRoot"] is True
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    for context in [spec["securityContext"] for spec in (*pods, CONTAINER)]:
        assert context == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    [rule] = NAMED["Role", "lakehouse-driver"]["rules"]
    assert rule["resources"] == ["pods"]
    assert not NAMED["ServiceAccount", "lakehouse"]["automountServiceAccountToken"]
    text = "".join(file.read_text() for file in FOLDER.glob("*.yaml"))
    assert "secretKeyRef" not in text
    assert "LAKEHOUSE_PULSAR_TOKEN:" not in text
