"""The traffic objects of a WorkflowRun as manifests, and what a manifest read back says.

Traffic is split by host between the revisions' own Services (``docs/adr/0005-traffic-by-service-host.md``).
Every render gives the whole field set of its object: a server-side apply that leaves a field out removes it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from plnt.model import names
from plnt.model.message import Message
from plnt.model.messages import ServingRecord

Object = dict[str, Any]

FULL = 100
"""Sum of a route's weights; meshes before Istio 1.13 refuse any other sum."""
ROUTE_NAME = "plnt"
"""Name of the one http route."""
INSTANCE_LABEL = "app.kubernetes.io/instance"
"""Label by which front and revision Services select the pods of a release."""
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
SLICE_SERVICE_LABEL = "kubernetes.io/service-name"
"""Label of an EndpointSlice that names its Service."""


class Site(Message):
    """Whose traffic objects these are, where they live, and the run that writes them."""

    namespace: str
    name: str
    """Name of the WorkflowRun."""
    base: str
    cluster_domain: str
    run_id: str

    @property
    def front_host(self) -> str:
        """Host of the front Service."""
        return names.service_host(self.base, self.namespace, self.cluster_domain)


def choose_weights(stable: str | None, canary: str, canary_percent: int) -> dict[str, int]:
    """Give revision -> weight, the stable one first; it stays a destination at weight 0."""
    if stable is None or stable == canary:
        return {canary: FULL}
    return {stable: FULL - canary_percent, canary: canary_percent}


def render_route(site: Site, weights: Mapping[str, int], serving: str | None) -> Object:
    """Render the VirtualService.

    No timeout, since one would cut streams; no retries, since a repeated completion costs a GPU twice.
    """
    serving_note = {} if serving is None else {names.SERVING_ANNOTATION: serving}
    return {
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": render_metadata(site, serving_note),
        "spec": {
            "hosts": [site.front_host],
            "http": [
                {
                    "name": ROUTE_NAME,
                    "route": [_destination(site, revision, weight) for revision, weight in weights.items()],
                    "retries": {"attempts": 0},
                }
            ],
        },
    }


def _destination(site: Site, revision: str, weight: int) -> Object:
    release = names.release_name(site.base, revision)
    host = names.service_host(release, site.namespace, site.cluster_domain)
    return {"destination": {"host": host, "port": {"number": names.SERVICE_PORT}}, "weight": weight}


def render_metadata(site: Site, annotations: Mapping[str, str]) -> Object:
    """Give the metadata of an object named after the WorkflowRun: whose it is, and which run wrote it."""
    return {
        "name": site.base,
        "namespace": site.namespace,
        "labels": {names.OWNER_LABEL: site.base, MANAGED_BY_LABEL: "plnt"},
        "annotations": {names.CLAIM_ANNOTATION: site.name, names.RUN_ANNOTATION: site.run_id, **annotations},
    }


def read_weights(base: str, route: Object) -> dict[str, int]:
    """Give revision -> weight of a VirtualService; a single destination gets everything, whatever its weight."""
    rules = route.get("spec", {}).get("http") or []
    destinations = [entry for rule in rules for entry in rule.get("route") or []]
    if len(destinations) == 1:
        return {_revision(base, destinations[0]): FULL}
    return {_revision(base, entry): int(entry.get("weight", 0)) for entry in destinations}


def _revision(base: str, entry: Object) -> str:
    host: str = entry["destination"]["host"]
    return names.revision_of(base, host.partition(".")[0])


def read_serving(route: Object) -> str | None:
    """Give the revision that Promoting put at weight 100, by the VirtualService's annotation."""
    return _annotations(route).get(names.SERVING_ANNOTATION)


def is_own_route(site: Site, route: Object) -> bool:
    """Tell whether a VirtualService of the base name was written for this WorkflowRun."""
    return _annotations(route).get(names.CLAIM_ANNOTATION) == site.name


def find_route_difference(site: Site, wanted: Object, seen: Object | None) -> str:
    """Give what a VirtualService read back does otherwise than ``wanted``; empty when nothing."""
    if seen is None:
        return "it is gone"
    if seen["spec"].get("hosts") != wanted["spec"]["hosts"]:
        return f"its hosts are {seen['spec'].get('hosts')}"
    rules = seen["spec"].get("http") or []
    if len(rules) != 1 or rules[0].get("match"):
        return "it has http routes that plnt did not write"
    if read_weights(site.base, seen) != read_weights(site.base, wanted):
        return f"its weights are {read_weights(site.base, seen)}"
    if read_serving(seen) != read_serving(wanted):
        return f"its annotation {names.SERVING_ANNOTATION} is {read_serving(seen)}"
    return ""


def render_front(site: Site, record: ServingRecord | None) -> Object:
    """Render the front Service: selecting the recorded release, or claimed but selecting nothing."""
    note = {} if record is None else {names.RECORD_ANNOTATION: record.model_dump_json()}
    port = {"name": "http", "port": names.SERVICE_PORT, "targetPort": "http", "protocol": "TCP"}
    spec: Object = {"type": "ClusterIP", "ports": [port]}
    if record is not None:
        spec["selector"] = {INSTANCE_LABEL: record.release}
    return {"apiVersion": "v1", "kind": "Service", "metadata": render_metadata(site, note), "spec": spec}


def read_claim(front: Object) -> str | None:
    """Give the name of the WorkflowRun that claimed a front Service; none = not plnt's Service."""
    return _annotations(front).get(names.CLAIM_ANNOTATION)


def read_selected_release(front: Object) -> str | None:
    """Give the release that a front Service selects; none = it selects nothing."""
    selector = front.get("spec", {}).get("selector") or {}
    release: str | None = selector.get(INSTANCE_LABEL)
    return release


def read_record(front: Object) -> ServingRecord | None:
    """Give the serving record of a front Service.

    Raises:
        ValueError: the annotation holds something else.
    """
    text = _annotations(front).get(names.RECORD_ANNOTATION)
    return None if text is None else ServingRecord.model_validate_json(text)


def find_front_difference(wanted: Object, seen: Object | None) -> str:
    """Give what a front Service read back does otherwise than ``wanted``; empty when nothing."""
    if seen is None:
        return "it is gone"
    selector = seen["spec"].get("selector") or {}
    if selector != wanted["spec"].get("selector", {}):
        return f"its selector is {selector}"
    for key in (names.CLAIM_ANNOTATION, names.RECORD_ANNOTATION):
        if _annotations(seen).get(key) != _annotations(wanted).get(key):
            return f"its annotation {key} is {_annotations(seen).get(key)}"
    return ""


def has_ready_endpoint(slices: Iterable[Object], release: str) -> bool:
    """Tell whether EndpointSlices hold a ready pod of ``release``.

    Right after the selector moved they may still list the pods of the release before; those don't count.
    """
    endpoints = (endpoint for part in slices for endpoint in part.get("endpoints") or [])
    return any(_is_ready(endpoint) and _belongs_to(endpoint, release) for endpoint in endpoints)


def _is_ready(endpoint: Object) -> bool:
    # The API asks to read a missing condition as true.
    return (endpoint.get("conditions") or {}).get("ready") is not False


def _belongs_to(endpoint: Object, release: str) -> bool:
    pod: str = (endpoint.get("targetRef") or {}).get("name", "")
    return pod.startswith(f"{release}-")


def _annotations(manifest: Object) -> dict[str, str]:
    return manifest.get("metadata", {}).get("annotations") or {}
