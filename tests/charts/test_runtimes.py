"""The four runtime charts as helm renders them, for every quantization and with a user's extra values."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_validate import SchemaNotFoundError, validate  # type: ignore[import-untyped]

from plnt.model.checkpoint import list_formats
from plnt.model.workflow_run import Quantization, Runtime
from plnt.resources import chart_dir
from plnt.sandbox.engine.command_line import TABLES, Engine, UsageInvalid, parse_options, recognise
from plnt.sandbox.engine.launch import read_launch
from plnt.sandbox.kubelet.images import Program, find_image
from plnt.sandbox.programs import Programs
from tests.charts import golden_files, values_table
from tests.charts.rendering import EXTRA, Objects, read_engine, render, render_release, run_helm

pytestmark = pytest.mark.timeout(120)

ONLINE = {
    Runtime.VLLM: ["--quantization", "fp8_per_tensor"],
    Runtime.SGLANG: ["--quantization", "fp8"],
    Runtime.TGI: ["--quantize", "fp8"],
}
CELLS = [
    pytest.param(runtime, quantization, extra, id=f"{runtime}-{quantization}-{'values-from' if extra else 'defaults'}")
    for runtime in Runtime
    for quantization in list_formats(runtime)
    for extra in (False, True)
]
KINDS = {"Deployment", "Service", "PodDisruptionBudget", "Pod"}


def plain(**values: Any) -> dict[str, Any]:
    return {"model": {"name": "m"}, **values}


@pytest.mark.parametrize("runtime", list(Runtime))
def test_chart_passes_the_strict_lint(programs: Programs, runtime: Runtime) -> None:
    code, said, errors = run_helm(programs, "lint", "--strict", str(chart_dir(runtime)), values=plain())
    assert code == 0, said + errors


@pytest.mark.parametrize(("runtime", "quantization", "extra"), CELLS)
def test_objects_are_valid_kubernetes_and_the_engine_takes_its_command(
    programs: Programs,
    runtime: Runtime,
    quantization: Quantization,
    extra: bool,
    tmp_path: Path,
) -> None:
    online = quantization is Quantization.FP8 and runtime in ONLINE
    objects = render_release(programs, runtime, quantization, online=online, extra=extra)
    assert set(objects) == KINDS | ({"ConfigMap"} if runtime is Runtime.TRT_LLM else set())
    for body in objects.values():
        validate(body, "1.34", strict=True)
    assert has_words(read_engine(objects)["args"], ONLINE.get(runtime, ["no flag"])) is online
    launch = read_launch_of(objects, tmp_path)
    assert (launch.tensor_parallel, launch.port, launch.host) == (2, 8000, "127.9.0.1")
    assert launch.metrics
    assert launch.max_length == (4096 if extra else None)


def has_words(arguments: list[str], words: list[str]) -> bool:
    return any(arguments[at : at + len(words)] == words for at in range(len(arguments)))


def read_launch_of(objects: Objects, folder: Path) -> Any:
    """Start nothing, but read the command as the engine's own parser would, its files included."""
    engine = read_engine(objects)
    for name, text in objects.get("ConfigMap", {}).get("data", {}).items():
        (folder / name).write_text(text)
    words = [word.replace("/etc/engine", str(folder)) for word in (*engine["command"], *engine["args"])]
    environ = {one["name"]: one.get("value", "") for one in engine["env"]} | {"PLNT_STUB_LISTEN": "127.9.0.1"}
    found = recognise(words)
    assert found is not None
    return read_launch(parse_options(*found, environ), environ)


@pytest.mark.parametrize("runtime", list(Runtime))
def test_served_name_is_the_models_where_the_engine_can_be_told(
    programs: Programs, runtime: Runtime, tmp_path: Path
) -> None:
    objects = render_release(programs, runtime, Quantization.FP16)
    names = read_launch_of(objects, tmp_path).names
    assert names == (("/models/Llama-3.1-70B",) if runtime is Runtime.TGI else ("org/Llama-3.1-70B",))


