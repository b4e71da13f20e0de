"""The sandbox's Hub as a process: ``python -m plnt.sandbox.sources --root DIR --port P``."""

import argparse
from pathlib import Path

from aiohttp import web

from plnt.sandbox.sources.hub import Hub


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="folder of the repositories")
    parser.add_argument("--port", type=int, required=True, help="port on loopback")
    options = parser.parse_args()
    options.root.mkdir(parents=True, exist_ok=True)
    web.run_app(Hub(options.root).make_app(), host="127.0.0.1", port=options.port, access_log=None, print=None)


if __name__ == "__main__":
    main()
