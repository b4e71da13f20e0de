"""The recording rules name what each engine really shows, at the path that is scraped."""

import re
from typing import Any

import pytest
import yaml

from plnt.model.autoscaler import TOKENS_METRIC, WAITING_METRIC
from plnt.model.workflow_run import Quantization, Runtime
from plnt.resources import chart_dir
from plnt.sandbox.engine.command_line import Engine
from plnt.sandbox.engine.metrics import Meter, render_metrics
from plnt.sandbox.programs import Programs
from tests.charts.rendering import make_values, run_helm

ENGINES = {
    Runtime.VLLM: Engine.VLLM,
    Runtime.SGLANG: Engine.SGLANG,
    Runtime.TGI: Engine.TGI,
    Runtime.TRT_LLM: Engine.TRTLLM,
}
KINDS = ("PodMonitor", "PrometheusRule")
NAME = re.compile(r"\b(?:vllm:|sglang:|tgi_|trtllm_)\w+")


def render(programs: Programs, runtime: Runtime, *kinds: str, **changes: Any) -> dict[str, dict[str, Any]]:
    """Render a release of plnt in a cluster that serves these kinds of the Prometheus operator."""
    values = {**make_values(runtime, Quantization.FP16, online=False, extra=False), **changes}
    served = [part for kind in kinds for part in ("--api-versions", f"monitoring.coreos.com/v1/{kind}")]
    code, text, errors = run_helm(
        programs, "template", "rel", str(chart_dir(runtime)), "-n", "team", *served, values=values
    )
    assert code == 0, errors
    return {body["kind"]: body for body in yaml.safe_load_all(text) if body}


def read_rules(objects: dict[str, dict[str, Any]]) -> dict[str, str]:
    (group,) = objects["PrometheusRule"]["spec"]["groups"]
    return {rule["record"]: rule["expr"] for rule in group["rules"]}


@pytest.mark.parametrize("runtime", list(Runtime))
def test_rules_name_metrics_that_the_engine_shows_once_it_has_answered(programs: Programs, runtime: Runtime) -> None:
    meter = Meter(decoded_tokens=5)
    meter.finish("stop", 5, 0.5, 0.4)
    shown = render_metrics(ENGINES[runtime], meter, "m")
    rules = read_rules(render(programs, runtime, *KINDS))
    assert set(rules) == {TOKENS_METRIC, WAITING_METRIC}
    for expression in rules.values():
        (name,) = set(NAME.findall(expression))
        assert re.search(rf"^{name}[{{ ]", shown, re.MULTILINE), name


@pytest.mark.parametrize("runtime", list(Runtime))
def test_rules_are_of_the_releases_own_pods_and_divided_by_their_gpus(programs: Programs, runtime: Runtime) -> None:
    rules = read_rules(render(programs, runtime, *KINDS))
    own = 'namespace="team",pod=~"llama-3-1-70b-0a1b2c3d-.+"'
    assert all(expression.count(own) == 2 for expression in rules.values())
    assert ") / 2\n" in rules[TOKENS_METRIC]


def test_trt_llm_is_scraped_where_reading_takes_nothing_away(programs: Programs) -> None:
    paths = {
        runtime: render(programs, runtime, *KINDS)["PodMonitor"]["spec"]["podMetricsEndpoints"][0]["path"]
        for runtime in Runtime
    }
    assert paths.pop(Runtime.TRT_LLM) == "/prometheus/metrics"
    assert set(paths.values()) == {"/metrics"}


def test_window_of_the_installation_wins_over_the_runtimes(programs: Programs) -> None:
    assert "[300s]" in read_rules(render(programs, Runtime.TGI, *KINDS))[TOKENS_METRIC]
    metrics = {"windowSeconds": 900, "intervalSeconds": 15}
    assert "[900s]" in read_rules(render(programs, Runtime.TGI, *KINDS, metrics=metrics))[TOKENS_METRIC]


@pytest.mark.parametrize("kinds", [(), ("PodMonitor",), ("PrometheusRule",)])
def test_only_kinds_that_the_cluster_serves_are_rendered(programs: Programs, kinds: tuple[str, ...]) -> None:
    assert set(render(programs, Runtime.VLLM, *kinds)) & set(KINDS) == set(kinds)
    assert not set(render(programs, Runtime.VLLM, *kinds, metrics={"enabled": False})) & set(KINDS)
