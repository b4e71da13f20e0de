"""Runs programs as a person does in a shell."""

import asyncio
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

Said = tuple[int, str, str]
"""Exit code, output and complaints."""


async def try_command(
    command: Sequence[str], environment: Mapping[str, str], *, folder: Path | None = None, given: bytes = b""
) -> Said:
    """Run a command with ``environment`` over the present one, and ``given`` typed in."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, **environment},
        cwd=folder,
        stdin=asyncio.subprocess.PIPE if given else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(given or None)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def run_command(
    command: Sequence[str], environment: Mapping[str, str], *, folder: Path | None = None, given: bytes = b""
) -> str:
    """Run a command that has to end well; gives its output."""
    code, out, err = await try_command(command, environment, folder=folder, given=given)
    assert code == 0, f"{shlex.join(command)}: {err}{out}"
    return out
