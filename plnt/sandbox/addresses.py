"""Where a simulated pod really listens.

The API server refuses loopback addresses in endpoints, so a pod reports 10.N.b.c; on Linux every 127.N.b.c answers
without any set-up, so that is where it listens, on its own port. N is the sandbox's.
"""

from ipaddress import IPv4Address

POD_NETWORK = 10
LOOPBACK = 127


def listen_address(pod_ip: str) -> str:
    """Give the loopback address of the pod that reports ``pod_ip``.

    Raises:
        ValueError: it is no address of a simulated pod.
    """
    first, *rest = IPv4Address(pod_ip).packed
    if first != POD_NETWORK:
        raise ValueError(f"{pod_ip} is no address of a simulated pod: those are {POD_NETWORK}.N.b.c")
    return str(IPv4Address(bytes([LOOPBACK, *rest])))


def pod_address(number: int, index: int) -> str:
    """Give the address that pod ``index`` of the sandbox with range ``number`` reports; indexes from 0 to 65 000."""
    high, low = divmod(index, 250)
    return f"{POD_NETWORK}.{number}.{high}.{low + 1}"
