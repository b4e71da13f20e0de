"""The ``plnt`` command: the sandbox on this machine, and ``plnt cache``, which needs none of its packages."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from plnt import cache_command
from plnt.errors import PlntError

try:
    from plnt.sandbox import commands
except ModuleNotFoundError as missing:
    if sys.argv[1:2] == ["cache"]:
        sys.exit(cache_command.main(sys.argv[2:]))
    sys.exit(f"plnt: {missing.name} is not installed; the sandbox needs: pip install 'plnt[sandbox]'")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; gives the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if list(arguments[:1]) == ["cache"]:
        return cache_command.main(arguments[1:])
    parser = build_parser()
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except PlntError as error:
        print(f"plnt {options.command}: {commands.explain(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def build_parser() -> argparse.ArgumentParser:
    """Give the parser of all commands."""
    parser = argparse.ArgumentParser(prog="plnt", description=__doc__)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--state", type=Path, default=None, metavar="DIR", help="state folder (default: $XDG_STATE_HOME/plnt/sandbox)"
    )
    start = argparse.ArgumentParser(add_help=False)
    start.add_argument("--port-base", type=int, default=None, metavar="PORT", help="first port of the sandbox's block")
    start.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the bridge, the workflow worker and the pools, such as PLNT_BAKE_SECONDS=60; repeatable",
    )
    sources = argparse.ArgumentParser(add_help=False)
    sources.add_argument(
        "--sources", action="store_true", help="with servers of gs://, oci:// and hf:// beside the S3 one"
    )
    metrics = argparse.ArgumentParser(add_help=False)
    metrics.add_argument(
        "--metrics", action="store_true", help="with Prometheus and prometheus-adapter, so that autoscaling works"
    )
    verbs = parser.add_subparsers(dest="command", required=True)
    for name, run, parents, text in (
        ("demo", commands.demo, [common, start], "take the example from kubectl apply to Ready, then stop"),
        ("up", commands.up, [common, start, metrics, sources], "run the sandbox until Ctrl-C"),
        ("status", commands.status, [common], "show the state of each component"),
        ("down", commands.down, [common], "stop the sandbox"),
        ("build", commands.build, [metrics, sources], "build the servers, once"),
    ):
        verbs.add_parser(name, parents=parents, help=text, description=text).set_defaults(run=run)
    verbs.add_parser("cache", help=cache_command.SUMMARY, add_help=False)
    return parser


if __name__ == "__main__":
    sys.exit(main())
