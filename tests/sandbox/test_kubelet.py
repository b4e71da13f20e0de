"""The kubelet stand-in under a real API server with controllers and scheduler."""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from plnt.clients.kube import DEPLOYMENTS, ENDPOINT_SLICES, NODES, PODS, SERVICES, Kube, Object
from plnt.errors import NotFound
from plnt.sandbox import cluster
from plnt.sandbox.addresses import listen_address
from plnt.sandbox.kubelet import control
from plnt.sandbox.kubelet.control import Control, Fault, FaultKind, SimulatedNode
from plnt.sandbox.record import MARK
from plnt.sandbox.running import Sandbox
from plnt.sandbox.waiting import wait_until
from tests.fakes.model_folder import write_model

SPACE = "kubelet-test"
GPU = "plnt.test/kubelet"
QUICK = {"ttftMs": 5, "tpotMs": 1, "loadSeconds": 0}
NODE = SimulatedNode(name="kubelet-test-a", resources={GPU: "16"})
SECONDS = 60.0
pytestmark = pytest.mark.timeout(240)


@dataclass
class Nodes:
    """A running stand-in and what a test needs to use it."""

    sandbox: Sandbox
    kube: Kube
    state: Path
    port: int
    process: asyncio.subprocess.Process

    async def start(self) -> None:
        env = {**os.environ, "KUBECONFIG": str(self.sandbox.state.kubeconfig_of("kubelet"))}
        env[MARK] = str(self.sandbox.state.root)
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "plnt.sandbox.kubelet", "--state", str(self.state), "--port", str(self.port)),
            *("--range", str(self.sandbox.site.block.range), "--backoff-seconds", "1"),
            env=env,
        )

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        await asyncio.wait_for(self.process.wait(), 60)

    async def pod(self, name: str) -> Object:
        return await self.kube.get(PODS, SPACE, name)

    async def container(self, name: str) -> Object:
        statuses = (await self.pod(name)).get("status", {}).get("containerStatuses") or [{"state": {}}]
        return dict(statuses[0])

    async def until(self, name: str, holds: Callable[[Object], bool], seconds: float = SECONDS) -> Object:
        """Wait until the pod's one container is so."""

        async def asked() -> bool:
            return holds(await self.container(name))

        try:
            await wait_until(asked, seconds)
        except TimeoutError:
            pytest.fail(f"{name} is still {await self.container(name)}")
        return await self.container(name)

    async def address(self, name: str) -> str:
        return listen_address((await self.pod(name))["status"]["podIP"])

    async def logs(self, *arguments: str) -> str:
        return await self.sandbox.kubectl("-n", SPACE, "logs", *arguments)

    def processes(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter(["cmdline"]) if self._is_ours(process.info["cmdline"] or [])]

    def _is_ours(self, command: list[str]) -> bool:
        return "plnt.sandbox.engine" in command and str(self.state) in " ".join(command)


@pytest.fixture(scope="module")
async def nodes(control_plane: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nodes]:
    state = tmp_path_factory.mktemp("kubelet")
    (state / "sandbox.json").write_text("{}")
    (state / "pki").symlink_to(control_plane.state.pki)
    control.save(state, Control(nodes=(NODE,)))
    write_model(state / "cache" / "trees" / "good", **QUICK)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    async with cluster.open_kube(control_plane.kubeconfig) as kube:
        await cluster.create_namespace(kube, SPACE)
        found = Nodes(control_plane, kube, state, port, None)  # type: ignore[arg-type]
        await found.start()
        try:
            yield found
            control.save(state, Control())
            await wait_until(lambda: is_gone(kube, NODE.name), SECONDS)
        finally:
            if found.process.returncode is None:
                await found.stop()


async def is_gone(kube: Kube, node: str) -> bool:
    return await kube.find(NODES, None, node) is None


def spec(tree: str = "good", *args: str, **more: Any) -> Object:
    health = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1}
    container = {
        "name": "engine",
        "image": "vllm/vllm-openai:v0.33.0",
        "command": ["vllm", "serve"],
        "args": ["/models/m", "--host", "0.0.0.0", "--served-model-name", "m", *args],
        "ports": [{"name": "http", "containerPort": 8000}],
        "startupProbe": {**health, "failureThreshold": 30},
        "readinessProbe": health,
        "resources": {"limits": {GPU: "1"}},
        "volumeMounts": [{"name": "w", "mountPath": "/models/m", "subPath": f"trees/{tree}", "readOnly": True}],
    }
    return {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 5,
        "containers": [{**container, **more}],
        "volumes": [{"name": "w", "nfs": {"server": "weights.plnt.test", "path": "/"}}],
    }


def pod(name: str, body: Object, **labels: str) -> Object:
    meta = {"name": name, "namespace": SPACE, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": body}


def waits_for(reason: str) -> Callable[[Object], bool]:
    return lambda status: status["state"].get("waiting", {}).get("reason") == reason


def is_ready(status: Object) -> bool:
    return bool(status.get("ready"))


async def complete(address: str, tokens: int = 3) -> tuple[str, str]:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": tokens, "stream": True}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"http://{address}:8000/v1/chat/completions", json=body) as response,
    ):
        return response.headers["X-Plnt-Pod"], await response.text()


