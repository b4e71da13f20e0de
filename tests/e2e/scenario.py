"""One WorkflowRun as a user handles it: kubectl and temporal in, phases and answers out."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import aiohttp

from plnt.clients.kube import WORKFLOW_RUNS, Object
from plnt.errors import ApiUnavailable, NotFound
from plnt.model import names
from plnt.model.status import TERMINAL_PHASES, Phase
from tests.command_line import run_command
from tests.e2e.place import Place

Seen = TypeVar("Seen")

DEADLINE_SECONDS = 90.0
"""Longest wait for one outcome; a rollout of a stub engine takes 10 to 20 s."""
FULL_PASS = [
    Phase.PENDING,
    Phase.VALIDATING,
    Phase.PULLING_WEIGHTS,
    Phase.DEPLOYING,
    Phase.SMOKE_TESTING,
    Phase.PROMOTING,
    Phase.READY,
]


def manifest(place: Place, name: str, uri: str, **changes: Any) -> Object:
    """Give a small WorkflowRun; ``changes`` are merged into its spec, ``annotations`` into its metadata."""
    annotations = changes.pop("annotations", {})
    spec: Object = {
        "runtime": "vllm",
        "model": {"name": "test/model", "storageUri": uri},
        "resources": {"gpu": 1, "gpuClass": place.gpu_class, "memoryGiB": 8},
        "replicas": {"min": 1, "max": 2},
        "canary": {"trafficPercent": 20, "smokeTest": {"prompts": 3, "ttftBudgetMs": 400, "tpotBudgetMs": 100}},
    }
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name, "namespace": place.namespace, "annotations": annotations},
        "spec": _merge(spec, changes),
    }


def _merge(base: Object, changes: Object) -> Object:
    merged = dict(base)
    for key, value in changes.items():
        merged[key] = _merge(base.get(key, {}), value) if isinstance(value, dict) else value
    return merged


@dataclass
class Scenario:
    """A WorkflowRun in a place, with every status that it has had."""

    place: Place
    name: str = "model"
    seen: list[Object] = field(default_factory=list)
    """Each version of the object, in order."""

    @property
    def base(self) -> str:
        """Name of the front Service."""
        return names.base_name(self.name)

    async def kubectl(self, *arguments: str) -> str:
        """Run kubectl in the place's namespace."""
        return await self.place.sandbox.kubectl("-n", self.place.namespace, *arguments)

    async def temporal(self, *arguments: str) -> str:
        """Run the temporal CLI on this run's rollout."""
        sandbox = self.place.sandbox
        command = [str(sandbox.programs.temporal), *arguments]
        command += ["-w", names.rollout_id(self.place.namespace, self.name)]
        return await run_command(command, sandbox.environment)

    async def apply(self, uri: str, **changes: Any) -> int:
        """Apply the run with kubectl; gives the generation."""
        path = self.place.sandbox.state.root / f"{self.place.namespace}-{self.base}.json"
        path.write_text(json.dumps(manifest(self.place, self.name, uri, **changes)))
        await self.kubectl("apply", "-f", str(path))
        return int((await self.read())["metadata"]["generation"])

    async def read(self) -> Object:
        """Read the object."""
        return await self.place.kube.get(WORKFLOW_RUNS, self.place.namespace, self.name)

    async def status(self) -> Object:
        """Read the status."""
        found: Object = (await self.read()).get("status", {})
        return found

    async def wait_phase(self, phase: Phase, generation: int, seconds: float = DEADLINE_SECONDS) -> Object:
        """Wait until the status of ``generation`` is in ``phase``; fails at once when it ends in another one."""

        def check(status: Object) -> bool:
            if status.get("observedGeneration") != generation:
                return False
            reached = status.get("phase")
            ended = reached in TERMINAL_PHASES and phase in TERMINAL_PHASES
            assert not ended or reached == phase, f"ended {reached}: {status.get('lastError')}"
            return bool(reached == phase)

        return await self.wait_status(check, seconds, f"phase {phase} of generation {generation}")

    async def wait_status(self, holds: Callable[[Object], bool], seconds: float, what: str) -> Object:
        """Wait until the status is as asked; gives it."""
        deadline = time.monotonic() + seconds
        while True:
            status = await self.status()
            if holds(status):
                return status
            assert time.monotonic() < deadline, f"no {what} within {seconds} s: {json.dumps(status)}"
            await asyncio.sleep(0.1)

    async def wait_for(
        self, look: Callable[[], Awaitable[Seen]], holds: Callable[[Seen], bool], what: str, seconds: float = 60
    ) -> Seen:
        """Look again and again until what is seen is as asked; gives it."""
        deadline = time.monotonic() + seconds
        while True:
            seen = await look()
            if holds(seen):
                return seen
            assert time.monotonic() < deadline, f"no {what} within {seconds} s, but {seen!r}"
            await asyncio.sleep(0.05)

    @asynccontextmanager
    async def recorded(self) -> AsyncIterator[None]:
        """Keep every version of the object that the API server shows while the context is open."""
        task = asyncio.create_task(self._record())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def phases(self, generation: int) -> list[Phase]:
        """Give the phases that the status of a generation went through."""
        found: list[Phase] = []
        for version in self.seen:
            status = version.get("status", {})
            if status.get("observedGeneration") == generation and found[-1:] != [status["phase"]]:
                found.append(Phase(status["phase"]))
        return found

    async def _record(self) -> None:
        version = ""
        while True:
            query = {"watch": "true", "fieldSelector": f"metadata.name={self.name}", "resourceVersion": version}
            with suppress(ApiUnavailable, NotFound):
                path = WORKFLOW_RUNS.path(self.place.namespace)
                async with self.place.kube.stream(path, query, 60) as response:
                    async for line in response.content:
                        event = json.loads(line)
                        if event["type"] in {"ADDED", "MODIFIED"}:
                            self.seen.append(event["object"])
                            version = event["object"]["metadata"]["resourceVersion"]
            await asyncio.sleep(0.1)

    async def releases(self) -> set[str]:
        """Give the names of the Helm releases in the namespace, by the real helm."""
        sandbox = self.place.sandbox
        command = [str(sandbox.programs.helm), "list", "--short", "--namespace", self.place.namespace]
        return set((await run_command(command, sandbox.environment)).split())

    async def runs(self) -> list[str]:
        """Give the run IDs of this rollout's workflow, newest first."""
        client = await self.place.sandbox.connect_temporal()
        query = f"WorkflowId = '{names.rollout_id(self.place.namespace, self.name)}'"
        return [execution.run_id async for execution in client.list_workflows(query)]


