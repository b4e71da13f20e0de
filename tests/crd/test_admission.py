"""What a real API server accepts and refuses, and what it tells the user."""

import copy
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from plnt.sandbox.running import Sandbox

ROOT = Path(__file__).parents[2]
CRD = ROOT / "plnt/operators/crds/workflowrun.yaml"
EXAMPLE: dict[str, Any] = yaml.safe_load((ROOT / "examples/llama-3.1-70b-instruct.yaml").read_text())

REFUSED = [
    pytest.param(
        {"model.storageUri": "http://h/x"}, "spec.model.storageUri", "s3://, gs://, oci:// or hf://", id="http"
    ),
    pytest.param({"model.storageUri": "s3://"}, "spec.model.storageUri", "must name a bucket", id="no bucket"),
    pytest.param(
        {"model.storageUri": "s3://u:p@b/k"}, "spec.model.storageUri", "no user name or password", id="userinfo"
    ),
    pytest.param({"model.storageUri": "hf://u:hf_x@o/r"}, "spec.model.storageUri", "no user name", id="hf userinfo"),
    pytest.param({"model.storageUri": "s3://b/k?X-Amz-Signature=1"}, "spec.model.storageUri", "no query", id="query"),
    pytest.param({"model.storageUri": "s3://b/a b"}, "spec.model.storageUri", "blank", id="blank"),
    pytest.param({"model.storageUri": "s3://b/" + "k" * 2048}, "spec.model.storageUri", "2048", id="long URI"),
    pytest.param({"canary.trafficPercent": 0}, "spec.canary.trafficPercent", "greater than or equal to 1", id="0 %"),
    pytest.param({"canary.trafficPercent": 101}, "spec.canary.trafficPercent", "less than or equal to 100", id="101 %"),
    pytest.param(
        {"replicas": {"min": 5, "max": 4}}, "spec.replicas.min", "greater than replicas.max", id="min over max"
    ),
    pytest.param({"replicas": {"min": 5}}, "spec.replicas.min", "max 3", id="min over default max"),
    pytest.param({"replicas": {"min": -1}}, "spec.replicas.min", "greater than or equal to 0", id="negative min"),
    pytest.param({"replicas": {"max": 0}}, "spec.replicas.max", "greater than or equal to 1", id="max 0"),
    pytest.param({"runtime": "ollama"}, "spec.runtime", '"vllm"', id="runtime"),
    pytest.param({"model.quantization": "int8"}, "spec.model.quantization", '"awq-4bit"', id="quantization"),
    pytest.param({"resources.gpu": 0}, "spec.resources.gpu", "greater than or equal to 1", id="gpu 0"),
    pytest.param({"resources.gpu": 1.5}, "spec.resources.gpu", "integer", id="gpu 1.5"),
    pytest.param({"resources.gpu": 2**63}, "spec.resources.gpu", "integer", id="gpu beyond int64"),
    pytest.param({"resources.gpuClass": "h100"}, "spec.resources.gpuClass", "should match", id="unqualified class"),
    pytest.param({"resources.memoryGiB": 0}, "spec.resources.memoryGiB", "greater than or equal to 1", id="memory 0"),
    pytest.param({"resources.memoryGiB": None}, "spec.resources.memoryGiB", "Required value", id="memory missing"),
    pytest.param({"autoscaling.targetTokensPerSecond": 0}, "targetTokensPerSecond", "equal to 1", id="target 0"),
    pytest.param({"canary.smokeTest.prompts": 0}, "spec.canary.smokeTest.prompts", "equal to 1", id="prompts 0"),
    pytest.param({"canary.smokeTest.ttftBudgetMs": 0}, "spec.canary.smokeTest.ttftBudgetMs", "equal to 1", id="ttft 0"),
    pytest.param({"canary.smokeTest.tpotBudgetMs": 0}, "spec.canary.smokeTest.tpotBudgetMs", "equal to 1", id="tpot 0"),
    pytest.param({"canary.wait": 1}, "spec.canary.wait", "unknown field", id="unknown field"),
    pytest.param({"model.name": ""}, "spec.model.name", "at least 1 chars", id="empty name"),
]

