"""The demonstration: the example from ``kubectl apply`` to a streamed answer."""

from collections.abc import Mapping
from pathlib import Path

from plnt.sandbox.programs import Programs
from plnt.sandbox.report import Reporter
from plnt.sandbox.running import running_sandbox


async def run(
    root: Path, programs: Programs, overrides: Mapping[str, str], base: int | None, reporter: Reporter
) -> int:
    """Show it; gives the exit status."""
    async with running_sandbox(root, programs, overrides=overrides, base=base, say=reporter.say):
        return 0
