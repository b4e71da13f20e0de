"""Who counts on what in the cache: one small file per workflow, so that a plan or tree is not collected under a run."""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from pydantic import ValidationError

from plnt.model.message import Message

FOLDER = "leases"
MAX_FILE_CHARS = 200
"""Longest workflow ID that names a file as it is: file systems allow 255 bytes, a WorkflowRun's two names 316."""


class Lease(Message):
    """What a workflow counts on."""

    workflow_id: str
    plan: str
    tree: str = ""
    """Empty while the plan is not pulled."""


@dataclass(frozen=True, slots=True)
class Leases:
    """The leases of a cache. Every method blocks: call it from a thread."""

    root: Path

    def take(self, lease: Lease) -> None:
        """Write a workflow's lease in place of its earlier one."""
        folder = self.root / FOLDER
        folder.mkdir(exist_ok=True)
        work = self.root / "tmp" / uuid4().hex
        work.write_bytes(json.dumps(lease.model_dump()).encode())
        work.replace(folder / _name_file(lease.workflow_id))

    def list(self) -> list[tuple[Lease, float]]:
        """Give every lease with the time of its writing, in seconds since the epoch."""
        found = []
        for path in sorted((self.root / FOLDER).glob("*.json")):
            try:
                with path.open("rb") as file:
                    written = os.fstat(file.fileno()).st_mtime
                    found.append((Lease.model_validate_json(file.read()), written))
            except (FileNotFoundError, ValidationError):
                continue
        return found

    def drop(self, lease: Lease) -> None:
        """Remove a workflow's lease."""
        (self.root / FOLDER / _name_file(lease.workflow_id)).unlink(missing_ok=True)


def _name_file(workflow_id: str) -> str:
    if len(workflow_id) <= MAX_FILE_CHARS:
        return f"{workflow_id}.json"
    return f"{workflow_id[:MAX_FILE_CHARS]}.{hashlib.sha256(workflow_id.encode()).hexdigest()[:16]}.json"