async def test_deployment_becomes_ready_and_serves(nodes: Nodes) -> None:
    body = spec("good", "--tensor-parallel-size", "2", resources={"limits": {GPU: "2"}})
    template = {"metadata": {"labels": {"app": "pair"}}, "spec": body}
    deployment = {"replicas": 2, "selector": {"matchLabels": {"app": "pair"}}, "template": template}
    meta = {"name": "pair", "namespace": SPACE}
    await nodes.kube.create(
        DEPLOYMENTS, SPACE, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": deployment}
    )
    service = {"selector": {"app": "pair"}, "ports": [{"port": 8000, "targetPort": "http"}]}
    await nodes.kube.apply(SERVICES, {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": service})
    await nodes.sandbox.kubectl("-n", SPACE, "wait", "--for=condition=Available", "deploy/pair", "--timeout=60s")

    async def two_endpoints() -> bool:
        slices, _ = await nodes.kube.list(ENDPOINT_SLICES, SPACE, labels="kubernetes.io/service-name=pair")
        found = [e for s in slices for e in s.get("endpoints") or [] if e["conditions"]["ready"]]
        return len(found) == 2

    await wait_until(two_endpoints, SECONDS)
    items, _ = await nodes.kube.list(PODS, SPACE, labels="app=pair")
    for item in items:
        served_by, text = await complete(listen_address(item["status"]["podIP"]))
        assert served_by == item["metadata"]["name"]
        assert text.endswith("data: [DONE]\n\n")
    log = await nodes.logs(items[0]["metadata"]["name"], "--tail=2")
    assert [line.split(":")[0] for line in log.splitlines()] == ["INFO listening on http", "INFO request finished"]
    await nodes.sandbox.kubectl("-n", SPACE, "delete", "deploy,service", "pair", "--cascade=foreground", "--wait")
    assert nodes.processes() == []


async def test_failures_show_as_on_a_real_node(nodes: Nodes) -> None:
    control.change(
        nodes.state,
        lambda now: now.with_faults(
            Fault(fault=FaultKind.OOM, namespace=SPACE, match_labels={"fault": "oom"}, after_seconds=0.2),
            Fault(fault=FaultKind.CRASH, namespace=SPACE, match_labels={"fault": "crash"}, exit_code=139),
            Fault(fault=FaultKind.IMAGE, namespace=SPACE, match_labels={"fault": "image"}),
        ),
    )
    pods = [
        pod("oom", spec(), fault="oom"),
        pod("crash", spec(), fault="crash"),
        pod("image", spec(), fault="image"),
        pod("unknown-image", spec(image="example.com/nothing:1")),
        pod("no-weights", spec("absent")),
        pod("bad-flag", spec("good", "--no-such-flag")),
        pod("no-config", spec(env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "k"}}}])),
        pod("no-program", spec(command=["nginx"])),
    ]
    await asyncio.gather(*(nodes.kube.create(PODS, SPACE, body) for body in pods))

    for name, code, reason in (
        ("oom", 137, "OOMKilled"),
        ("crash", 139, "Error"),
        ("bad-flag", 2, "Error"),
        ("no-program", 128, "StartError"),
    ):
        status = await nodes.until(name, waits_for("CrashLoopBackOff"))
        assert (status["lastState"]["terminated"]["exitCode"], status["lastState"]["terminated"]["reason"]) == (
            code,
            reason,
        )
        assert status["restartCount"] >= 1
        assert (await nodes.pod(name))["status"]["phase"] == "Running"
    for name, reason in (
        ("image", "ImagePullBackOff"),
        ("unknown-image", "ErrImagePull"),
        ("unknown-image", "ImagePullBackOff"),
        ("no-weights", "CreateContainerConfigError"),
        ("no-config", "CreateContainerConfigError"),
    ):
        await nodes.until(name, waits_for(reason))
        assert (await nodes.pod(name))["status"]["phase"] == "Pending"
    assert "--no-such-flag" in await nodes.logs("bad-flag", "--previous")

    control.change(nodes.state, lambda now: now.without_faults(SPACE))
    write_model(nodes.state / "cache" / "trees" / "absent", **QUICK)
    for name in ("image", "crash", "no-weights"):
        await nodes.until(name, is_ready)
    await nodes.sandbox.kubectl("-n", SPACE, "delete", "pod", "--all", "--wait", "--grace-period=1")
    assert nodes.processes() == []


async def test_deletion_runs_the_hook_and_lets_streams_end(nodes: Nodes) -> None:
    write_model(nodes.state / "cache" / "trees" / "slow", ttftMs=10, tpotMs=20, loadSeconds=0)
    body = spec("slow", "--shutdown-timeout", "4", lifecycle={"preStop": {"sleep": {"seconds": 1}}})
    await nodes.kube.create(PODS, SPACE, pod("leaving", body))
    await nodes.until("leaving", is_ready)
    stream = asyncio.create_task(complete(await nodes.address("leaving"), tokens=80))
    begun = time.monotonic()
    await nodes.sandbox.kubectl("-n", SPACE, "delete", "pod", "leaving", "--wait")
    took = time.monotonic() - begun
    _, text = await stream
    assert text.endswith("data: [DONE]\n\n")
    assert 1.4 < took < 20


