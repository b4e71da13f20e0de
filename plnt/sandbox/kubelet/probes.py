"""Startup, readiness and liveness probes, executed as written."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from plnt.clients.kube import Object


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe; times in seconds, defaults of Kubernetes."""

    kind: str
    port: int = 0
    path: str = "/"
    scheme: str = "http"
    headers: dict[str, str] = field(default_factory=dict)
    initial_delay: float = 0
    period: float = 10
    timeout: float = 1
    successes: int = 1
    failures: int = 3
    grace: int | None = None
    """Own grace period of a probe whose failure ends the container."""


def read_probe(raw: Object | None, ports: list[Object]) -> Probe | None:
    """Read a probe; a port may be given by its name among the container's ``ports``."""
    if not raw:
        return None
    kind = next((k for k in ("httpGet", "tcpSocket", "exec", "grpc") if k in raw), "none")
    action: dict[str, Any] = raw.get(kind) or {}
    return Probe(
        kind=kind,
        port=_find_port(action.get("port", 0), ports),
        path="/" + str(action.get("path") or "/").lstrip("/"),
        scheme=str(action.get("scheme") or "HTTP").lower(),
        headers={header["name"]: header["value"] for header in action.get("httpHeaders") or []},
        initial_delay=raw.get("initialDelaySeconds") or 0,
        period=raw.get("periodSeconds") or 10,
        timeout=raw.get("timeoutSeconds") or 1,
        successes=raw.get("successThreshold") or 1,
        failures=raw.get("failureThreshold") or 3,
        grace=raw.get("terminationGracePeriodSeconds"),
    )


def _find_port(given: int | str, ports: list[Object]) -> int:
    if isinstance(given, int):
        return given
    named = {port.get("name"): int(port["containerPort"]) for port in ports}
    return named.get(given, 0)


@dataclass(slots=True)
class Tally:
    """Counts a probe's results until a threshold is reached."""

    probe: Probe
    successes: int = 0
    failures: int = 0

    def record(self, *, passed: bool) -> bool | None:
        """Count a result; gives the verdict when a threshold is reached, none before."""
        if passed:
            self.successes, self.failures = self.successes + 1, 0
            return True if self.successes >= self.probe.successes else None
        self.successes, self.failures = 0, self.failures + 1
        return False if self.failures >= self.probe.failures else None


async def execute(session: aiohttp.ClientSession, probe: Probe, host: str) -> str:
    """Execute the probe once at ``host``; gives an empty string when it passed, else what went wrong."""
    try:
        async with asyncio.timeout(probe.timeout):
            if probe.kind == "httpGet":
                return await _get(session, probe, host)
            if probe.kind == "tcpSocket":
                _, writer = await asyncio.open_connection(host, probe.port)
                writer.close()
                return ""
    except TimeoutError:
        return f"no answer within {probe.timeout:g} s"
    except (aiohttp.ClientError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    return f"a probe by {probe.kind} is not simulated"


async def _get(session: aiohttp.ClientSession, probe: Probe, host: str) -> str:
    url = f"{probe.scheme}://{host}:{probe.port}{probe.path}"
    async with session.get(url, headers=probe.headers, allow_redirects=False, ssl=False) as response:
        return "" if 200 <= response.status < 400 else f"HTTP probe failed with statuscode: {response.status}"
