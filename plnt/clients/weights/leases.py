"""Who counts on what in the cache: one small file per workflow, so that a plan or tree is not collected under a run."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from pydantic import ValidationError

from plnt.model.message import Message

FOLDER = "leases"


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
        work.replace(folder / f"{lease.workflow_id}.json")

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
        (self.root / FOLDER / f"{lease.workflow_id}.json").unlink(missing_ok=True)
