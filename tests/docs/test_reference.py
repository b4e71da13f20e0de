"""The WorkflowRun reference and the code are one."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from plnt import resources
from plnt.model.options import PREFIX, parse_options
from plnt.model.status import ConditionType, Phase

REFERENCE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "workflowrun.md").read_text()


def _rows(heading: str) -> dict[str, list[str]]:
    section = REFERENCE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    table = re.findall(r"^\| `([^`]+)` \|(.*)\|$", section, re.MULTILINE)
    return {name: [cell.strip(" `") for cell in rest.split("|")] for name, rest in table}


def _leaves(schema: dict[str, Any], path: str = "", *, required: bool = True) -> Iterator[tuple[str, str]]:
    if "properties" not in schema:
        yield path, str(schema.get("default", "required" if required else "none"))
        return
    for name, inner in schema["properties"].items():
        needed = name in schema.get("required", [])
        yield from _leaves(inner, f"{path}.{name}".lstrip("."), required=needed)


def test_reference_lists_each_field_of_the_spec_with_its_default() -> None:
    crd = yaml.safe_load(resources.crd_path().read_text())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    documented = {name: cells[1] for name, cells in _rows("Spec").items() if "." in name or name == "runtime"}
    assert documented == dict(_leaves(spec))


def test_reference_lists_each_annotation_that_is_known() -> None:
    _, faults = parse_options({f"{PREFIX}surprise": "1"}, {})
    known = set(re.findall(r"plnt\.work/[a-z-]+", faults[0].split("this version knows")[1]))
    assert set(_rows("Annotations")) == known


def test_reference_names_each_phase_and_condition() -> None:
    words = set(re.findall(r"\w+", REFERENCE))
    assert {phase.value for phase in Phase} <= words
    assert {condition.value for condition in ConditionType} <= words
