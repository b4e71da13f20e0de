"""What a sandbox's cluster holds before anybody uses it: kinds, users' rights, the mesh's namespace."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml
from kubernetes_asyncio import client, config

from plnt.clients.kube import Kube, Resource
from plnt.errors import ApiUnavailable, Conflict, NotFound, PermanentError
from plnt.resources import platform_chart
from plnt.sandbox.programs import Programs
from plnt.sandbox.waiting import wait_until

CRDS = Resource("apiextensions.k8s.io/v1", "customresourcedefinitions")
NAMESPACES = Resource("v1", "namespaces")
SERVICE_ACCOUNTS = Resource("v1", "serviceaccounts")
_KINDS = {
    "ClusterRole": Resource("rbac.authorization.k8s.io/v1", "clusterroles"),
    "ClusterRoleBinding": Resource("rbac.authorization.k8s.io/v1", "clusterrolebindings"),
}
_CONDITION_SECONDS = 30.0


class ClusterUnprepared(PermanentError):
    """The cluster does not take what every sandbox needs."""


@asynccontextmanager
async def open_kube(kubeconfig: Path) -> AsyncIterator[Kube]:
    """Open a client that acts as the kubeconfig's user."""
    configuration = client.Configuration()
    await config.load_kube_config(config_file=str(kubeconfig), client_configuration=configuration)
    async with client.ApiClient(configuration) as api:
        yield Kube(api)


async def run_kubectl(programs: Programs, kubeconfig: Path, *arguments: str) -> str:
    """Run kubectl and give its output.

    Raises:
        ClusterUnprepared: it failed; the message holds what it said.
    """
    process = await asyncio.create_subprocess_exec(
        str(programs.kubectl),
        f"--kubeconfig={kubeconfig}",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    if process.returncode:
        raise ClusterUnprepared(f"kubectl {' '.join(arguments)}: {err.decode(errors='replace')}")
    return out.decode()


def read_manifests(file: Path) -> list[dict[str, Any]]:
    """Read a file of manifests; Istio's takes half a second even with the C parser."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [body for body in yaml.load_all(file.read_text(), loader) if body]


async def ensure(kube: Kube, resource: Resource, body: dict[str, Any], namespace: str | None = None) -> None:
    """Create an object unless it is there."""
    with suppress(Conflict):
        await kube.create(resource, namespace, body)


async def grant_roles(kube: Kube, programs: Programs, user_of: Callable[[str], str]) -> None:
    """Give the product's users exactly the rights that the platform chart gives its accounts.

    Raises:
        ClusterUnprepared: the chart cannot be rendered.
    """
    roles = await render_roles(programs)
    await asyncio.gather(*(ensure(kube, _KINDS[body["kind"]], _rebind(body, user_of)) for body in roles))


async def render_roles(programs: Programs) -> list[dict[str, Any]]:
    """Render the roles and bindings of the platform chart.

    Raises:
        ClusterUnprepared: helm refused; the message holds what it said.
    """
    process = await asyncio.create_subprocess_exec(
        *(str(programs.helm), "template", "plnt-sandbox", str(platform_chart()), "--show-only", "templates/rbac.yaml"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    if process.returncode:
        raise ClusterUnprepared(f"the platform chart's roles: {err.decode(errors='replace')}")
    return [body for body in yaml.safe_load_all(out) if body]


def _rebind(body: dict[str, Any], user_of: Callable[[str], str]) -> dict[str, Any]:
    """Bind to the component's user of the sandbox instead of its account."""
    if "subjects" not in body:
        return body
    user = user_of(body["metadata"]["labels"]["app.kubernetes.io/component"])
    return {**body, "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]}


async def create_namespace(kube: Kube, name: str, labels: Mapping[str, str] | None = None) -> None:
    """Create a namespace and wait for the service account that its pods need.

    Raises:
        ClusterUnprepared: the controllers make no service account.
    """
    meta = {"name": name, "labels": dict(labels or {})}
    await ensure(kube, NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})

    async def has_account() -> bool:
        return await kube.find(SERVICE_ACCOUNTS, name, "default") is not None

    with _named(f"namespace {name} gets no service account"):
        await wait_until(has_account, _CONDITION_SECONDS)


async def wait_served(kube: Kube, resource: Resource) -> None:
    """Wait until the API server serves a kind.

    Raises:
        ClusterUnprepared: it does not within half a minute.
    """

    async def is_served() -> bool:
        with suppress(NotFound, ApiUnavailable):
            await kube.list(resource)
            return True
        return False

    with _named(f"{resource.plural} are not served"):
        await wait_until(is_served, _CONDITION_SECONDS)


@contextmanager
def _named(fault: str) -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise ClusterUnprepared(f"{fault} within {_CONDITION_SECONDS:.0f} s; see the API server's log") from None
