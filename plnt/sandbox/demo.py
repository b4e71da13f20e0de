"""The demonstration: the example from ``kubectl apply`` to a streamed answer."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import yaml

import plnt
from plnt import resources
from plnt.clients.kube import WORKFLOW_RUNS, Kube
from plnt.errors import ApiUnavailable, NotFound, PermanentError
from plnt.model import names
from plnt.model.status import Phase
from plnt.sandbox.cluster import open_kube
from plnt.sandbox.programs import Programs
from plnt.sandbox.report import Reporter
from plnt.sandbox.running import Sandbox, running_sandbox
from plnt.sandbox.story import Story

PULL_BYTES_PER_SECOND = 16_000_000
"""So slow that the pull of the example's small model can be watched."""
DEADLINE_SECONDS = 180.0
_TICK_SECONDS = 0.5
_IDLE_SECONDS = 70.0
_PROMPT = "Say in one sentence what a canary deployment is."
_MAX_TOKENS = 48
_ANSWER_SECONDS = 30.0

Object = dict[str, Any]


class DemoFailed(PermanentError):
    """The example cannot be shown."""


async def run(
    root: Path, programs: Programs, overrides: Mapping[str, str], base: int | None, reporter: Reporter
) -> None:
    """Show the demonstration from an empty sandbox to its end.

    Raises:
        PlntError: something failed; ComponentFailed names the component and holds its log.
    """
    example = find_example()
    began = time.monotonic()
    settings = {"PLNT_PULL_BYTES_PER_SECOND": str(PULL_BYTES_PER_SECOND), **overrides}
    async with running_sandbox(root, programs, overrides=settings, base=base, say=reporter.say) as sandbox:
        watching = asyncio.create_task(_show(sandbox, example, reporter))
        failing = asyncio.create_task(sandbox.supervisor.wait_failed())
        try:
            await asyncio.wait([watching, failing], return_when=asyncio.FIRST_COMPLETED)
            sandbox.supervisor.raise_failure()
            await watching
        finally:
            for task in (watching, failing):
                task.cancel()
            await asyncio.gather(watching, failing, return_exceptions=True)
        reporter.say("stopping the sandbox")
    reporter.say(f"done in {time.monotonic() - began:.0f} s")


def find_example() -> Path:
    """Give the path of the example that is shown.

    Raises:
        DemoFailed: this installation came without the examples.
    """
    path = Path(plnt.__file__).parents[1] / "examples" / "llama-3.1-70b-instruct.yaml"
    if not path.exists():
        raise DemoFailed(f"{path} does not exist; run the demo from a checkout of plnt")
    return path


async def _show(sandbox: Sandbox, example: Path, reporter: Reporter) -> None:
    for manifest in (resources.crd_path(), example):
        await _kubectl(sandbox, reporter, "apply", "-f", str(_shorten(manifest)))
    run = await asyncio.to_thread(lambda: yaml.safe_load(example.read_text()))
    namespace, name = run["metadata"].get("namespace", "default"), run["metadata"]["name"]
    workflow = f"{sandbox.site.web_ui}/namespaces/default/workflows/{names.rollout_id(namespace, name)}"
    reporter.say(f"the rollout in Temporal's Web UI: {workflow}")
    story = await _follow(sandbox, namespace, name, reporter)
    await _kubectl(sandbox, reporter, "get", "workflowrun", "-n", namespace)
    await _converse(sandbox, str(story.status["endpoint"]), reporter)


async def _kubectl(sandbox: Sandbox, reporter: Reporter, *arguments: str) -> None:
    reporter.say(f"$ kubectl {' '.join(arguments)}")
    reporter.say((await sandbox.kubectl(*arguments)).rstrip())


