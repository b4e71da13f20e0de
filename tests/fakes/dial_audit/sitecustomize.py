"""Writes down each address in 10.0.0.0/8 that a Python process dials, when its folder is on ``PYTHONPATH``.

Pods of the sandbox report such addresses and listen on 127.0.0.0/8 ones: a process that dials 10.x would leave the
machine. The interpreter imports a module of this name at its start.
"""

import os
import sys
from pathlib import Path


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event != "socket.connect":
        return
    address = arguments[1]
    if isinstance(address, tuple) and str(address[0]).startswith("10."):
        line = f"{' '.join(sys.argv[:3])} dialled {address[0]}:{address[1]}\n"
        with Path(os.environ["DIAL_AUDIT_FILE"]).open("a") as file:
            file.write(line)


if "DIAL_AUDIT_FILE" in os.environ:
    sys.addaudithook(_note)
