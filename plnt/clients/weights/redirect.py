"""Where a source's redirect leads, and what goes along."""

from urllib.parse import SplitResult, urljoin, urlsplit

from plnt.clients.weights.host_rule import HostRule
from plnt.clients.weights.source import Link
from plnt.errors import SpecInvalid

REDIRECTS = frozenset({301, 302, 303, 307, 308})
DEFAULT_PORTS = {"http": 80, "https": 443}
_SECRET_HEADERS = frozenset({"authorization", "cookie"})


def follow(link: Link, location: str, rule: HostRule) -> Link:
    """Give the link behind a redirect; credentials stay behind when scheme, host or port change.

    Which address the new host has is checked when it is connected to.

    Raises:
        SpecInvalid: it leads from TLS to plain HTTP, or to no HTTP at all.
    """
    before, url = urlsplit(link.url), urljoin(link.url, location)
    after = urlsplit(url)
    if not location or after.scheme not in DEFAULT_PORTS or not after.hostname:
        raise SpecInvalid("spec.model.storageUri leads to a source that redirects to no HTTP address")
    downgrades = before.scheme == "https" and after.scheme == "http"
    if downgrades and not rule.is_trusted(after.hostname, port_of(after)):
        raise SpecInvalid(
            f"spec.model.storageUri leads to {after.hostname} without TLS: an operator can allow it by adding "
            f"{after.hostname}:{port_of(after)} to PLNT_WEIGHTS_PRIVATE_HOSTS"
        )
    same = _origin(before) == _origin(after)
    kept = {key: value for key, value in link.headers.items() if same or key.lower() not in _SECRET_HEADERS}
    return Link(url, kept, follows=True)


def port_of(url: SplitResult) -> int:
    """Give the port that a URL means."""
    return url.port or DEFAULT_PORTS.get(url.scheme, 443)


def _origin(url: SplitResult) -> tuple[str, str, int]:
    return url.scheme, (url.hostname or "").lower(), port_of(url)


def trusted_hosts(endpoint: str) -> frozenset[str]:
    """Give the hosts of an endpoint that the operator set."""
    parts = urlsplit(endpoint)
    return frozenset({f"{parts.hostname}:{port_of(parts)}"})
