"""One container from its image to its end: start, probes, faults, restarts with back-off, stop."""

import asyncio
import logging
import re
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from plnt.clients.kube import Object
from plnt.errors import PlntError
from plnt.sandbox.kubelet.backoff import BackOff
from plnt.sandbox.kubelet.container_start import Start, prepare_start
from plnt.sandbox.kubelet.control import Fault, FaultKind
from plnt.sandbox.kubelet.environment import ConfigMissing
from plnt.sandbox.kubelet.images import Image, find_image, is_reference
from plnt.sandbox.kubelet.pod_site import PodSite, stamp
from plnt.sandbox.kubelet.probes import Probe, Tally, execute, read_probe
from plnt.sandbox.kubelet.processes import LocalProcess, start_process
from plnt.sandbox.kubelet.status import ContainerView, Running, Terminated, Waiting

logger = logging.getLogger(__name__)

_FAULT_POLL_SECONDS = 0.1
_LEAST_GRACE_SECONDS = 2.0
"""What a kubelet leaves between SIGTERM and SIGKILL when the pre-stop hook used up the grace period."""
_SHELL_SLEEP = re.compile(r"\bsleep\s+(\d+(\.\d+)?)")
_START_FAILED = 128
_OOM_CODE = 137


class Container:
    """One container of one pod."""

    def __init__(self, site: PodSite, spec: Object, earlier: Object | None) -> None:
        """Take ``spec``; ``earlier`` is the status that an earlier stand-in reported, whose process is gone."""
        self.site = site
        self.spec = spec
        self.name: str = spec["name"]
        self.view = _first_view(spec, earlier)
        self._attempt = self.view.restarts
        self._back_off = BackOff(site.shared.backoff_seconds)
        self._process: LocalProcess | None = None
        self._stopping = False
        self._verdict: tuple[str, int] | None = None
        self._ready_since: float | None = None

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return self._process is not None

    def log_of(self, attempt: int) -> Path:
        """Give the log of the ``attempt``-th start, from 0."""
        return self.site.folder / "containers" / self.name / f"{attempt}.log"

    @property
    def log(self) -> Path:
        """The log of the newest start."""
        return self.log_of(self._attempt)

    @property
    def previous_log(self) -> Path:
        """The log of the start before."""
        return self.log_of(self._attempt - 1)

    async def run(self) -> None:
        """Run the container until it ends for good or is stopped; a cancel kills its process."""
        image = await self._pull()
        while True:
            begun = time.monotonic()
            ended = await self._run_once(await self._prepare(image))
            if self._stopping or not self._restarts(ended.exit_code):
                return
            await self._wait_for_restart(ended, time.monotonic() - begun)
            self._attempt += 1

    async def stop(self, grace_seconds: float) -> None:
        """Stop it as a kubelet does: pre-stop hook, SIGTERM, SIGKILL when the grace period is over."""
        self._stopping = True
        if self._process is not None:
            self.site.event("Normal", "Killing", f"Stopping container {self.name}")
            await self._end(self._process, grace_seconds)

    def _set(self, **changes: Any) -> None:
        self.view = replace(self.view, **changes)
        self.site.changed()

    async def _pull(self) -> Image:
        back_off = BackOff(self.site.shared.backoff_seconds)
        name = self.spec["image"]
        if not is_reference(name):
            message = (
                f'Failed to apply default image tag "{name}": couldn\'t parse image name: invalid reference format'
            )
            self._set(state=Waiting("InvalidImageName", message))
            await asyncio.Event().wait()
        while True:
            image = None if self._fault(FaultKind.IMAGE) else find_image(name)
            if image is not None:
                self.site.event("Normal", "Pulled", f'Container image "{name}" already present on machine')
                return image
            fault = f'failed to pull and unpack image "{name}": failed to resolve reference "{name}": {name}: not found'
            self.site.event("Warning", "Failed", f'Failed to pull image "{name}": {fault}')
            self._set(state=Waiting("ErrImagePull", f"rpc error: code = NotFound desc = {fault}"))
            delay = back_off.next_after_failure()
            await asyncio.sleep(min(1.0, delay / 2))
            self._set(state=Waiting("ImagePullBackOff", f'Back-off pulling image "{name}": ErrImagePull: {fault}'))
            await asyncio.sleep(delay)

    async def _prepare(self, image: Image) -> Start:
        """Gather what the start needs, for as long as something that it names is missing."""
        while True:
            try:
                return await prepare_start(self.site, self.spec, image)
            except ConfigMissing as error:
                self._set(state=Waiting("CreateContainerConfigError", str(error)))
                self.site.event("Warning", "Failed", f"Error: {error}")
            except PlntError as error:
                logger.info("container not prepared yet", extra={"pod": self.site.name, "reason": error.reason})
            await asyncio.sleep(self.site.shared.backoff_seconds / 5)

    async def _run_once(self, start: Start) -> Terminated:
        started_at = stamp()
        identity = f"simulated://{self.site.uid}/{self.name}/{self._attempt}"
        self._verdict, self._ready_since = None, None
        try:
            process = await self._start(start)
        except OSError as error:
            self._verdict = ("StartError", _START_FAILED)
            return self._report_end(started_at, identity, _START_FAILED, f"failed to create task: {error}")
        self._process = process
        self._set(state=Running(started_at), started=False, ready=False, container_id=identity, restarts=self._attempt)
        self.site.event("Normal", "Started", f"Started container {self.name}")
        try:
            async with asyncio.TaskGroup() as group:
                watchers = [group.create_task(self._watch_health(process)), group.create_task(self._strike(process))]
                code = await process.wait()
                for watcher in watchers:
                    watcher.cancel()
        finally:
            process.discard()
            self._process = None
        return self._report_end(started_at, identity, code)

    async def _start(self, start: Start) -> LocalProcess:
        if start.command is None:
            raise FileNotFoundError(f'exec: "{start.program}": executable file not found in $PATH')
        entry = self.site.shared.processes / f"{self.site.uid}.{self.name}.json"
        return await start_process(start.command, start.env, self.site.folder, self.log, entry)

    def _report_end(self, started_at: str, identity: str, code: int, message: str = "") -> Terminated:
        reason, code = self._verdict or ("Completed" if code == 0 else "Error", code)
        ended = Terminated(code, reason, started_at, stamp(), identity, message)
        self._set(state=ended, ready=False, started=False, container_id=identity, restarts=self._attempt)
        return ended

    def _restarts(self, code: int) -> bool:
        policy = self.site.pod["spec"].get("restartPolicy", "Always")
        return policy == "Always" or (policy == "OnFailure" and code != 0)

    async def _wait_for_restart(self, ended: Terminated, ran_seconds: float) -> None:
        delay = self._back_off.next(ran_seconds)
        self._set(last=ended)
        if delay:
            where = f"{self.site.name}_{self.site.namespace}({self.site.uid})"
            message = f"back-off {delay:g}s restarting failed container={self.name} pod={where}"
            self._set(state=Waiting("CrashLoopBackOff", message))
            self.site.event("Warning", "BackOff", message.capitalize())
            await asyncio.sleep(delay)

    def _fault(self, *kinds: FaultKind) -> Fault | None:
        return self.site.shared.control().find_fault(self.site.namespace, self.site.labels, *kinds)

    async def _strike(self, process: LocalProcess) -> None:
        """Kill the process when a fault of the control file is due."""
        while True:
            fault = self._fault(FaultKind.OOM, FaultKind.CRASH)
            if fault is not None and self._is_due(fault):
                is_oom = fault.fault is FaultKind.OOM
                self._verdict = ("OOMKilled", _OOM_CODE) if is_oom else ("Error", fault.exit_code)
                process.signal(signal.SIGKILL)
                return
            await asyncio.sleep(_FAULT_POLL_SECONDS)

    def _is_due(self, fault: Fault) -> bool:
        if not fault.after_seconds:
            return True
        return self._ready_since is not None and time.monotonic() >= self._ready_since + fault.after_seconds

    async def _watch_health(self, process: LocalProcess) -> None:
        ports = self.spec.get("ports") or []
        startup, readiness, liveness = (
            read_probe(self.spec.get(f"{kind}Probe"), ports) for kind in ("startup", "readiness", "liveness")
        )
        if startup is not None and not await self._await_startup(process, startup):
            return
        self._mark(ready=readiness is None)
        async with asyncio.TaskGroup() as group:
            if readiness is not None:
                group.create_task(self._repeat(readiness, "Readiness", self._take_readiness))
            if liveness is not None:
                group.create_task(self._repeat(liveness, "Liveness", self._take_liveness(process, liveness)))

    def _mark(self, *, ready: bool) -> None:
        if ready and self._ready_since is None:
            self._ready_since = time.monotonic()
        if not self.view.started or ready != self.view.ready:
            self._set(started=True, ready=ready)

    async def _await_startup(self, process: LocalProcess, probe: Probe) -> bool:
        passed: list[bool] = []

        async def take(verdict: bool) -> bool:  # noqa: FBT001
            passed.append(verdict)
            return True

        await self._repeat(probe, "Startup", take)
        if not passed[0]:
            await self._end_unhealthy(process, probe, "startup")
        return passed[0]

    async def _take_readiness(self, verdict: bool) -> bool:  # noqa: FBT001
        self._mark(ready=verdict)
        return False

    def _take_liveness(self, process: LocalProcess, probe: Probe) -> Callable[[bool], Awaitable[bool]]:
        async def take(verdict: bool) -> bool:  # noqa: FBT001
            if verdict or self._stopping:
                return False
            await self._end_unhealthy(process, probe, "liveness")
            return True

        return take

    async def _repeat(self, probe: Probe, kind: str, take: Callable[[bool], Awaitable[bool]]) -> None:
        """Probe until ``take``, given each verdict, says that it was the last."""
        await asyncio.sleep(probe.initial_delay)
        tally = Tally(probe)
        while True:
            begun = time.monotonic()
            fault = await execute(self.site.shared.session, probe, self.site.listen)
            if fault and tally.failures == 0 and not self._stopping:
                self.site.event("Warning", "Unhealthy", f"{kind} probe failed: {fault}")
            verdict = tally.record(passed=not fault)
            if verdict is not None and await take(verdict):
                return
            await asyncio.sleep(max(0.0, probe.period - (time.monotonic() - begun)))

    async def _end_unhealthy(self, process: LocalProcess, probe: Probe, kind: str) -> None:
        if self._stopping:
            return
        self.site.event("Normal", "Killing", f"Container {self.name} failed {kind} probe, will be restarted")
        grace = probe.grace if probe.grace is not None else self.site.grace_seconds
        await self._end(process, grace)

    async def _end(self, process: LocalProcess, grace_seconds: float) -> None:
        begun = time.monotonic()
        if grace_seconds > 0:
            await asyncio.sleep(min(self._pre_stop_seconds(), grace_seconds))
            process.signal(signal.SIGTERM)
            left = max(_LEAST_GRACE_SECONDS, grace_seconds - (time.monotonic() - begun))
            await asyncio.wait([asyncio.ensure_future(process.child.wait())], timeout=left)
        process.signal(signal.SIGKILL)
        await process.child.wait()

    def _pre_stop_seconds(self) -> float:
        """How long the pre-stop hook takes: one that sleeps is honoured, others end at once."""
        match (self.spec.get("lifecycle") or {}).get("preStop"):
            case {"sleep": {"seconds": seconds}}:
                return float(seconds)
            case {"exec": {"command": list(command)}}:
                found = _SHELL_SLEEP.search(" ".join(command))
                return float(found[1]) if found else 0.0
            case _:
                return 0.0


def _first_view(spec: Object, earlier: Object | None) -> ContainerView:
    """Begin where an earlier stand-in left off: its process is gone, so the next start is a restart."""
    view = ContainerView(spec["name"], spec["image"], Waiting("ContainerCreating"))
    if not earlier or not (earlier.get("containerID") or earlier.get("lastState")):
        return view
    running = (earlier.get("state") or {}).get("running")
    now = stamp()
    last = Terminated(255, "Unknown", running["startedAt"], now, earlier["containerID"]) if running else None
    return replace(view, last=last, restarts=int(earlier.get("restartCount") or 0) + 1)