def _shorten(path: Path) -> Path:
    """Give a path as a person in the checkout would type it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


async def _follow(sandbox: Sandbox, namespace: str, name: str, reporter: Reporter) -> Story:
    """Show each phase until the rollout ends.

    Raises:
        ComponentFailed: it ended otherwise than Ready, or not in time.
    """
    story = Story(time.monotonic())
    seen: asyncio.Queue[Object] = asyncio.Queue()
    async with open_kube(sandbox.kubeconfig) as kube:
        feeding = asyncio.create_task(_feed(kube, namespace, name, seen))
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await _tell(story, seen, reporter)
        except TimeoutError:
            fault = f"does not get {namespace}/{name} out of {story.phase} within {DEADLINE_SECONDS:.0f} s"
            raise sandbox.supervisor.blame(story.suspect, f"{fault}: {story.status.get('lastError', '')}") from None
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
    if story.phase is not Phase.READY:
        fault = f"is where {namespace}/{name} ended {story.phase}: {story.status.get('lastError', '')}"
        raise sandbox.supervisor.blame(story.suspect, fault)
    return story


async def _tell(story: Story, seen: "asyncio.Queue[Object]", reporter: Reporter) -> None:
    while not story.is_over:
        with suppress(TimeoutError):
            found = await asyncio.wait_for(seen.get(), _TICK_SECONDS)
            for line in story.observe(found, time.monotonic()):
                reporter.say(line)
        if not story.is_over:
            reporter.tick(story.render_now(time.monotonic()))


async def _feed(kube: Kube, namespace: str, name: str, seen: "asyncio.Queue[Object]") -> None:
    """Put every version of the object into ``seen``."""
    while True:
        with suppress(ApiUnavailable, NotFound):
            found = await kube.get(WORKFLOW_RUNS, namespace, name)
            seen.put_nowait(found)
            async for event in _watch(kube, namespace, name, found["metadata"]["resourceVersion"]):
                seen.put_nowait(event)
        await asyncio.sleep(_TICK_SECONDS)


async def _watch(kube: Kube, namespace: str, name: str, version: str) -> AsyncIterator[Object]:
    query = {"watch": "true", "fieldSelector": f"metadata.name={name}", "resourceVersion": version}
    async with kube.stream(WORKFLOW_RUNS.path(namespace), query, _IDLE_SECONDS) as response:
        async for line in response.content:
            event = json.loads(line)
            if event["type"] in {"ADDED", "MODIFIED"}:
                yield event["object"]


async def _converse(sandbox: Sandbox, endpoint: str, reporter: Reporter) -> None:
    """Send one streamed chat completion through Envoy and show the answer.

    Raises:
        ComponentFailed: the endpoint did not answer.
    """
    reporter.say(f"$ curl -N --proxy {sandbox.site.envoy} {endpoint}/v1/chat/completions  # {_PROMPT!r}")
    limits = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
    began = time.monotonic()
    try:
        async with aiohttp.ClientSession(timeout=limits, raise_for_status=True) as session:
            pieces = [piece async for piece in _stream_answer(session, endpoint, sandbox.site.envoy)]
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise sandbox.supervisor.blame("envoy", f"gave no completion from {endpoint}: {error}") from error
    if not pieces:
        raise sandbox.supervisor.blame("kubelet", f"got an empty answer from the engine behind {endpoint}")
    reporter.say(f"{''.join(pieces)}\n({len(pieces)} pieces in {time.monotonic() - began:.1f} s)")


async def _stream_answer(session: aiohttp.ClientSession, endpoint: str, proxy: str) -> AsyncIterator[str]:
    async with session.get(f"{endpoint}/v1/models", proxy=proxy) as response:
        model = (await response.json())["data"][0]["id"]
    body = {
        "model": model,
        "stream": True,
        "max_tokens": _MAX_TOKENS,
        "messages": [{"role": "user", "content": _PROMPT}],
    }
    async with session.post(f"{endpoint}/v1/chat/completions", json=body, proxy=proxy) as response:
        async for line in response.content:
            if line.startswith(b"data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    piece = choice["delta"].get("content")
                    if piece:
                        yield piece