@pytest.mark.parametrize("runtime", list(Runtime))
def test_image_is_one_whose_flags_the_stub_knows(programs: Programs, runtime: Runtime) -> None:
    image = find_image(read_engine(render_release(programs, runtime, Quantization.FP16))["image"])
    assert image is not None
    assert image.program is Program.ENGINE


@pytest.mark.parametrize(("tag", "named"), [("1.2.1", False), ("1.3.0rc5", True), ("nightly", True), ("v1.4.0", True)])
def test_trt_llm_gets_the_served_name_from_the_version_on_that_knows_it(
    programs: Programs,
    tag: str,
    named: bool,
) -> None:
    objects = render(programs, chart_dir(Runtime.TRT_LLM), plain(image={"tag": tag}))
    assert ("--served_model_name" in read_engine(objects)["args"]) is named


@pytest.mark.parametrize(
    ("runtime", "readiness", "liveness", "seconds", "grace"),
    [
        (Runtime.VLLM, "/health", "/health", 10, 85),
        (Runtime.SGLANG, "/ready", "/health", 25, 85),
        (Runtime.TGI, "/health", "/health", 10, 115),
        (Runtime.TRT_LLM, "/health", "/health", 10, 85),
    ],
)
def test_probes_and_grace_period_follow_the_engine(
    programs: Programs, runtime: Runtime, readiness: str, liveness: str, seconds: int, grace: int
) -> None:
    objects = render_release(programs, runtime, Quantization.FP16)
    engine = read_engine(objects)
    assert engine["startupProbe"]["httpGet"] == {"path": readiness, "port": "http"}
    assert engine["readinessProbe"]["httpGet"] == {"path": readiness, "port": "http"}
    assert engine["livenessProbe"]["httpGet"] == {"path": liveness, "port": "http"}
    assert engine["livenessProbe"]["timeoutSeconds"] == seconds
    assert objects["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == grace


@pytest.mark.parametrize("runtime", list(Runtime))
def test_pod_has_no_rights_that_its_image_can_do_without(programs: Programs, runtime: Runtime) -> None:
    objects = render_release(programs, runtime, Quantization.FP16)
    pod, engine = objects["Deployment"]["spec"]["template"]["spec"], read_engine(objects)
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["securityContext"].get("runAsNonRoot", False) is (runtime is Runtime.VLLM)
    assert engine["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    weights = next(one for one in engine["volumeMounts"] if one["name"] == "weights")
    assert weights["readOnly"] is True
    assert weights["subPath"] == f"trees/{'d' * 64}"


@pytest.mark.parametrize("runtime", list(Runtime))
def test_extra_values_come_after_what_the_chart_sets(programs: Programs, runtime: Runtime) -> None:
    objects = render_release(programs, runtime, Quantization.FP16, extra=True)
    words = EXTRA[runtime]["extraArgs"]
    assert read_engine(objects)["args"][-len(words) :] == words
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    assert [one["key"] for one in pod["tolerations"]] == ["nvidia.com/gpu", "spot"]
    assert read_engine(objects)["env"][-2]["name"] == "NCCL_DEBUG"


def refuse(programs: Programs, runtime: Runtime, values: dict[str, Any]) -> str:
    code, _, errors = run_helm(programs, "template", "rel", str(chart_dir(runtime)), values=values)
    assert code != 0
    return errors


@pytest.mark.parametrize("runtime", list(Runtime))
def test_what_the_chart_sets_is_refused_by_name(programs: Programs, runtime: Runtime) -> None:
    engine = read_engine(render_release(programs, runtime, Quantization.FP8, online=runtime in ONLINE))
    flags = [word for word in engine["args"] if word.startswith("--")]
    for flag in (*flags, f"{flags[0]}=x", flags[0][:-2]):
        assert f"extraArgs: {flag} is set by the chart" in refuse(programs, runtime, plain(extraArgs=[flag]))
    for variable in ("HOME", "HF_HUB_OFFLINE"):
        extra = plain(extraEnv=[{"name": variable, "value": "x"}])
        assert f"extraEnv: {variable} is set by the chart" in refuse(programs, runtime, extra)


@pytest.mark.parametrize("runtime", list(Runtime))
def test_no_other_option_of_the_engine_is_refused(runtime: Runtime) -> None:
    template = (chart_dir(runtime) / "templates" / "_engine.tpl").read_text()
    own = set(template.partition('"engine.reserved" -}}')[2].partition("{{")[0].split())
    engine = Engine.TRTLLM if runtime is Runtime.TRT_LLM else Engine(runtime.value)
    table = (files("plnt.sandbox.engine") / "flags" / TABLES[engine]).read_text()
    options = {line.split("\t")[0].replace("_", "-") for line in table.splitlines()[1:]}
    assert own <= options
    beginnings = {flag for flag in options - own if flag.startswith("--") and any(one.startswith(flag) for one in own)}
    assert beginnings == set()


@pytest.mark.parametrize("runtime", list(Runtime))
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replicas": 2}, "'replicas' not allowed"),
        ({"extraEnv": [{"name": "A", "valu": "x"}]}, "'valu' not allowed"),
        ({"resources": {"memoryGiB": 2**40}}, "maximum"),
        ({"extraArgs": ["stray"]}, "stray is no option"),
        ({"quantization": "int4"}, "quantization"),
    ],
)
def test_values_that_the_chart_does_not_know_are_refused(
    programs: Programs, runtime: Runtime, values: dict[str, Any], said: str
) -> None:
    assert said in refuse(programs, runtime, plain(**values))


