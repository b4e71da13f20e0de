"""What the charts render for a release of plnt, kept as files: a change shows in review as what it does to pods.

``python -m tests.charts.golden_files`` writes the files anew.
"""

import os
from pathlib import Path

import yaml

from plnt.model.workflow_run import Quantization, Runtime
from plnt.sandbox import build
from plnt.sandbox.programs import Programs, find_programs
from tests.charts.rendering import Objects, render_release

FOLDER = Path(__file__).parent / "golden"
CASES = [(runtime, extra) for runtime in Runtime for extra in (False, True)]


def golden_path(runtime: Runtime, *, extra: bool) -> Path:
    """Give the file of a case."""
    return FOLDER / f"{runtime}-{'values-from' if extra else 'defaults'}.yaml"


def render_case(programs: Programs, runtime: Runtime, *, extra: bool) -> Objects:
    """Render a case: fp8 made while loading where the engine can, else plain weights."""
    if runtime is Runtime.TRT_LLM:
        return render_release(programs, runtime, Quantization.FP16, extra=extra)
    return render_release(programs, runtime, Quantization.FP8, online=True, extra=extra)


def main() -> None:
    """Write every file."""
    servers = build.find_servers(os.environ)
    if servers is None:
        raise SystemExit("the servers are not built: run `plnt build` first")
    programs = find_programs(servers.folder, servers.istio_crds)
    FOLDER.mkdir(exist_ok=True)
    for runtime, extra in CASES:
        objects = render_case(programs, runtime, extra=extra)
        golden_path(runtime, extra=extra).write_text(yaml.safe_dump_all(objects.values(), sort_keys=True))


if __name__ == "__main__":
    main()
