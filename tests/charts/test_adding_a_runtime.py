"""The page about a fifth runtime, followed word by word in a copy of the charts."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_validate import validate  # type: ignore[import-untyped]

from plnt.model.workflow_run import Quantization, Runtime
from plnt.sandbox.programs import Programs
from tests.charts.rendering import COMMON_EXTRA, make_values, read_engine, render, run_helm
from tests.charts.values_table import read_chart, read_rows, renew

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "adding-a-runtime.md"
BLOCK = re.compile(r"^```(?P<language>\w+)(?: file=(?P<file>\S+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
HOOK = re.compile(r"\"(?P<quoted>(?:engine|metrics)\.\w+)\"|^  (?P<listed>(?:engine|metrics)\.\w+) ", re.MULTILINE)

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def fifth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart that the page's commands and files make."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "charts", folder / "charts", symlinks=True)
    for block in BLOCK.finditer(PAGE.read_text()):
        if block["language"] == "sh":
            subprocess.run(["sh", "-euc", block["text"]], cwd=folder, check=True)
        elif block["file"]:
            (folder / block["file"]).write_text(block["text"])
    chart = folder / "charts" / "llama-cpp-runtime"
    (chart / "README.md").write_text(renew(*read_chart(chart)))
    return chart


def values(**changes: Any) -> dict[str, Any]:
    return {**make_values(Runtime.VLLM, Quantization.FP16, online=False, extra=False), **changes}


def test_fifth_chart_passes_the_strict_lint(programs: Programs, fifth: Path) -> None:
    code, said, errors = run_helm(programs, "lint", "--strict", str(fifth), values=values())
    assert code == 0, said + errors


def test_fifth_chart_renders_the_values_of_plnt_to_valid_objects(programs: Programs, fifth: Path) -> None:
    for extra in ({}, {**COMMON_EXTRA, "extraArgs": ["--ctx-size", "4096"]}):
        objects = render(programs, fifth, values(**extra))
        assert set(objects) == {"Deployment", "Service", "PodDisruptionBudget", "Pod"}
        for body in objects.values():
            validate(body, "1.34", strict=True)
    engine = read_engine(objects)
    assert engine["image"] == "ghcr.io/ggml-org/llama.cpp:server-cuda-b6200"
    assert engine["command"] == ["/app/llama-server"]
    assert engine["args"][:4] == ["--model", "/models/Llama-3.1-70B/model.gguf", "--alias", "org/Llama-3.1-70B"]
    assert engine["args"][-2:] == ["--ctx-size", "4096"]


def test_fifth_chart_refuses_what_it_sets(programs: Programs, fifth: Path) -> None:
    for extra in ({"extraArgs": ["-ngl", "1"]}, {"extraEnv": [{"name": "LLAMA_ARG_PORT", "value": "1"}]}):
        code, _, errors = run_helm(programs, "template", "rel", str(fifth), values=values(**extra))
        assert code != 0
        assert "is set by the chart" in errors


def test_fifth_chart_has_the_values_of_the_others_and_describes_them(fifth: Path) -> None:
    readme, text = read_chart(fifth)
    assert yaml.safe_load(text).keys() == yaml.safe_load((ROOT / "charts/vllm-runtime/values.yaml").read_text()).keys()
    assert "ghcr.io/ggml-org/llama.cpp" in readme
    assert "vllm" not in text.lower()
    assert [row.path for row in read_rows(text) if not row.comment] == []


def test_fifth_chart_records_tokens_where_the_operator_is(programs: Programs, fifth: Path) -> None:
    kinds = "monitoring.coreos.com/v1/PrometheusRule"
    arguments = ("template", "rel", str(fifth), "--api-versions", kinds)
    code, text, errors = run_helm(programs, *arguments, values=values())
    assert code == 0, errors
    rule = next(body for body in yaml.safe_load_all(text) if body and body["kind"] == "PrometheusRule")
    assert "llamacpp:tokens_predicted_total" in json.dumps(rule)


def find_hooks(text: str) -> set[str]:
    return {found["quoted"] or found["listed"] for found in HOOK.finditer(text)}


def test_page_and_charts_define_every_hook_of_the_shared_templates() -> None:
    hooks = find_hooks((ROOT / "charts/_shared/_runtime.tpl").read_text().partition("*/}}")[0])
    used = {hook for path in (ROOT / "charts/_shared").iterdir() for hook in find_hooks(path.read_text())}
    assert used == hooks
    charts = (
        "".join(path.read_text() for path in chart.glob("templates/_*.tpl")) for chart in ROOT.glob("charts/*-runtime")
    )
    for text in (PAGE.read_text(), *charts):
        assert hooks <= set(re.findall(r'define "([a-z]+\.\w+)"', text))
