"""Every runtime from its chart to an answer under the model's name, each with weights in another format."""

import json
from typing import Any

import aiohttp
import pytest

from plnt.clients.kube import CONFIG_MAPS, DEPLOYMENTS
from plnt.model import names
from plnt.model.options import VALUES_FROM
from plnt.model.status import Phase
from plnt.sandbox.kubelet import control
from tests.command_line import try_command
from tests.e2e.models import Models
from tests.e2e.place import Place
from tests.e2e.scenario import FULL_PASS, Scenario, Traffic

MODEL = "test/model"
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
LONGEST = "tgi" + ".x" * 125
"""A name of 253 characters, with dots."""


async def read_arguments(scenario: Scenario) -> list[str]:
    """Give the arguments of the one release's engine."""
    found, _ = await scenario.place.kube.list(
        DEPLOYMENTS, scenario.place.namespace, labels=f"{names.OWNER_LABEL}={scenario.base}"
    )
    (deployment,) = found
    arguments: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    return arguments


@pytest.mark.parametrize(
    ("name", "runtime", "quantization", "stored", "flags"),
    [
        pytest.param("vllm.1", "vllm", "fp8", None, ["--quantization", "fp8_per_tensor"], id="vllm"),
        pytest.param("3-sglang", "sglang", "gptq-4bit", GPTQ, [], id="sglang"),
        pytest.param("tgi.1", "tgi", "fp8", None, ["--quantize", "fp8"], id="tgi"),
        pytest.param("trt-llm-" + "x" * 60, "trt-llm", "fp16", None, [], id="trt-llm"),
    ],
)
async def test_runtime_serves_under_the_models_name_whatever_the_workflow_run_is_called(
    place: Place,
    models: Models,
    name: str,
    runtime: str,
    quantization: str,
    stored: dict[str, Any] | None,
    flags: list[str],
) -> None:
    scenario = Scenario(place, name)
    uri = await models.uri(quantization if stored else "good", quantization=stored)
    async with scenario.recorded():
        await scenario.apply(uri, runtime=runtime, model={"quantization": quantization})
        status = await scenario.wait_phase(Phase.READY, 1)
    assert scenario.phases(1) == FULL_PASS
    arguments = await read_arguments(scenario)
    assert arguments[len(arguments) - len(flags) :] == flags
    assert any("quant" in argument for argument in arguments) is bool(flags)
    traffic = Traffic(place.sandbox.site.envoy, status["endpoint"], MODEL)
    async with aiohttp.ClientSession() as session:
        answer = await traffic.send(session)
    assert answer.fault == ""
    (release,) = await scenario.releases()
    code, said = await run_helm_test(place, release)
    assert code == 0, said
    assert "Phase:          Succeeded" in said


async def test_helm_test_of_a_release_that_does_not_answer_fails(place: Place, models: Models) -> None:
    scenario = Scenario(place)
    await scenario.apply(await models.uri("good"))
    await scenario.wait_phase(Phase.READY, 1)
    (release,) = await scenario.releases()
    await scenario.kubectl("scale", f"deployment/{release}", "--replicas=0")
    await scenario.wait_for(
        lambda: scenario.kubectl("get", "pods", "-l", f"app.kubernetes.io/instance={release}", "-o", "name"),
        lambda found: not found,
        "end of the last pod",
    )
    code, said = await run_helm_test(place, release)
    assert code != 0, said
    assert f"{release}-test" in said
    assert "Phase:          Failed" in said


async def run_helm_test(place: Place, release: str) -> tuple[int, str]:
    """Run the test of a release's chart as a person does; gives helm's exit code and what it said."""
    command = [str(place.sandbox.programs.helm), "test", release, "--namespace", place.namespace, "--timeout", "60s"]
    code, out, err = await try_command(command, place.sandbox.environment)
    return code, out + err


@pytest.mark.parametrize(
    ("quantization", "remedy"),
    [
        ("fp8", "set spec.runtime to vllm"),
        ("awq-4bit", "modelopt w4a16_awq"),
        ("gptq-4bit", "set spec.runtime to vllm"),
    ],
)
async def test_what_trt_llm_cannot_load_is_refused_before_anything_is_pulled(
    place: Place, models: Models, quantization: str, remedy: str
) -> None:
    scenario = Scenario(place)
    async with scenario.recorded():
        await scenario.apply(await models.uri("good"), runtime="trt-llm", model={"quantization": quantization})
        status = await scenario.wait_phase(Phase.FAILED, 1, seconds=60)
    assert "spec.model.quantization" in status["lastError"]
    assert remedy in status["lastError"]
    assert Phase.PULLING_WEIGHTS not in scenario.phases(1)


