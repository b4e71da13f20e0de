import json
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft7Validator  # type: ignore[import-untyped]

from plnt.errors import SpecInvalid
from plnt.model.desired import Policy, Ref
from plnt.model.helm_values import choose_mount_path, render_values
from plnt.model.messages import GpuClass, InstallRelease, Toleration, Tree
from plnt.model.options import Options
from plnt.model.workflow_run import Model, Quantization, Resources, Runtime, Spec
from plnt.resources import chart_dir
from tests.fakes.releases import install_requests

VOLUME = {"nfs": {"server": "weights.plnt.test", "path": "/"}}
DEFAULTS = yaml.safe_load((chart_dir(Runtime.VLLM) / "values.yaml").read_text())
SCHEMA = Draft7Validator(json.loads((chart_dir(Runtime.VLLM) / "values.schema.json").read_text()))


def request(**changes: Any) -> InstallRelease:
    whole = InstallRelease(
        ref=Ref(namespace="default", name="m"),
        base="m",
        release="m-0a1b2c3d",
        revision="0a1b2c3d",
        spec=Spec(
            runtime=Runtime.VLLM,
            model=Model(name="meta-llama/Llama-3.1-70B-Instruct", storage_uri="s3://b/p"),
            resources=Resources(gpu=2, gpu_class="nvidia.com/h100", memory_gib=160),
        ),
        options=Options(labels={"kueue.x-k8s.io/queue-name": "gpus"}),
        policy=Policy(),
        gpu_class=GpuClass(resource_name="nvidia.com/h100", tolerations=[Toleration(key="nvidia.com/gpu")]),
        tree=Tree(digest="d" * 64, bytes=1, proof="sha256"),
        replicas=1,
    )
    return whole.model_copy(update=changes)


def test_values_say_what_the_spec_says() -> None:
    values = render_values(request(), VOLUME)
    assert values["fullnameOverride"] == "m-0a1b2c3d"
    assert values["model"] == {"name": "meta-llama/Llama-3.1-70B-Instruct"}
    assert values["weights"] == {
        "volume": VOLUME,
        "subPath": f"trees/{'d' * 64}",
        "mountPath": "/models/Llama-3.1-70B-Instruct",
    }
    assert values["resources"] == {"gpu": 2, "gpuResource": "nvidia.com/h100", "memoryGiB": 160}


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(install_requests())
def test_values_of_any_legal_spec_fit_the_schema(drawn: InstallRelease) -> None:
    assert [fault.message for fault in SCHEMA.iter_errors({**DEFAULTS, **render_values(drawn, VOLUME)})] == []


@pytest.mark.parametrize(("drain", "pre_stop", "shutdown"), [(0, 0, 60), (1, 1, 60), (30, 15, 60), (300, 15, 300)])
def test_shutdown_leaves_streams_in_flight_the_drain_time(drain: int, pre_stop: int, shutdown: int) -> None:
    values = render_values(request(policy=Policy(drain_seconds=drain)), VOLUME)
    assert (values["preStopSeconds"], values["shutdownTimeoutSeconds"]) == (pre_stop, shutdown)


def test_release_of_size_zero_is_made_paused() -> None:
    assert render_values(request(replicas=0), VOLUME)["paused"] is True
    assert render_values(request(replicas=1), VOLUME)["paused"] is False


def test_weights_that_are_stored_in_fp8_get_no_quantization_and_others_do() -> None:
    spec = request().spec
    model = spec.model.model_copy(update={"quantization": Quantization.FP8})
    asked = request(spec=spec.model_copy(update={"model": model}))
    assert render_values(asked, VOLUME)["quantization"] == ""
    online = asked.model_copy(update={"tree": asked.tree.model_copy(update={"online_quantization": True})})
    assert render_values(online, VOLUME)["quantization"] == "fp8"


@pytest.mark.parametrize("name", ["--trust-remote-code", "two\nlines", "a\x7fb"])
def test_model_name_that_no_engine_can_be_told_is_refused(name: str) -> None:
    spec = request().spec.model_copy(update={"model": Model(name=name, storage_uri="s3://b/p")})
    with pytest.raises(SpecInvalid, match=r"spec.model.name"):
        render_values(request(spec=spec), VOLUME)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("org/Model-1.0", "/models/Model-1.0"),
        ("model", "/models/model"),
        ("org/", "/models/weights"),
        ("org/..", "/models/weights"),
        ("a:b", "/models/weights"),
        ("org/two words", "/models/weights"),
        ("x" * 200, "/models/weights"),
    ],
)
def test_mount_path_is_the_names_last_segment_where_that_is_a_folder_name(name: str, path: str) -> None:
    assert choose_mount_path(name) == path
