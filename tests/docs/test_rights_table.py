"""The table of rights in the documentation and the roles of the platform chart are one."""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from plnt.sandbox.product import PRODUCT
from plnt.sandbox.programs import Programs
from tests.deploy.test_chart import render, select

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
Rights = dict[str, set[str]]
"""Verbs by resource."""


def parse_cell(text: str) -> Rights:
    """Read ``configmaps, services: get list; pods: list``."""
    found: Rights = {}
    for part in text.split(";"):
        resources, _, verbs = part.strip().partition(": ")
        if verbs:
            found |= {resource: set(verbs.split()) for resource in resources.split(", ")}
    return found


def read_rules(roles: list[dict[str, Any]]) -> dict[str, Rights]:
    found: dict[str, Rights] = defaultdict(dict)
    for role in roles:
        for rule in role["rules"]:
            process = role["metadata"]["labels"]["app.kubernetes.io/component"]
            found[process] |= {resource: set(rule["verbs"]) for resource in rule["resources"]}
    return found


def test_table_of_rights_is_what_the_chart_grants(programs: Programs) -> None:
    objects = render(programs, {"namespaces": ["team-a"]})
    rows = re.findall(r"^\| (\w+) \|(.*)\|(.*)\|$", PAGE.read_text(), re.MULTILINE)
    assert {name for name, _, _ in rows} == {"Process", *PRODUCT}
    for column, kind in ((1, "Role"), (2, "ClusterRole")):
        granted = read_rules(select(objects, kind))
        assert {row[0]: cell for row in rows if (cell := parse_cell(row[column]))} == granted
