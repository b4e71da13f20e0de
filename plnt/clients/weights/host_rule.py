"""Which hosts weights may be fetched from: a spec must not make plnt read the installation's inside."""

import socket
from collections.abc import Collection
from ipaddress import IPv6Address, ip_address

from plnt.errors import SpecInvalid

AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int] | tuple[str, int, int, int]]


class HostRule:
    """Refuses addresses that are not public, except for hosts that the operator named.

    ``trusted`` holds ``host:port``; the operator's own endpoint override is one of them.
    """

    def __init__(self, trusted: Collection[str] = ()) -> None:
        self._trusted = frozenset(entry.lower() for entry in trusted)

    def is_trusted(self, host: str, port: int) -> bool:
        """Tell whether the operator named ``host:port``: it may be inside, and need not speak TLS."""
        return f"{host}:{port}".lower() in self._trusted

    def resolve(self, host: str, port: int) -> list[AddressInfo]:
        """Give the addresses of ``host`` to connect to; connecting to these, no name is looked up twice.

        Raises:
            OSError: the name has no address now.
            SpecInvalid: one of them is private, link-local or loopback.
        """
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        if not self.is_trusted(host, port):
            inside = next((str(info[4][0]) for info in found if not _is_public(str(info[4][0]))), "")
            if inside:
                raise SpecInvalid(
                    f"spec.model.storageUri leads to {host}:{port} at {inside}, which is not a public address: an "
                    f"operator can allow it by adding {host}:{port} to PLNT_WEIGHTS_PRIVATE_HOSTS"
                )
        return found  # type: ignore[return-value]


def _is_public(text: str) -> bool:
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_global and not address.is_multicast
