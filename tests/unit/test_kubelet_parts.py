"""The pure parts of the kubelet stand-in."""

import sys
from pathlib import Path

import pytest

from plnt.sandbox.kubelet import control
from plnt.sandbox.kubelet.backoff import BackOff
from plnt.sandbox.kubelet.container_command import count_gpus, expand, read_words, rewrite_paths
from plnt.sandbox.kubelet.control import Control, Fault, FaultKind, SimulatedNode
from plnt.sandbox.kubelet.images import Image, Program, choose_command, find_image, is_reference
from plnt.sandbox.kubelet.probes import Probe, Tally, read_probe
from plnt.sandbox.kubelet.status import (
    ContainerView,
    PodView,
    Running,
    State,
    Terminated,
    Waiting,
    choose_phase,
    render_status,
)

RUNNING = Running("2026-01-01T00:00:00Z")


def ended(code: int) -> Terminated:
    return Terminated(code, "Error" if code else "Completed", "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z")


def view(*states: State, policy: str = "Always", stopping: bool = False, last: Terminated | None = None) -> PodView:
    containers = [ContainerView(f"c{n}", "i", state, last, ready=state is RUNNING) for n, state in enumerate(states)]
    return PodView(containers, "10.7.0.1", "2026-01-01T00:00:00Z", policy, stopping)


@pytest.mark.parametrize(
    ("given", "phase"),
    [
        (view(Waiting("ImagePullBackOff")), "Pending"),
        (view(RUNNING, Waiting("ContainerCreating")), "Pending"),
        (view(RUNNING), "Running"),
        (view(Waiting("CrashLoopBackOff"), last=ended(1)), "Running"),
        (view(ended(1)), "Running"),
        (view(ended(1), policy="OnFailure"), "Running"),
        (view(ended(0), policy="OnFailure"), "Succeeded"),
        (view(ended(0), policy="Never"), "Succeeded"),
        (view(ended(0), ended(3), policy="Never"), "Failed"),
        (view(ended(143), stopping=True), "Failed"),
    ],
)
def test_phase_follows_from_the_containers(given: PodView, phase: str) -> None:
    assert choose_phase(given) == phase


def test_condition_keeps_its_time_while_it_holds() -> None:
    first = render_status(view(Waiting("ContainerCreating")), {}, "t1")
    second = render_status(view(RUNNING), first, "t2")
    times = {c["type"]: (c["status"], c["lastTransitionTime"]) for c in second["conditions"]}
    assert times["Initialized"] == ("True", "t1")
    assert times["Ready"] == ("True", "t2")


def test_variables_expand_as_in_kubernetes() -> None:
    assert expand("$(A)/$(B) $$(A) $$$(A) $A", {"A": "1"}) == "1/$(B) $(A) $1 $A"


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("/models/a", "/w/1"),
        ("--model-path=/models/a/x", "--model-path=/w/1/x"),
        ("/models/ab", "/models/ab"),
        ("meta/models/a", "meta/models/a"),
        ("/models/a/inner:/models/a", "/w/2:/w/1"),
        ('{"path": "/models/a"}', '{"path": "/w/1"}'),
    ],
)
def test_mount_paths_are_rewritten_where_they_begin_a_path(text: str, rewritten: str) -> None:
    assert rewrite_paths(text, {"/models/a": "/w/1", "/models/a/inner": "/w/2"}) == rewritten


def test_command_wins_over_the_images_entrypoint() -> None:
    assert read_words({"args": ["$(A)"]}, ["vllm", "serve"], {"A": "x"}) == ["vllm", "serve", "x"]
    assert read_words({"command": ["sh"], "args": ["-c"]}, ["vllm", "serve"], {}) == ["sh", "-c"]


def test_gpus_are_the_limits_on_extended_resources() -> None:
    assert count_gpus({"resources": {"limits": {"memory": "8Gi", "nvidia.com/h100": "2"}}}) == 2
    assert count_gpus({}) == 0


