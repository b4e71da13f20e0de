"""One block of ports and one range of pod addresses per sandbox, held while it runs.

A listening socket of the launcher on the block's last port, and one inside the range, keep a second launcher
from taking the same: the kernel decides, also between two that start at one moment.
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass

import psutil

from plnt.errors import PermanentError
from plnt.sandbox.state import State

FIRST_BASE = 21_000
"""Below Linux's ephemeral ports (32768 up), away from the servers' own defaults."""
BLOCK = 60
BLOCKS = 150
FIRST_RANGE = 101
LAST_RANGE = 254
CLAIM_PORT = FIRST_BASE - 1
"""The port on 127.N.255.254 that holds the range N; no pod gets that address."""
ENGINE_PORT = 8000
"""The port that engines bind on their pod's own address: a listener on 0.0.0.0 blocks it everywhere."""

NAMES = (
    "etcd",
    "etcd-peer",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "temporal",
    "temporal-ui",
    "temporal-http",
    "temporal-metrics",
    "s3",
    "s3-grpc",
    "s3-iceberg",
    "s3-lance",
    "s3-master",
    "s3-master-grpc",
    "s3-volume",
    "s3-volume-grpc",
    "s3-filer",
    "s3-filer-grpc",
    "istiod",
    "istiod-http",
    "istiod-monitoring",
    "envoy",
    "envoy-admin",
    "kubelet",
    "bridge",
    "control",
    "gpu",
    "weights",
    "deploy",
    "smoke",
    "promote",
    "prometheus",
    "prometheus-adapter",
    "gs",
    "registry",
    "hub",
)
"""Ports by purpose, in the order of the block; a product process's is its health endpoint."""


class PortTaken(PermanentError):
    """Another process listens on a port of the block."""


@dataclass(frozen=True, slots=True)
class Block:
    """The ports of one sandbox, and N of the pods' 10.N and 127.N addresses."""

    base: int
    range: int

    def __getitem__(self, name: str) -> int:
        return self.base + NAMES.index(name)

    @property
    def ports(self) -> dict[str, int]:
        """All ports by purpose."""
        return {name: self[name] for name in NAMES}


@dataclass(frozen=True, slots=True)
class Claim:
    """A block that no other launcher can take until ``release`` is called or this process ends."""

    block: Block
    holders: tuple[socket.socket, socket.socket]

    def release(self) -> None:
        """Let others take the block."""
        for holder in self.holders:
            holder.close()


def claim_block(state: State, base: int | None = None) -> Claim:
    """Claim the asked block, the folder's, or the next free one; the folder keeps it.

    Raises:
        PortTaken: the asked or kept block is in use; the message names a port and its owner.
    """
    listeners = find_listeners()
    if ENGINE_PORT in listeners and not _bindable("127.0.0.2", ENGINE_PORT):
        raise PortTaken(
            f"port {ENGINE_PORT} of all addresses is taken by {listeners[ENGINE_PORT]}, so no simulated pod can"
            " listen; stop it"
        )
    kept = state.read_settings()
    if base is None and "portBase" not in kept:
        claim = _claim_next(listeners)
    else:
        claim = _claim_at(base or int(kept["portBase"]), kept.get("podRange"), listeners)
    block = claim.block
    state.write_settings({"portBase": block.base, "podRange": block.range, "ports": block.ports})
    return claim


def find_listeners() -> dict[int, str]:
    """Find who listens on which TCP port; other users' processes are named only as such."""
    found: dict[int, str] = {}
    for connection in psutil.net_connections(kind="tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.laddr:
            found[connection.laddr.port] = _name_process(connection.pid)
    return found


def _claim_next(listeners: Mapping[int, str]) -> Claim:
    for number in range(BLOCKS):
        base = FIRST_BASE + number * BLOCK
        if any(port in listeners for port in range(base, base + BLOCK)):
            continue
        holder = _hold("127.0.0.1", base + BLOCK - 1)
        if holder is not None:
            return _with_range(base, FIRST_RANGE + number, holder)
    raise PortTaken(f"no free block of {BLOCK} ports from {FIRST_BASE} up; stop a sandbox or give --port-base")


def _claim_at(base: int, number: int | None, listeners: Mapping[int, str]) -> Claim:
    for name, port in Block(base, 0).ports.items():
        if port in listeners:
            raise PortTaken(
                f"port {port} ({name}) is taken by {listeners[port]}; stop it, or choose other ports with --port-base"
            )
    last = base + BLOCK - 1
    holder = _hold("127.0.0.1", last)
    if holder is None:
        owner = find_listeners().get(last, "another process")
        raise PortTaken(
            f"ports {base} to {last} belong to the sandbox of {owner}; stop it, or choose others with --port-base"
        )
    return _with_range(base, number or FIRST_RANGE + (base - FIRST_BASE) // BLOCK, holder)


def _with_range(base: int, preferred: int, holder: socket.socket) -> Claim:
    count = LAST_RANGE - FIRST_RANGE + 1
    for step in range(count):
        number = FIRST_RANGE + (preferred - FIRST_RANGE + step) % count
        second = _hold(f"127.{number}.255.254", CLAIM_PORT)
        if second is not None:
            return Claim(Block(base, number), (holder, second))
    holder.close()
    raise PortTaken(f"every pod range 127.{FIRST_RANGE} to 127.{LAST_RANGE} is in use; stop a sandbox")


def _hold(host: str, port: int) -> socket.socket | None:
    holder = socket.socket()
    try:
        holder.bind((host, port))
        holder.listen(1)
    except OSError:
        holder.close()
        return None
    return holder


def _bindable(host: str, port: int) -> bool:
    holder = _hold(host, port)
    if holder is not None:
        holder.close()
    return holder is not None


def _name_process(pid: int | None) -> str:
    if pid is None:
        return "a process of another user"
    try:
        return f"{psutil.Process(pid).name()} (pid {pid})"
    except psutil.Error:
        return f"pid {pid}"