async def test_process_that_ignores_sigterm_is_killed_after_the_grace_period(nodes: Nodes) -> None:
    script = (
        "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(99)"
    )
    stubborn = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 2,
        "containers": [{"name": "c", "image": "busybox:1", "command": [sys.executable, "-c", script]}],
    }
    await nodes.kube.create(PODS, SPACE, pod("stubborn", stubborn))
    await nodes.until("stubborn", is_ready)
    follower = asyncio.create_task(nodes.logs("stubborn", "--follow"))
    begun = time.monotonic()
    await wait_until(lambda: has_line(nodes, "stubborn", "up"), SECONDS)
    await nodes.sandbox.kubectl("-n", SPACE, "delete", "pod", "stubborn", "--wait")
    assert time.monotonic() - begun >= 2
    assert await follower == "up\n"


async def has_line(nodes: Nodes, name: str, line: str) -> bool:
    return line in await nodes.logs(name)


async def test_job_pod_ends_succeeded(nodes: Nodes) -> None:
    once = {
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "busybox:1", "command": ["sh", "-c"], "args": ["echo $(A)"]}],
    }
    once["containers"][0]["env"] = [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]  # type: ignore[index]
    await nodes.kube.create(PODS, SPACE, pod("once", once))
    await nodes.sandbox.kubectl(
        "-n", SPACE, "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/once", "--timeout=60s"
    )
    assert await nodes.logs("once") == "once\n"
    await nodes.kube.delete(PODS, SPACE, "once")


async def test_failing_liveness_probe_restarts_the_container(nodes: Nodes) -> None:
    write_model(nodes.state / "cache" / "trees" / "sick", **QUICK, faults={"notReady": True})
    probe = {"tcpSocket": {"port": 8000}, "periodSeconds": 1, "failureThreshold": 30}
    sick = {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 1, "failureThreshold": 2}
    await nodes.kube.create(PODS, SPACE, pod("sick", spec("sick", startupProbe=probe, livenessProbe=sick)))
    status = await nodes.until("sick", lambda status: status.get("restartCount", 0) >= 1)
    assert status["lastState"]["terminated"]["exitCode"] == 0
    assert not status["ready"]
    await nodes.kube.delete(PODS, SPACE, "sick", grace=0)


async def test_killed_stand_in_leaves_no_process_that_its_successor_does_not_know(nodes: Nodes) -> None:
    await nodes.kube.create(PODS, SPACE, pod("survivor", spec()))
    await nodes.until("survivor", is_ready)
    address = await nodes.address("survivor")
    [before] = [process for process in nodes.processes() if process.environ()["POD_NAME"] == "survivor"]
    await nodes.stop(signal.SIGKILL)
    assert before.is_running()
    await nodes.start()
    status = await nodes.until("survivor", lambda status: bool(status.get("restartCount") == 1 and status["ready"]))
    assert status["lastState"]["terminated"]["reason"] == "Unknown"
    assert await nodes.address("survivor") == address
    [after] = [process for process in nodes.processes() if process.environ()["POD_NAME"] == "survivor"]
    assert after.pid != before.pid
    await nodes.kube.delete(PODS, SPACE, "survivor", grace=0)


async def test_stopped_stand_in_stops_all_processes_and_its_successor_restarts_them(nodes: Nodes) -> None:
    await nodes.kube.create(PODS, SPACE, pod("resumed", spec()))
    await nodes.until("resumed", is_ready)
    await nodes.stop()
    assert nodes.processes() == []
    await nodes.start()
    await nodes.until("resumed", lambda status: bool(status.get("restartCount") == 1 and status["ready"]))
    await nodes.kube.delete(PODS, SPACE, "resumed", grace=0)


async def test_node_that_leaves_the_control_file_takes_its_pods_along(nodes: Nodes) -> None:
    gpu = "plnt.test/guest"
    guest = SimulatedNode(name="kubelet-test-guest", resources={gpu: "1"}, labels={"zone": "b"})
    control.change(nodes.state, lambda now: now.with_nodes(guest))
    await nodes.kube.create(PODS, SPACE, pod("guest", spec(resources={"limits": {gpu: "1"}})))
    await nodes.until("guest", is_ready)
    node = await nodes.kube.get(NODES, None, guest.name)
    assert node["status"]["allocatable"][gpu] == "1"
    assert node["metadata"]["labels"]["zone"] == "b"
    control.change(nodes.state, lambda now: now.without_nodes(guest.name))
    await wait_until(lambda: is_gone(nodes.kube, guest.name), SECONDS)
    with pytest.raises(NotFound):
        await nodes.pod("guest")
    assert [p for p in nodes.processes() if p.environ()["POD_NAME"] == "guest"] == []