@pytest.mark.parametrize(
    ("reference", "known"),
    [
        ("vllm/vllm-openai:v0.33.0", True),
        ("docker.io/vllm/vllm-openai:v0.33.1", True),
        ("vllm/vllm-openai:v0.32.0", False),
        ("vllm/vllm-openai", False),
        ("busybox", True),
        ("busybox:1", True),
        ("localhost:5000/busybox:1", False),
        ("registry.k8s.io/pause:3.10", True),
        ("example.com/vllm/vllm-openai:v0.33.0", False),
    ],
)
def test_registry_holds_only_the_known_images(reference: str, known: bool) -> None:
    assert (find_image(reference) is not None) is known


def test_malformed_reference_is_told_from_an_unknown_image() -> None:
    assert is_reference("example.com/x:y")
    assert not is_reference("Example/X:y")


def test_engine_image_runs_engines_and_python_alone() -> None:
    image = Image(Program.ENGINE)
    assert choose_command(image, ["vllm", "serve", "/m"]) == [
        sys.executable,
        "-m",
        "plnt.sandbox.engine",
        "vllm",
        "serve",
        "/m",
    ]
    assert choose_command(image, ["python3", "-c", "pass"]) == [sys.executable, "-c", "pass"]
    assert choose_command(image, ["nginx"]) is None


def test_probe_port_may_be_a_name() -> None:
    ports = [{"name": "http", "containerPort": 8000}]
    probe = read_probe({"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 5}, ports)
    assert probe == Probe("httpGet", 8000, "/health", period=5)


def test_probe_verdict_comes_at_the_threshold() -> None:
    tally = Tally(Probe("httpGet", failures=3, successes=1))
    assert [tally.record(passed=passed) for passed in (False, False, True, False, False, False)] == [
        None,
        None,
        True,
        None,
        None,
        False,
    ]


def test_back_off_doubles_after_a_free_first_restart_and_forgets() -> None:
    back_off = BackOff(10)
    assert [back_off.next() for _ in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert back_off.next(ran_seconds=600) == 0


def test_control_file_survives_a_round_trip(tmp_path: Path) -> None:
    node = SimulatedNode(name="n", resources={"plnt.test/x": "4"}, taints=({"key": "k", "effect": "NoSchedule"},))
    fault = Fault(fault=FaultKind.OOM, namespace="a", match_labels={"x": "y"}, after_seconds=2)
    control.save(tmp_path, Control(nodes=(node,), faults=(fault,)))
    changed = control.change(tmp_path, lambda now: now.with_nodes(SimulatedNode(name="m")))
    assert control.load(tmp_path) == changed
    assert changed.faults == (fault,)
    assert [n.name for n in changed.nodes] == ["n", "m"]


def test_control_defaults_to_three_nodes_without_a_file(tmp_path: Path) -> None:
    assert {name for node in control.load(tmp_path).nodes for name in node.resources} == {
        "nvidia.com/h100",
        "nvidia.com/a100",
        "nvidia.com/a10",
    }


@pytest.mark.parametrize("text", ['{"nodes": [{"nam": "x"}]}', '{"faults": [{"fault": "fire"}]}', "{"])
def test_wrong_control_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / control.FILE
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(ValueError, match="validation error"):
        control.load(tmp_path)


def test_fault_strikes_pods_with_all_its_labels() -> None:
    found = Control(faults=(Fault(fault=FaultKind.CRASH, namespace="a", match_labels={"x": "1", "y": "2"}),))
    assert found.find_fault("a", {"x": "1", "y": "2", "z": "3"}, FaultKind.CRASH)
    assert not found.find_fault("a", {"x": "1"}, FaultKind.CRASH)
    assert not found.find_fault("b", {"x": "1", "y": "2"}, FaultKind.CRASH)
    assert not found.find_fault("a", {"x": "1", "y": "2"}, FaultKind.IMAGE)
