"""One pull at a time of one plan: an expiring claim file. It saves bytes; correctness rests on content addressing.

No lock is used: flock does nothing on some network file systems, and a lock file alone outlives a killed holder.
"""

import json
import os
import socket
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

from plnt.clients.process_start import read_start_ticks
from plnt.clients.weights.journal import read_boot_id
from plnt.model.pull_progress import PullProgress

RENEW_SECONDS = 5.0
EXPIRE_SECONDS = 30.0
"""Silence after which a claim is taken over; six renewals must have failed."""


def describe_process() -> dict[str, Any]:
    """Say which process this is, so that its successor on the same node need not wait for the claim to expire."""
    pid = os.getpid()
    return {"boot": read_boot_id(), "space": _read_pid_space(), "pid": pid, "started": read_start_ticks(pid)}


def _read_pid_space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


class Claim:
    """A claim on one plan. Every method blocks: call it from a thread."""

    def __init__(self, path: Path, tmp: Path) -> None:
        self._path, self._tmp = path, tmp
        self._owner = f"{socket.gethostname()}/{uuid4().hex}"
        self._seen: tuple[float, float] = (0.0, 0.0)

    def try_take(self) -> bool:
        """Take the claim if it is free, or if its holder is dead or silent.

        Silence is measured on this side's own clock, from the first look on: clocks of volumes may differ.
        """
        if self._create():
            return True
        holder = self._read()
        if not (_is_dead(holder) or self._is_silent()):
            return False
        taken = self._tmp / uuid4().hex
        try:
            self._path.rename(taken)
        except FileNotFoundError:
            return self._create()
        taken.unlink()
        return self._create()

    def _create(self) -> bool:
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        try:
            _write(fd, self._render(PullProgress()))
        except OSError:
            # Empty, it would look like the claim of a live holder until it expires.
            self._path.unlink(missing_ok=True)
            raise
        return True

    def _render(self, progress: PullProgress) -> bytes:
        facts = {"owner": self._owner, "process": describe_process(), "progress": progress.model_dump()}
        # A fixed length: a shorter text written over a longer one leaves no rest.
        return json.dumps(facts).encode().ljust(1024)

    def _read(self) -> dict[str, Any]:
        try:
            facts = json.loads(self._path.read_bytes())
        except (FileNotFoundError, ValueError):
            return {}
        return facts if isinstance(facts, dict) else {}

    def _is_silent(self) -> bool:
        try:
            renewed = self._path.stat().st_mtime
        except FileNotFoundError:
            return True
        now = time.monotonic()
        if renewed != self._seen[0]:
            self._seen = (renewed, now)
        return now - self._seen[1] > EXPIRE_SECONDS

    def renew(self, progress: PullProgress) -> None:
        """Say that the holder lives, and how far it is; a claim that was taken over is left alone."""
        if self._read().get("owner") != self._owner:
            return
        _write(os.open(self._path, os.O_WRONLY), self._render(progress))

    def read_progress(self) -> PullProgress:
        """Give how far the holder is, for those who wait."""
        return PullProgress.model_validate(self._read().get("progress", {})).model_copy(update={"waiting": True})

    def release(self) -> None:
        """Give the claim back."""
        if self._read().get("owner") == self._owner:
            self._path.unlink(missing_ok=True)


def _write(fd: int, text: bytes) -> None:
    """Write from the start of the file, and close it."""
    try:
        os.pwrite(fd, text, 0)
    finally:
        os.close(fd)


def _is_dead(holder: dict[str, Any]) -> bool:
    """Tell whether the holder ran in this process space on this boot, and does not any more."""
    process = holder.get("process")
    if not isinstance(process, dict) or not process.get("boot"):
        return False
    here = describe_process()
    same_space = process["boot"] == here["boot"] and process.get("space") == here["space"]
    pid = process.get("pid")
    return same_space and isinstance(pid, int) and read_start_ticks(pid) != process.get("started")
