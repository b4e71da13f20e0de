"""How istiod and Envoy are started and joined.

Envoy keeps a listener of its own and takes only that listener's routes from istiod; the clusters come from a file,
because the endpoints that istiod knows are the addresses that pods report, which nothing may dial.
"""

from pathlib import Path
from typing import Any

from plnt.model import names

ISTIO_NAMESPACE = "istio-system"
"""Namespace that istiod keeps its own objects in; it must exist."""
ISTIO_VERSION = "1.30.0"
"""Version that Envoy claims to be: istiod adapts what it sends to it."""
_HTTP2 = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_CONNECTION_MANAGER = (
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
)
_ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"


def clusters_file(state: Path) -> Path:
    """Give the file in the state folder that the feed replaces and Envoy watches."""
    return state / "envoy" / "cds.json"


def render_mesh_config(istiod_port: int) -> dict[str, Any]:
    """Render istiod's mesh config: plain text, and nothing but the cluster's own Services."""
    return {
        "enableAutoMtls": False,
        "accessLogFile": "",
        "outboundTrafficPolicy": {"mode": "REGISTRY_ONLY"},
        "defaultConfig": {"discoveryAddress": f"127.0.0.1:{istiod_port}"},
    }


def istiod_command(
    program: Path, *, kubeconfig: Path, mesh_config: Path, port: int, http_port: int, monitoring_port: int
) -> list[str]:
    """Give istiod's command: discovery in plain text on loopback, no webhooks, no certificates."""
    return [
        str(program),
        "discovery",
        f"--kubeconfig={kubeconfig}",
        f"--meshConfig={mesh_config}",
        f"--grpcAddr=127.0.0.1:{port}",
        "--secureGRPCAddr=",
        "--httpsAddr=",
        f"--httpAddr=127.0.0.1:{http_port}",
        f"--monitoringAddr=127.0.0.1:{monitoring_port}",
        "--ctrlz_port=0",
    ]


def istiod_environment() -> dict[str, str]:
    """Give what istiod reads of its environment; metadata exchange is a filter that stock Envoy does not have."""
    return {
        "POD_NAME": "istiod",
        "POD_NAMESPACE": ISTIO_NAMESPACE,
        "PILOT_CERT_PROVIDER": "none",
        "PILOT_ENABLE_METADATA_EXCHANGE": "false",
    }


def envoy_command(program: Path, bootstrap: Path) -> list[str]:
    """Give Envoy's command; without hot restart, two Envoys share nothing."""
    return [str(program), "-c", str(bootstrap), "--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"]


def render_bootstrap(clusters: Path, *, port: int, admin_port: int, istiod_port: int, domain: str) -> dict[str, Any]:
    """Render Envoy's bootstrap: an HTTP proxy on ``port`` for the Services' hosts, routed as istiod says."""
    return {
        "node": {
            "id": f"sidecar~127.0.0.1~envoy.default~default.svc.{domain}",
            "cluster": "envoy.default",
            "metadata": {
                "NAMESPACE": "default",
                "CLUSTER_ID": "Kubernetes",
                "ISTIO_VERSION": ISTIO_VERSION,
                "LABELS": {"app": "envoy"},
            },
        },
        "admin": {"address": _address(admin_port)},
        "dynamic_resources": {
            "ads_config": {
                "api_type": "GRPC",
                "transport_api_version": "V3",
                "grpc_services": [{"envoy_grpc": {"cluster_name": "istiod"}}],
            },
            "cds_config": {
                "path_config_source": {"path": str(clusters), "watched_directory": {"path": str(clusters.parent)}},
                "resource_api_version": "V3",
            },
        },
        "static_resources": {
            "clusters": [_render_istiod(istiod_port)],
            "listeners": [{"name": "proxy", "address": _address(port), "filter_chains": [_render_proxy()]}],
        },
    }


def _render_istiod(port: int) -> dict[str, Any]:
    return {
        "name": "istiod",
        "type": "STATIC",
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": _HTTP2,
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        },
        "load_assignment": {
            "cluster_name": "istiod",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(port)}}]}],
        },
    }


def _render_proxy() -> dict[str, Any]:
    """Take the routes of the Services' port from istiod; a stream may be silent for as long as it likes."""
    manager = {
        "@type": _CONNECTION_MANAGER,
        "stat_prefix": "proxy",
        "stream_idle_timeout": "0s",
        "rds": {
            "route_config_name": str(names.SERVICE_PORT),
            "config_source": {"ads": {}, "resource_api_version": "V3"},
        },
        "http_filters": [{"name": "router", "typed_config": {"@type": _ROUTER}}],
    }
    return {"filters": [{"name": "http", "typed_config": manager}]}


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}
