"""The local processes that stand for containers, each recorded with its start time."""

import asyncio
import json
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from plnt.sandbox.record import Entry, describe_process
from plnt.sandbox.state import write_json

_SIGNAL_BASE = 128
_LEFTOVER_SECONDS = 5.0


@dataclass(slots=True)
class LocalProcess:
    """One process in a session of its own, so that its children end with it."""

    child: asyncio.subprocess.Process
    entry: Path

    async def wait(self) -> int:
        """Wait for the end; gives the exit code, 128 + n for signal n."""
        code = await self.child.wait()
        with suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        return code if code >= 0 else _SIGNAL_BASE - code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and its children, unless it ended."""
        if self.child.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.child.pid, number)

    def discard(self) -> None:
        """Kill what still runs and drop the record."""
        self.signal(signal.SIGKILL)
        self.entry.unlink(missing_ok=True)


async def start_process(
    command: Sequence[str], env: Mapping[str, str], folder: Path, log: Path, entry: Path
) -> LocalProcess:
    """Start a process that writes to ``log`` and is recorded in ``entry`` while it runs.

    Raises:
        OSError: the program is not there or cannot be executed.
    """
    for path in (folder, log.parent, entry.parent):
        path.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        child = await asyncio.create_subprocess_exec(
            *command,
            env=dict(env),
            cwd=folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    write_json(entry, asdict(describe_process(entry.stem, child.pid)))
    return LocalProcess(child, entry)


def end_leftovers(folder: Path) -> list[str]:
    """Kill the recorded processes of an earlier stand-in; gives their names.

    A pid that another process got meanwhile is left alone.
    """
    ended = []
    killed = []
    for path in sorted(folder.glob("*.json")):
        fields = json.loads(path.read_text())
        process = Entry(**{**fields, "ports": ()}).find()
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            ended.append(path.stem)
            killed.append(process)
        path.unlink()
    psutil.wait_procs(killed, timeout=_LEFTOVER_SECONDS)
    return ended