@dataclass
class Answer:
    """One request and what came back."""

    sent: float
    """Monotonic time at which it was sent, in seconds."""
    ended: float
    pod: str
    """Pod that answered; empty when none did."""
    fault: str
    """Empty when the answer was whole."""


@dataclass
class Traffic:
    """A client that sends short completions through Envoy to a host name, without a pause."""

    proxy: str
    endpoint: str
    model: str = "test/model"
    max_tokens: int = 2
    answers: list[Answer] = field(default_factory=list)

    @property
    def faults(self) -> list[Answer]:
        """The answers that were not whole."""
        return [answer for answer in self.answers if answer.fault]

    def by_release(self, since: float = 0.0, until: float = float("inf")) -> Counter[str]:
        """Count answers by release, of requests sent in a span of monotonic time."""
        return Counter(
            answer.pod.rsplit("-", 2)[0] for answer in self.answers if since <= answer.sent < until and answer.pod
        )

    @asynccontextmanager
    async def flowing(self, clients: int = 3) -> AsyncIterator[None]:
        """Send while the context is open."""
        stop = asyncio.Event()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session:
            tasks = [asyncio.create_task(self._send_all(session, stop)) for _ in range(clients)]
            try:
                yield
            finally:
                stop.set()
                await asyncio.gather(*tasks)

    async def send(self, session: aiohttp.ClientSession) -> Answer:
        """Send one request."""
        body = {"model": self.model, "prompt": "Say a word.", "max_tokens": self.max_tokens, "stream": True}
        answer = Answer(time.monotonic(), 0.0, "", "")
        try:
            async with session.post(f"{self.endpoint}/v1/completions", json=body, proxy=self.proxy) as response:
                answer.pod = response.headers.get("X-Plnt-Pod", "")
                text = (await response.read()).decode()
                if response.status != 200:
                    answer.fault = f"{response.status} {text[:200]}"
                elif "data: [DONE]" not in text:
                    answer.fault = "cut"
        except (aiohttp.ClientError, TimeoutError) as error:
            answer.fault = f"{type(error).__name__} {error}"
        answer.ended = time.monotonic()
        self.answers.append(answer)
        return answer

    async def _send_all(self, session: aiohttp.ClientSession, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self.send(session)
            await asyncio.sleep(0.02)
