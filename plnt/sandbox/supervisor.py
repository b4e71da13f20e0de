"""Starts a sandbox's components, each a child in its own session, and keeps those running that a kubelet would."""

import asyncio
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from plnt.errors import PermanentError
from plnt.sandbox import probe
from plnt.sandbox.component import Component
from plnt.sandbox.record import LAUNCHER, MARK, Record, describe_process
from plnt.sandbox.state import State
from plnt.sandbox.waiting import wait_until

LOG_LINES = 15
FIRST_DELAY_SECONDS = 0.5
MOST_DELAY_SECONDS = 10.0
STEADY_SECONDS = 30.0
"""A component that ran this long starts again with the shortest delay, as in a kubelet's back-off."""


class ComponentFailed(PermanentError):
    """A component ended or never answered; ``log`` holds its last lines."""

    def __init__(self, name: str, fault: str, log: Path) -> None:
        """Name the component and what happened to it."""
        super().__init__(f"{name} {fault}")
        self.component = name
        self.log = log

    def explain(self) -> str:
        """Give several lines: what failed, the log's end, what to do."""
        lines = read_tail(self.log, LOG_LINES)
        said = "\n".join(f"    {line}" for line in lines) or "    (it wrote nothing)"
        todo = "what to do: mend what the log says, then run the command again."
        return f"{self}\nlast lines of {self.log}:\n{said}\n{todo}"


@dataclass
class _Slot:
    component: Component
    process: asyncio.subprocess.Process | None = None
    task: asyncio.Task[None] | None = None
    restarts: int = 0
    held: bool = False
    env: Mapping[str, str] = field(default_factory=dict)


class Supervisor:
    """Owns the children of one sandbox."""

    def __init__(self, state: State, components: Sequence[Component]) -> None:
        """Supervise ``components`` from ``start`` on."""
        self._state = state
        self._slots = {component.name: _Slot(component) for component in components}
        self._record = Record(state.processes)
        self._failure: asyncio.Future[ComponentFailed] = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        """Start all components."""
        self._record.put(describe_process(LAUNCHER, os.getpid()))
        for slot in self._slots.values():
            slot.task = asyncio.create_task(self._keep(slot))

    async def wait_failed(self) -> ComponentFailed:
        """Wait until a component that is not restarted has ended; gives the fault."""
        return await asyncio.shield(self._failure)

    async def wait_ready(self, names: Sequence[str], deadline_seconds: float) -> None:
        """Wait until the components answer.

        Raises:
            ComponentFailed: one ended meanwhile, or does not answer in time.
        """
        for name in names:
            try:
                await wait_until(partial(self._is_ready, name), deadline_seconds)
            except TimeoutError:
                raise self.blame(name, f"does not answer within {deadline_seconds:.0f} s") from None

    def raise_failure(self) -> None:
        """Raise the fault of a component that ended, if one did."""
        if self._failure.done():
            raise self._failure.result()

    def blame(self, name: str, fault: str) -> ComponentFailed:
        """Give an error that names a component and its log."""
        return ComponentFailed(name, fault, self._state.log_of(name))

    def pid(self, name: str) -> int | None:
        """Give a component's pid; none while it is down."""
        process = self._slots[name].process
        return process.pid if process is not None and process.returncode is None else None

    def restarts(self, name: str) -> int:
        """Tell how often a component was started again after it had ended by itself."""
        return self._slots[name].restarts

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a component; it is restarted if it is of that kind."""
        pid = self.pid(name)
        if pid is not None:
            os.kill(pid, number)

    async def stop(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """End a component and keep it down until ``resume``."""
        slot = self._slots[name]
        slot.held = True
        await self._end(slot, number)

    def resume(self, name: str, env: Mapping[str, str] | None = None) -> None:
        """Start a component that ``stop`` ended, with ``env`` over its own environment."""
        slot = self._slots[name]
        slot.held = False
        slot.env = dict(env or {})
        slot.task = asyncio.create_task(self._keep(slot))

    async def stop_all(self) -> None:
        """End every component, those that use the servers first."""
        for slot in self._slots.values():
            slot.held = True
        users = [slot for slot in self._slots.values() if slot.component.restarts]
        servers = [slot for slot in self._slots.values() if not slot.component.restarts]
        for group in (users, servers):
            await asyncio.gather(*(self._end(slot, signal.SIGTERM) for slot in group))

    async def _keep(self, slot: _Slot) -> None:
        delay = FIRST_DELAY_SECONDS
        component = slot.component
        while not slot.held:
            for needed in component.waits_for:
                await wait_until(partial(self._is_ready, needed))
            began = time.monotonic()
            status = await self._run(slot)
            if slot.held:
                return
            if not component.restarts:
                self._fail(component.name, f"ended with {describe_status(status)}")
                return
            delay = FIRST_DELAY_SECONDS if time.monotonic() - began > STEADY_SECONDS else delay
            slot.restarts += 1
            self._record.annotate(component.name, f"ended with {describe_status(status)}, starts in {delay:g} s")
            await asyncio.sleep(delay)
            delay = min(delay * 2, MOST_DELAY_SECONDS)

    async def _run(self, slot: _Slot) -> int:
        component = slot.component
        with self._state.log_of(component.name).open("ab") as log:
            slot.process = await asyncio.create_subprocess_exec(
                *component.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._state.root,
                env={**component.env, **slot.env, MARK: str(self._state.root)},
                start_new_session=True,
            )
        entry = describe_process(component.name, slot.process.pid, component.ports, slot.restarts)
        self._record.put(entry)
        return await slot.process.wait()

    async def _end(self, slot: _Slot, number: signal.Signals) -> None:
        process = slot.process
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.send_signal(number)
            try:
                await asyncio.wait_for(process.wait(), slot.component.stop_seconds)
            except TimeoutError:
                with suppress(ProcessLookupError):
                    process.kill()
        if slot.task is not None:
            slot.task.cancel()
            with suppress(asyncio.CancelledError):
                await slot.task
        if process is not None:
            await process.wait()
        self._record.annotate(slot.component.name, "stopped")

    async def _is_ready(self, name: str) -> bool:
        self.raise_failure()
        address = self._slots[name].component.ready
        return self.pid(name) is not None and (not address or await probe.answers(address, self._state.pki / "ca.crt"))

    def _fail(self, name: str, fault: str) -> None:
        self._record.annotate(name, fault)
        if not self._failure.done():
            self._failure.set_result(self.blame(name, fault))


def describe_status(status: int) -> str:
    """Say how a process ended."""
    return f"status {status}" if status >= 0 else signal.Signals(-status).name


def read_tail(path: Path, lines: int) -> list[str]:
    """Give a file's last lines."""
    try:
        return path.read_text(errors="replace").splitlines()[-lines:]
    except FileNotFoundError:
        return []
