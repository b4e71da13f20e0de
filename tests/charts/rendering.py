"""Renders the runtime charts with the real helm, as a release of plnt or by hand."""

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

from plnt.clients.helm import join_surrogates
from plnt.model.desired import Policy, Ref
from plnt.model.extra_values import merge_values
from plnt.model.helm_values import render_values
from plnt.model.messages import GpuClass, InstallRelease, Toleration, Tree
from plnt.model.options import Options
from plnt.model.workflow_run import Model, Quantization, Resources, Runtime, Spec
from plnt.resources import chart_dir
from plnt.sandbox.programs import Programs

Objects = dict[str, dict[str, Any]]

VOLUME = {"nfs": {"server": "weights.plnt.test", "path": "/"}}
EXTRA: dict[Runtime, dict[str, Any]] = {
    Runtime.VLLM: {"extraArgs": ["--max-model-len", "4096", "--enable-lora"]},
    Runtime.SGLANG: {"extraArgs": ["--context-length", "4096", "--trust-remote-code"]},
    Runtime.TGI: {"extraArgs": ["--max-total-tokens", "4096", "--trust-remote-code"]},
    Runtime.TRT_LLM: {"extraArgs": ["--max_seq_len", "4096", "--trust_remote_code"]},
}
"""Arguments that a user may add to each engine."""
COMMON_EXTRA: dict[str, Any] = {
    "extraEnv": [
        {"name": "NCCL_DEBUG", "value": "INFO"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "tokens", "key": "token"}}},
    ],
    "tolerations": [{"key": "spot", "operator": "Exists"}],
    "imagePullSecrets": [{"name": "registry"}],
}


def run_helm(programs: Programs, *arguments: str, values: dict[str, Any] | None = None) -> tuple[int, str, str]:
    """Run helm with values on its standard input; gives exit code, output and errors."""
    done = subprocess.run(
        [str(programs.helm), *arguments, *(["--values", "-"] if values is not None else [])],
        input=join_surrogates(json.dumps(values).encode()),
        capture_output=True,
        check=False,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def render(programs: Programs, chart: Path, values: dict[str, Any]) -> Objects:
    """Render a chart; gives kind -> object."""
    code, text, errors = run_helm(programs, "template", "rel", str(chart), "--kube-version", "1.34.0", values=values)
    assert code == 0, errors
    return {body["kind"]: body for body in yaml.safe_load_all(text) if body}


def read_engine(objects: Objects) -> dict[str, Any]:
    """Give the engine's container."""
    (engine,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert isinstance(engine, dict)
    return engine


def make_request(runtime: Runtime, quantization: Quantization, *, online: bool) -> InstallRelease:
    """Give what the workflow asks the deploy pool for; ``online``: the weights are quantized while they load."""
    return InstallRelease(
        ref=Ref(namespace="default", name="llama-3.1-70b"),
        base="llama-3-1-70b",
        release="llama-3-1-70b-0a1b2c3d",
        revision="0a1b2c3d",
        spec=Spec(
            runtime=runtime,
            model=Model(name="org/Llama-3.1-70B", storage_uri="s3://b/p", quantization=quantization),
            resources=Resources(gpu=2, gpu_class="nvidia.com/h100", memory_gib=160),
        ),
        options=Options(labels={"kueue.x-k8s.io/queue-name": "gpus"}),
        policy=Policy(),
        gpu_class=GpuClass(
            resource_name="nvidia.com/gpu",
            node_selector={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
            tolerations=[Toleration(key="nvidia.com/gpu")],
        ),
        tree=Tree(digest="d" * 64, bytes=1, proof="sha256", online_quantization=online),
        replicas=1,
    )


def make_values(runtime: Runtime, quantization: Quantization, *, online: bool, extra: bool) -> dict[str, Any]:
    """Give the values of a release of plnt."""
    own = render_values(make_request(runtime, quantization, online=online), VOLUME)
    return merge_values(own, {**COMMON_EXTRA, **EXTRA[runtime]}) if extra else own


def render_release(
    programs: Programs, runtime: Runtime, quantization: Quantization, *, online: bool = False, extra: bool = False
) -> Objects:
    """Render a release of plnt."""
    return render(programs, chart_dir(runtime), make_values(runtime, quantization, online=online, extra=extra))
