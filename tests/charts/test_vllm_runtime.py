"""The vllm-runtime chart as helm renders it."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from kubernetes_validate import validate  # type: ignore[import-untyped]

from plnt.clients.helm import join_surrogates
from plnt.model.helm_values import render_values
from plnt.model.messages import InstallRelease
from plnt.model.workflow_run import Runtime
from plnt.resources import chart_dir
from plnt.sandbox.programs import Programs
from tests.fakes.releases import install_requests

CHART = chart_dir(Runtime.VLLM)
VOLUME = {"nfs": {"server": "weights.plnt.test", "path": "/"}}
VALUES: dict[str, Any] = {
    "fullnameOverride": "m-0a1b2c3d",
    "owner": "m",
    "revision": "0a1b2c3d",
    "labels": {"kueue.x-k8s.io/queue-name": "gpus"},
    "model": {"name": "org/model"},
    "weights": {"volume": VOLUME, "subPath": "trees/d1", "mountPath": "/models/model"},
    "resources": {"gpu": 2, "gpuResource": "nvidia.com/h100", "memoryGiB": 160},
}

pytestmark = pytest.mark.timeout(120)


def run_helm(programs: Programs, *arguments: str, values: dict[str, Any] | None = None) -> str:
    done = subprocess.run(
        [str(programs.helm), *arguments, *(["--values", "-"] if values is not None else [])],
        input=join_surrogates(json.dumps(values).encode()),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def render(programs: Programs, values: dict[str, Any], chart: Path = CHART) -> dict[str, dict[str, Any]]:
    """Render the chart; gives kind -> object."""
    text = run_helm(programs, "template", "rel", str(chart), "--kube-version", "1.34.0", values=values)
    return {body["kind"]: body for body in yaml.safe_load_all(text) if body}


def pod_spec(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = objects["Deployment"]["spec"]["template"]["spec"]
    return spec


def test_chart_passes_the_strict_lint(programs: Programs) -> None:
    assert "0 chart(s) failed" in run_helm(programs, "lint", "--strict", str(CHART))


def test_objects_are_valid_kubernetes(programs: Programs) -> None:
    objects = render(programs, VALUES)
    assert set(objects) == {"Deployment", "Service", "PodDisruptionBudget", "Pod"}
    for body in objects.values():
        validate(body, "1.34", strict=True)


def test_engine_gets_the_model_and_no_quantization(programs: Programs) -> None:
    (engine,) = pod_spec(render(programs, VALUES))["containers"]
    assert engine["image"] == "vllm/vllm-openai:v0.33.0"
    assert engine["command"] == ["vllm", "serve"]
    assert engine["args"] == [
        "/models/model",
        *("--served-model-name", "org/model"),
        *("--host", "0.0.0.0"),
        *("--port", "8000"),
        *("--tensor-parallel-size", "2"),
        *("--shutdown-timeout", "60"),
    ]
    assert {"name": "HF_HUB_OFFLINE", "value": "1"} in engine["env"]


def test_weights_are_mounted_read_only_from_the_tree(programs: Programs) -> None:
    spec = pod_spec(render(programs, VALUES))
    mount = next(one for one in spec["containers"][0]["volumeMounts"] if one["name"] == "weights")
    assert mount == {"name": "weights", "mountPath": "/models/model", "subPath": "trees/d1", "readOnly": True}
    assert {"name": "weights", **VOLUME} in spec["volumes"]


def test_size_is_left_to_the_scale_subresource(programs: Programs) -> None:
    spec = render(programs, VALUES)["Deployment"]["spec"]
    assert "replicas" not in spec
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_selector_is_the_release_alone_and_the_service_is_named_like_it(programs: Programs) -> None:
    objects = render(programs, VALUES)
    selector = {"app.kubernetes.io/instance": "m-0a1b2c3d"}
    service = objects["Service"]
    assert service["metadata"]["name"] == "m-0a1b2c3d"
    assert service["spec"]["selector"] == selector
    assert service["spec"]["ports"] == [{"name": "http", "port": 8000, "targetPort": "http", "protocol": "TCP"}]
    assert objects["Deployment"]["spec"]["selector"]["matchLabels"] == selector
    assert "app.kubernetes.io/instance" not in objects["Pod"]["metadata"]["labels"]


def test_pods_carry_owner_revision_and_passed_labels(programs: Programs) -> None:
    labels = render(programs, VALUES)["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert labels["plnt.work/owner"] == "m"
    assert labels["plnt.work/revision"] == "0a1b2c3d"
    assert labels["kueue.x-k8s.io/queue-name"] == "gpus"


def test_pod_asks_for_gpus_and_memory_and_holds_no_token(programs: Programs) -> None:
    spec = pod_spec(render(programs, VALUES))
    assert spec["containers"][0]["resources"] == {
        "requests": {"memory": "160Gi", "nvidia.com/h100": "2"},
        "limits": {"nvidia.com/h100": "2"},
    }
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False


@pytest.mark.parametrize(
    ("budget", "period", "threshold"), [(10, 1, 10), (180, 1, 180), (1800, 2, 900), (2701, 3, 901), (86_400, 10, 8640)]
)
def test_startup_probe_lasts_as_long_as_the_budget(
    programs: Programs, budget: int, period: int, threshold: int
) -> None:
    objects = render(programs, {**VALUES, "startupBudgetSeconds": budget})
    probe = pod_spec(objects)["containers"][0]["startupProbe"]
    assert (probe["periodSeconds"], probe["failureThreshold"]) == (period, threshold)
    assert objects["Deployment"]["spec"]["progressDeadlineSeconds"] == budget + 300


def test_grace_period_is_longer_than_sleep_and_drain(programs: Programs) -> None:
    spec = pod_spec(render(programs, {**VALUES, "preStopSeconds": 15, "shutdownTimeoutSeconds": 300}))
    assert spec["terminationGracePeriodSeconds"] == 325
    assert spec["containers"][0]["lifecycle"] == {"preStop": {"sleep": {"seconds": 15}}}


def test_unknown_value_is_refused(programs: Programs) -> None:
    done = subprocess.run(
        [str(programs.helm), "template", "rel", str(CHART), "--values", "-"],
        input=json.dumps({**VALUES, "replicas": 2}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "additional properties 'replicas' not allowed" in done.stderr


def test_packaged_chart_holds_the_shared_templates(programs: Programs, tmp_path: Path) -> None:
    run_helm(programs, "package", str(CHART), "--destination", str(tmp_path))
    (archive,) = tmp_path.glob("*.tgz")
    shutil.unpack_archive(archive, tmp_path / "out", filter="data")
    assert render(programs, VALUES, tmp_path / "out" / "vllm-runtime") == render(programs, VALUES)


@settings(
    max_examples=16,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(drawn=install_requests())
def test_any_legal_spec_renders_to_valid_objects(programs: Programs, drawn: InstallRelease) -> None:
    objects = render(programs, render_values(drawn, VOLUME), chart_dir(drawn.spec.runtime))
    for body in objects.values():
        validate(body, "1.34", strict=True)
    (engine,) = pod_spec(objects)["containers"]
    told = drawn.spec.model.name.replace("$(", "$$(") in engine["args"]
    assert told is (drawn.spec.runtime is not Runtime.TGI)
    assert engine["resources"]["requests"]["memory"] == f"{drawn.spec.resources.memory_gib}Gi"
    assert objects["Deployment"]["metadata"]["name"] == drawn.release
