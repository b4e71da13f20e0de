"""The record of a sandbox's processes, by which a later command finds and ends them."""

import json
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil

from plnt.clients.process_start import read_start_ticks
from plnt.sandbox.state import write_json

MARK = "PLNT_SANDBOX_STATE"
"""Environment variable of every process of a sandbox, children of children included: its state folder."""
LAUNCHER = "launcher"
_SAME_START_SECONDS = 0.05
_KILL_AFTER_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Entry:
    """One process: a pid means it only together with ``started``, the seconds from the machine's boot to its start."""

    name: str
    pid: int
    started: float
    ports: tuple[int, ...] = ()
    restarts: int = 0
    note: str = ""

    def find(self) -> psutil.Process | None:
        """Find the very process if it still runs."""
        try:
            process = psutil.Process(self.pid)
            same = abs(_read_start(self.pid) - self.started) < _SAME_START_SECONDS
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.Error:
            return None


def _read_start(pid: int) -> float:
    """Give the seconds from boot to a process's start; 0 = it has ended."""
    return int(read_start_ticks(pid) or 0) / os.sysconf("SC_CLK_TCK")


def describe_process(name: str, pid: int, ports: tuple[int, ...] = (), restarts: int = 0) -> Entry:
    """Describe a live process; one that has just ended gets the start time 0, which matches none."""
    return Entry(name, pid, _read_start(pid), ports, restarts)


class Record:
    """The entries of one sandbox, written through to ``path`` at every change."""

    def __init__(self, path: Path) -> None:
        """Start with no entries; ``path`` keeps its old content until the first change."""
        self._path = path
        self._entries: dict[str, Entry] = {}

    def put(self, entry: Entry) -> None:
        """Add or replace the entry of a name."""
        self._entries[entry.name] = entry
        self._write()

    def annotate(self, name: str, note: str) -> None:
        """Say something about a component that is down."""
        if name in self._entries:
            self._entries[name] = replace(self._entries[name], note=note)
            self._write()

    def get(self, name: str) -> Entry:
        """Give the entry of a name."""
        return self._entries[name]

    def _write(self) -> None:
        write_json(self._path, [asdict(entry) for entry in self._entries.values()])


def read_entries(path: Path) -> list[Entry]:
    """Read a record; empty if there is none."""
    if not path.exists():
        return []
    return [Entry(**{**fields, "ports": tuple(fields["ports"])}) for fields in json.loads(path.read_text())]


def end_all(root: Path, path: Path) -> list[str]:
    """End every recorded process, its descendants, and whatever else carries the sandbox's mark.

    The launcher gets SIGTERM first and stops the rest in order. Gives the names of what still ran.
    """
    entries = [(entry.name, process) for entry in read_entries(path) if (process := entry.find()) is not None]
    launchers = [process for name, process in entries if name == LAUNCHER and process.pid != os.getpid()]
    _end(launchers, 20.0)
    named = [(name, process) for name, process in entries if name != LAUNCHER]
    family = [child for _, process in named for child in _descendants(process)]
    _end([*(process for _, process in named), *family, *find_marked(root)], _KILL_AFTER_SECONDS)
    path.unlink(missing_ok=True)
    return [name for name, _ in entries]


def find_marked(root: Path) -> list[psutil.Process]:
    """Find the processes whose environment says that they belong to the sandbox in ``root``, this one left out."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(MARK) == str(root):
                found.append(process)
    return found


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


def _end(processes: Iterable[psutil.Process], patience_seconds: float) -> None:
    waiting = list(dict.fromkeys(processes))
    for number, patience in ((signal.SIGTERM, patience_seconds), (signal.SIGKILL, _KILL_AFTER_SECONDS)):
        for process in waiting:
            with suppress(psutil.Error):
                process.send_signal(number)
        _, waiting = psutil.wait_procs(waiting, timeout=patience)
