"""Everything that a sandbox starts."""

from plnt.sandbox.backing import list_mesh, list_nodes, list_servers
from plnt.sandbox.component import Component, Site
from plnt.sandbox.control_plane import list_control_plane
from plnt.sandbox.metrics.components import list_metrics
from plnt.sandbox.product import list_product
from plnt.sandbox.sources.components import list_sources

WIDE_USERS = (
    "plnt-kube-controller-manager",
    "plnt-kube-scheduler",
    "plnt-istiod",
    "plnt-kubelet",
    "plnt-mesh",
    "plnt-prometheus-adapter",
    "plnt-metrics",
)
"""Users of the cluster's own parts: in ``system:masters``, so that they work before any role is bound."""


def list_components(site: Site) -> list[Component]:
    """Give all components in the order in which they are shown."""
    return [
        *list_control_plane(site),
        *list_servers(site),
        *list_mesh(site),
        *list_nodes(site),
        *list_metrics(site),
        *list_sources(site),
        *list_product(site),
    ]