async def test_given_up_runtime_is_said_in_a_condition_and_an_event(place: Place, models: Models) -> None:
    scenario = Scenario(place, LONGEST)
    await scenario.apply(await models.uri("good"), runtime="tgi", resources={"gpuClass": "plnt.test/none"})
    status = await scenario.wait_phase(Phase.FAILED, 1, seconds=60)
    said = next(one for one in status["conditions"] if one["type"] == "RuntimeDeprecated")
    assert said["status"] == "True"
    events = json.loads(await scenario.kubectl("get", "events", "-o", "json"))["items"]
    assert [one["type"] for one in events if one["reason"] == "RuntimeDeprecated"] == ["Warning"]


async def test_extra_values_reach_the_engine_and_another_name_is_another_revision(place: Place, models: Models) -> None:
    scenario = Scenario(place)
    await put_values(place, "extra-1", {"extraArgs": ["--max-model-len", "4096"]})
    await put_values(place, "extra-2", {"extraArgs": ["--max-model-len", "2048"]})
    uri = await models.uri("good")
    await scenario.apply(uri, annotations={VALUES_FROM: "extra-1"})
    await scenario.wait_phase(Phase.READY, 1)
    assert (await read_arguments(scenario))[-2:] == ["--max-model-len", "4096"]
    (first,) = await scenario.releases()
    before = (await scenario.status())["observedOptions"]
    await scenario.apply(uri, annotations={VALUES_FROM: "extra-2", "plnt.work/bake-seconds": "1"})
    await scenario.wait_status(
        lambda status: status["phase"] == Phase.READY and status["observedOptions"] != before, 60, "the second revision"
    )
    assert (await read_arguments(scenario))[-2:] == ["--max-model-len", "2048"]
    assert await scenario.releases() != {first}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (None, ["does not exist"]),
        ({"extraArgs": ["--port", "9"]}, ["extraArgs: --port is set by the chart"]),
        ({"resources": {"gpu": 8}}, ["resources is set by plnt"]),
        ({"extraArgs": [1]}, ["extraArgs", "string"]),
    ],
    ids=["missing", "own argument", "own value", "wrong type"],
)
async def test_extra_values_that_cannot_be_used_are_refused_by_name(
    place: Place, models: Models, values: dict[str, Any] | None, words: list[str]
) -> None:
    scenario = Scenario(place)
    if values is not None:
        await put_values(place, "extra", values)
    async with scenario.recorded():
        await scenario.apply(await models.uri("good"), annotations={VALUES_FROM: "extra"})
        status = await scenario.wait_phase(Phase.FAILED, 1, seconds=60)
    assert status["lastError"].startswith(f"SpecInvalid: annotation {VALUES_FROM}: ConfigMap {place.namespace}/extra")
    for word in words:
        assert word in status["lastError"]
    assert Phase.PULLING_WEIGHTS not in scenario.phases(1)


async def put_values(place: Place, name: str, values: dict[str, Any]) -> None:
    """Create a ConfigMap with chart values."""
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": place.namespace},
        "data": {"values.yaml": json.dumps(values)},
    }
    await place.kube.apply(CONFIG_MAPS, manifest)


async def test_model_larger_than_its_gpus_is_refused_and_a_tight_one_is_warned_about(
    place: Place, models: Models
) -> None:
    small = f"{place.gpu_class}-small"
    node = control.SimulatedNode(
        name=f"{place.namespace}-small", resources={small: "8"}, labels={"nvidia.com/gpu.memory": "40"}
    )
    control.change(place.sandbox.state.root, lambda before: before.with_nodes(node))
    scenario = Scenario(place)
    uri = await models.uri("heavy", megabytes=24)
    async with scenario.recorded():
        await scenario.apply(uri, resources={"gpuClass": small, "gpu": 1})
        status = await scenario.wait_phase(Phase.FAILED, 1, seconds=60)
    assert status["lastError"].startswith("SpecInvalid: spec.resources.gpu: the model takes at least")
    assert Phase.PULLING_WEIGHTS not in scenario.phases(1)
    generation = await scenario.apply(uri, resources={"gpuClass": small, "gpu": 2})
    status = await scenario.wait_phase(Phase.READY, generation)
    accepted = next(one for one in status["conditions"] if one["type"] == "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("True", "ValidWithWarnings")
    assert "memory is tight" in accepted["message"]
