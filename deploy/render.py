# ruff: noqa: INP001 - a script, no package
"""Writes what is derived from the platform chart: its README's table and ``deploy/manifests``.

``python deploy/render.py HELM`` with the path of a Helm 4; a test compares the files with what it would write.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parent / "plnt"
README = CHART / "README.md"
MANIFESTS = CHART.parent / "manifests"
NAMESPACE = "plnt-system"
START, END = "<!-- values -->\n", "<!-- end of values -->\n"
MODES = {"cluster.yaml": (), "single-namespace.yaml": ("--set", "namespaces={default}")}
"""Rendered files, and helm's arguments for each."""


def render_readme(text: str) -> str:
    """Give the README with the table of values as values.yaml and its comments say."""
    head, _, rest = text.partition(START)
    _, _, tail = rest.partition(END)
    rows = [f"| `{path}` | {default} | {meaning} |" for path, default, meaning in list_values()]
    return (
        "\n".join([head + START.strip(), "", "| value | default | meaning |", "|---|---|---|", *rows, "", END]) + tail
    )


def list_values() -> Iterator[tuple[str, str, str]]:
    """Give path, default and meaning of every value; the meaning is the ``# --`` comment above it."""
    source = (CHART / "values.yaml").read_text()
    comments = _read_comments(source)
    for path, value in _walk(yaml.safe_load(source)):
        shown = yaml.safe_dump(value, default_flow_style=True, width=1000).strip().removesuffix("\n...")
        yield path, f"`{shown}`", comments.get(path, "")


def _walk(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value and not path.endswith((".resources", ".volume")):
        for key, inner in value.items():
            yield from _walk(inner, f"{path}.{key}" if path else key)
    else:
        yield path, value


def _read_comments(source: str) -> dict[str, str]:
    found: dict[str, str] = {}
    parents: list[str] = []
    said = ""
    for line in source.splitlines():
        comment = re.match(r"\s*# -- (.*)", line)
        key = re.match(r"( *)([A-Za-z]+):", line)
        if comment:
            said = comment[1]
        elif key:
            parents[len(key[1]) // 2 :] = [key[2]]
            if said:
                found[".".join(parents)] = said
            said = ""
    return found


def render_manifests(helm: str, arguments: Sequence[str]) -> str:
    """Render the chart for ``kubectl apply``, the namespace first, without helm's test and helm's marks."""
    command = [helm, "template", "plnt", str(CHART), "--namespace", NAMESPACE, "--skip-tests", *arguments]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    bodies = [body for body in yaml.safe_load_all(text) if body]
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
    return yaml.safe_dump_all([namespace, *map(_unmark, bodies)], sort_keys=False, width=120)


def _unmark(body: dict[str, Any]) -> dict[str, Any]:
    meta = body["metadata"]
    kept = {key: value for key, value in meta.get("annotations", {}).items() if not key.startswith("helm.sh/")}
    meta.pop("annotations", None)
    for labelled in (meta, body.get("spec", {}).get("template", {}).get("metadata", {})):
        labelled.get("labels", {}).pop("app.kubernetes.io/managed-by", None)
    return {**body, "metadata": {**meta, **({"annotations": kept} if kept else {})}}


def main() -> None:
    """Write the files."""
    README.write_text(render_readme(README.read_text()))
    MANIFESTS.mkdir(exist_ok=True)
    for name, arguments in MODES.items():
        (MANIFESTS / name).write_text(render_manifests(sys.argv[1], arguments))


if __name__ == "__main__":
    main()