def test_trt_llm_refuses_to_quantize_while_it_loads(programs: Programs) -> None:
    assert "cannot quantize" in refuse(programs, Runtime.TRT_LLM, plain(quantization="fp8"))


@pytest.mark.parametrize("runtime", list(Runtime))
def test_foreign_flag_ends_the_stub_engine(programs: Programs, runtime: Runtime, tmp_path: Path) -> None:
    other = {Runtime.VLLM: "--model-path", Runtime.SGLANG: "--shutdown-timeout"}
    flag = other.get(runtime, "--max-model-len")
    objects = render(programs, chart_dir(runtime), plain(extraArgs=[flag, "3"]))
    with pytest.raises(UsageInvalid, match=re.escape(flag)):
        read_launch_of(objects, tmp_path)


@pytest.mark.parametrize(("runtime", "extra"), golden_files.CASES)
def test_objects_are_those_of_the_golden_file(
    programs: Programs,
    runtime: Runtime,
    extra: bool,
) -> None:
    kept = list(yaml.safe_load_all(golden_files.golden_path(runtime, extra=extra).read_text()))
    assert list(golden_files.render_case(programs, runtime, extra=extra).values()) == kept


def test_kind_without_a_schema_fails() -> None:
    with pytest.raises(SchemaNotFoundError):
        validate({"apiVersion": "x.test/v1", "kind": "Unknown"}, "1.34", strict=True)


@pytest.mark.parametrize("runtime", list(Runtime))
def test_readme_describes_every_value_as_its_comment_does(runtime: Runtime) -> None:
    readme, values = values_table.read_chart(chart_dir(runtime))
    assert values_table.renew(readme, values) == readme
    assert [row.path for row in values_table.read_rows(values) if not row.comment] == []


def test_charts_have_the_same_values() -> None:
    paths = {
        tuple(row.path for row in values_table.read_rows(values_table.read_chart(chart_dir(one))[1])) for one in Runtime
    }
    assert len(paths) == 1


@pytest.mark.parametrize("runtime", list(Runtime))
def test_shared_parts_are_links(runtime: Runtime) -> None:
    folder = chart_dir(runtime)
    own = {
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()
    }
    about = {".helmignore", "Chart.yaml", "README.md", "values.yaml"}
    assert own == about | {"templates/_engine.tpl", "templates/_metrics.tpl"}
