"""What each ``plnt`` command does."""

import argparse
import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from plnt.errors import PlntError
from plnt.sandbox import build as servers
from plnt.sandbox import demo as demonstration
from plnt.sandbox import record
from plnt.sandbox.metrics.components import prometheus_url
from plnt.sandbox.metrics.servers import provide_metrics_servers
from plnt.sandbox.programs import Programs, find_programs
from plnt.sandbox.report import Reporter, render_status
from plnt.sandbox.running import Sandbox, SettingInvalid, running_sandbox
from plnt.sandbox.sources.servers import provide_source_servers
from plnt.sandbox.state import State
from plnt.sandbox.supervisor import ComponentFailed


def build(options: argparse.Namespace) -> int:
    """Build the servers if that is not done yet."""
    with Reporter(sys.stderr) as reporter:
        found = servers.provide_servers(os.environ, reporter)
        if options.metrics:
            provide_metrics_servers(os.environ, reporter)
        if options.sources:
            provide_source_servers(os.environ, reporter)
    print(found.folder)
    return 0


def up(options: argparse.Namespace) -> int:
    """Run the sandbox in the foreground."""
    with Reporter(sys.stderr) as reporter:
        programs = _provide_programs(reporter, metrics=options.metrics, sources=options.sources)
        try:
            failure = asyncio.run(_up(options, programs, reporter))
        except (KeyboardInterrupt, asyncio.CancelledError):
            reporter.say("stopped")
            return 0
    raise failure


def demo(options: argparse.Namespace) -> int:
    """Run the demonstration."""
    with Reporter(sys.stdout) as reporter:
        programs = _provide_programs(reporter)
        root, base = _root(options), options.port_base
        asyncio.run(_demo(root, programs, parse_settings(options.set), base, reporter))
    return 0


def status(options: argparse.Namespace) -> int:
    """Show the components; exit status 1 unless all run."""
    entries = record.read_entries(State(_root(options)).processes)
    if not entries:
        print("no sandbox runs here; start one with `plnt up`")
        return 1
    lines, well = render_status(entries)
    print("\n".join(lines))
    return 0 if well else 1


def down(options: argparse.Namespace) -> int:
    """End whatever of the sandbox still runs."""
    state = State(_root(options))
    ended = record.end_all(state.root, state.processes)
    print(f"stopped: {', '.join(ended)}" if ended else "nothing was running")
    return 0


def explain(error: PlntError) -> str:
    """Say what failed; for a component with its last log lines."""
    return error.explain() if isinstance(error, ComponentFailed) else str(error)


def default_state(environ: Mapping[str, str]) -> Path:
    """Give the state folder that is used when none is named."""
    root = environ.get("XDG_STATE_HOME")
    return (Path(root) if root else Path.home() / ".local" / "state") / "plnt" / "sandbox"


def parse_settings(pairs: list[str]) -> dict[str, str]:
    """Parse ``NAME=VALUE`` arguments.

    Raises:
        SettingInvalid: one has no ``=`` or no name.
    """
    for pair in pairs:
        if pair.find("=") < 1:
            raise SettingInvalid(f"--set {pair}: write NAME=VALUE, such as PLNT_BAKE_SECONDS=60")
    return dict(pair.split("=", 1) for pair in pairs)


def _root(options: argparse.Namespace) -> Path:
    return Path(options.state or default_state(os.environ)).absolute()


def _provide_programs(reporter: Reporter, *, metrics: bool = False, sources: bool = False) -> Programs:
    found = servers.provide_servers(os.environ, reporter)
    own = provide_metrics_servers(os.environ, reporter) if metrics else None
    programs = find_programs(found.folder, found.istio_crds, own)
    return replace(programs, sources=provide_source_servers(os.environ, reporter)) if sources else programs


async def _up(options: argparse.Namespace, programs: Programs, reporter: Reporter) -> ComponentFailed:
    """Run until a server ends; gives its fault. Ctrl-C and SIGTERM cancel."""
    _cancel_at_sigterm()
    overrides = parse_settings(options.set)
    root, base = _root(options), options.port_base
    async with running_sandbox(root, programs, overrides=overrides, base=base, say=reporter.say) as sandbox:
        print(render_exports(sandbox), flush=True)
        reporter.say("the sandbox runs until Ctrl-C")
        failure = await sandbox.supervisor.wait_failed()
        reporter.say(f"{failure}; stopping")
    return failure


async def _demo(
    root: Path, programs: Programs, overrides: Mapping[str, str], base: int | None, reporter: Reporter
) -> None:
    _cancel_at_sigterm()
    await demonstration.run(root, programs, overrides, base, reporter)


def _cancel_at_sigterm() -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


def render_exports(sandbox: Sandbox) -> str:
    """Give shell lines with which another shell reaches the sandbox."""
    exports = [f"export {name}={shlex.quote(value)}" for name, value in sandbox.environment.items()]
    return "\n".join(
        [
            *exports,
            f"# Services answer through Envoy: curl --proxy {sandbox.site.envoy} http://<host of .status.endpoint>",
            f"#   or: export HTTP_PROXY={sandbox.site.envoy}",
            f"# Temporal's Web UI: {sandbox.site.web_ui}",
            *([f"# Prometheus: {prometheus_url(sandbox.site)}"] if sandbox.programs.metrics else []),
        ]
    )
