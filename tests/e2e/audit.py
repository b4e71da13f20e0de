"""The API server's audit logs of a session: who did what with which right."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

CREATED = 201
PREFIXES = ("plnt-", "system:serviceaccount:plnt-system:plnt-")


@dataclass(frozen=True, order=True)
class Use:
    """One kind of request of one component."""

    component: str
    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.component}: {self.verb} {self.resource}{f'.{self.group}' if self.group else ''}"


@dataclass(frozen=True)
class Request:
    """One request, in the order of the log."""

    use: Use
    is_forbidden: bool
    path: str


def read_requests(log: Path) -> list[Request]:
    """Read the product's requests for objects; discovery and the like need no role.

    An apply that made its object was also asked for the right to create it, though the log says ``patch`` alone.
    """
    found = []
    for line in log.read_text().splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue  # the last line of a log whose server was killed
        component = _component(event["user"]["username"])
        reference = event.get("objectRef")
        if component and reference and "resource" in reference:
            resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
            use = Use(component, reference.get("apiGroup", ""), resource, event["verb"])
            decision = event.get("annotations", {}).get("authorization.k8s.io/decision")
            found.append(Request(use, decision == "forbid", event["requestURI"]))
            if use.verb == "patch" and event.get("responseStatus", {}).get("code") == CREATED:
                found.append(Request(replace(use, verb="create"), is_forbidden=False, path=event["requestURI"]))
    return found


def _component(user: str) -> str:
    return next((user.removeprefix(prefix) for prefix in PREFIXES if user.startswith(prefix)), "")


def find_forbidden(requests: Sequence[Request]) -> list[Request]:
    """Give the refused requests, less those of a right that is held: a server that starts knows no roles yet."""
    held = {_scope(request) for request in requests if not request.is_forbidden}
    return [request for request in requests if request.is_forbidden and _scope(request) not in held]


def _scope(request: Request) -> tuple[Use, bool]:
    return request.use, "/namespaces/" in request.path


def list_grants(roles: Iterable[dict[str, Any]]) -> set[Use]:
    """Give every single grant of the rendered roles."""
    return {
        Use(role["metadata"]["labels"]["app.kubernetes.io/component"], group, resource, verb)
        for role in roles
        for rule in role.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