ACCEPTED = [
    pytest.param({"model.storageUri": uri}, id=uri)
    for uri in (
        "s3://b",
        "s3://b/p/",
        "s3://b/a@b",
        "gs://bucket/models/llama",
        "oci://r.example.com:5000/models/llama:v1@sha256:" + "a" * 64,
        "hf://meta-llama/Llama-3.1-70B-Instruct@refs/pr/1",
    )
] + [
    pytest.param({"canary.smokeTest.prompts": 2000}, id="prompts for Validating to refuse"),
    pytest.param({"replicas.max": 2**40}, id="max for Validating to refuse"),
    pytest.param({"resources.gpu": 2**40, "resources.memoryGiB": 2**40}, id="size for Validating to refuse"),
    pytest.param({"replicas": {"min": 0, "max": 1}}, id="min 0"),
    pytest.param({"canary.trafficPercent": 100}, id="100 %"),
]


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    """Give the example with each dotted path of its spec set; None removes it."""
    manifest = copy.deepcopy(EXAMPLE)
    for path, value in changes.items():
        *parents, last = path.split(".")
        part = manifest["spec"]
        for parent in parents:
            part = part[parent]
        if value is None:
            del part[last]
        else:
            part[last] = value
    return manifest


class Cluster:
    """kubectl against the API server that holds the CRD."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.kubectl = [str(sandbox.programs.kubectl), "--kubeconfig", str(sandbox.kubeconfig)]

    def run(self, *arguments: str, manifest: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.kubectl, *arguments],
            input=None if manifest is None else json.dumps(manifest),
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def cluster(control_plane: Sandbox) -> Cluster:
    cluster = Cluster(control_plane)
    for arguments in (["apply", "-f", str(CRD)], ["wait", "--for=condition=Established", "crd/workflowruns.plnt.work"]):
        done = cluster.run(*arguments)
        assert done.returncode == 0, done.stderr
    return cluster


@pytest.mark.parametrize(("changes", "field", "words"), REFUSED)
def test_api_server_refuses_and_names_the_field(
    cluster: Cluster, changes: dict[str, Any], field: str, words: str
) -> None:
    done = cluster.run("create", "--dry-run=server", "-f", "-", manifest=changed(changes))
    assert done.returncode != 0
    assert field in done.stderr
    assert words in done.stderr


@pytest.mark.parametrize("changes", ACCEPTED)
def test_api_server_accepts(cluster: Cluster, changes: dict[str, Any]) -> None:
    done = cluster.run("create", "--dry-run=server", "-f", "-", manifest=changed(changes))
    assert done.returncode == 0, done.stderr


def test_userinfo_is_not_echoed_when_refused(cluster: Cluster) -> None:
    done = cluster.run(
        "create", "--dry-run=server", "-f", "-", manifest=changed({"model.storageUri": "s3://key:geheim@b/k"})
    )
    assert "geheim" not in done.stderr


def test_defaults_are_filled_in(cluster: Cluster) -> None:
    manifest = changed({"model.quantization": None, "replicas": None, "canary": None, "autoscaling": None})
    done = cluster.run("create", "--dry-run=server", "-o", "json", "-f", "-", manifest=manifest)
    spec = json.loads(done.stdout)["spec"]
    assert spec["model"]["quantization"] == "fp16"
    assert spec["replicas"] == {"min": 1, "max": 3}
    assert spec["canary"] == {"trafficPercent": 5, "smokeTest": {"prompts": 10}}


def test_listing_has_the_documented_columns_and_selectors(cluster: Cluster) -> None:
    made = cluster.run("apply", "-f", "-", manifest=EXAMPLE)
    assert made.returncode == 0, made.stderr
    try:
        table = cluster.run("get", "wfr").stdout.splitlines()
        assert table[0].split() == ["NAME", "RUNTIME", "GPU", "PHASE", "ENDPOINT", "AGE"]
        assert table[1].split()[:3] == ["llama-3.1-70b-instruct", "vllm", "nvidia.com/h100"]
        assert cluster.run("get", "plnt", "--field-selector", "spec.runtime=tgi", "-o", "name").stdout == ""
        assert cluster.run("get", "plnt", "--field-selector", "spec.runtime=vllm", "-o", "name").stdout != ""
    finally:
        cluster.run("delete", "wfr", EXAMPLE["metadata"]["name"])


@pytest.mark.parametrize("field", ["spec.model.storageUri", "spec.resources.memoryGiB", "status.lastError"])
def test_explain_describes_fields(cluster: Cluster, field: str) -> None:
    described = cluster.run("explain", f"workflowrun.{field}").stdout
    assert "DESCRIPTION:" in described
    assert "<empty>" not in described
