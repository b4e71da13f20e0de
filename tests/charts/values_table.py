"""Each chart's README lists its values as the comments of ``values.yaml`` describe them.

``python -m tests.charts.values_table`` writes the tables anew.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from plnt.model.workflow_run import Runtime
from plnt.resources import chart_dir

BEGIN, END = "<!-- values: from values.yaml -->\n", "<!-- end of values -->\n"
_KEY = re.compile(r"(?P<indent> *)(?P<key>[A-Za-z]+):")


class Row(NamedTuple):
    """One value; no comment = none stands above it."""

    path: str
    default: Any
    comment: str


def read_rows(text: str) -> Iterator[Row]:
    """Give each value that has a comment, and each single value that has none."""
    whole, comment, covered = yaml.safe_load(text), "", 99
    path: list[str] = []
    for line in text.splitlines():
        found = _KEY.match(line)
        if line.lstrip().startswith("#"):
            comment = f"{comment} {line.lstrip(' #')}".lstrip()
        elif found is None:
            comment = ""
        elif len(found["indent"]) <= covered:
            covered = 99
            path = [*path[: len(found["indent"]) // 2], found["key"]]
            value = _look_up(whole, path)
            if comment or not (isinstance(value, dict) and value):
                yield Row(".".join(path), value, comment)
                covered = len(found["indent"])
            comment = ""


def render_table(text: str) -> str:
    """Give the table."""
    lines = ["| Value | Default | Meaning |", "|---|---|---|"]
    lines += [f"| `{row.path}` | {_say_default(row.default)} | {row.comment} |" for row in read_rows(text)]
    return "\n".join(lines) + "\n"


def renew(readme: str, values: str) -> str:
    """Give the README with the table of these values."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{render_table(values)}{END}{after}"


def read_chart(folder: Path) -> tuple[str, str]:
    """Give the texts of README and values."""
    return (folder / "README.md").read_text(), (folder / "values.yaml").read_text()


def _look_up(values: Any, path: list[str]) -> Any:
    for key in path:
        values = values[key]
    return values


def _say_default(value: Any) -> str:
    return f"`{json.dumps(value)}`" if value not in ("", None, [], {}) else ""


def main() -> None:
    """Write every chart's README."""
    for runtime in Runtime:
        folder = chart_dir(runtime)
        (folder / "README.md").write_text(renew(*read_chart(folder)))


if __name__ == "__main__":
    main()
