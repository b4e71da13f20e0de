"""The kubeconfig that the chart mounts, with tokens of a real API server."""

import json
from pathlib import Path

import pytest
import yaml

from plnt.clients import kube
from plnt.clients.helm import open_helm
from plnt.clients.kube import PODS, Kube, Resource
from plnt.errors import AccessDenied, ApiUnavailable
from plnt.resources import platform_chart
from plnt.sandbox.cluster import SERVICE_ACCOUNTS, create_namespace, open_kube
from plnt.sandbox.kubelet.projected import fill_projected
from plnt.sandbox.running import Sandbox
from plnt.sandbox.waiting import wait_until

SPACE = "tokens"
REVIEWS = Resource("authentication.k8s.io/v1", "selfsubjectreviews")
VOLUME = {"projected": {"sources": [{"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}]}}
FORGET_SECONDS = 60.0
"""The API server may believe a token for 10 s after its pod went."""


async def whoami(api: Kube) -> str:
    answer = await api.create(REVIEWS, None, {"apiVersion": REVIEWS.api, "kind": "SelfSubjectReview"})
    return str(answer["status"]["userInfo"]["username"])


async def make_pod(admin: Kube, name: str) -> kube.Object:
    spec = {"serviceAccountName": "walker", "containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10"}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": SPACE}, "spec": spec}
    return await admin.create(PODS, SPACE, body)


def write_kubeconfig(folder: Path, sandbox: Sandbox) -> Path:
    """Write what the chart's ConfigMap says, beside the CA, as the projected volume holds them."""
    template = (platform_chart() / "templates" / "kubeconfig.yaml").read_text().split("kubeconfig: |\n")[1]
    config = yaml.safe_load(template.replace("{{ .Values.kubernetes.server }}", sandbox.site.api))
    (folder / "ca.crt").write_bytes((sandbox.state.pki / "ca.crt").read_bytes())
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


async def test_client_and_helm_go_on_with_the_renewed_token_when_the_old_one_has_ended(
    control_plane: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_kube(control_plane.kubeconfig) as admin:
        await create_namespace(admin, SPACE)
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "walker"}}
        await admin.create(SERVICE_ACCOUNTS, SPACE, account)
        for right in (
            "role --verb=list --resource=configmaps",
            f"rolebinding --role=helm --serviceaccount={SPACE}:walker",
        ):
            kind, *options = right.split()
            await control_plane.kubectl("-n", SPACE, "create", kind, "helm", *options)
        first, second = await make_pod(admin, "first"), await make_pod(admin, "second")
        await fill_projected(admin, first, VOLUME, tmp_path)
        monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path, control_plane)))
        helm = await open_helm(str(control_plane.programs.helm))
        async with kube.connect() as keeper, kube.connect() as probe:
            assert await whoami(keeper) == f"system:serviceaccount:{SPACE}:walker"
            await helm.uninstall("absent", SPACE)
            await admin.delete(PODS, SPACE, "first", grace=0)

            async def is_refused() -> bool:
                try:
                    await whoami(probe)
                except AccessDenied:
                    return True
                return False

            await wait_until(is_refused, FORGET_SECONDS)
            with pytest.raises(ApiUnavailable, match="credentials"):
                await helm.uninstall("absent", SPACE)
            await fill_projected(admin, second, VOLUME, tmp_path)
            assert await whoami(keeper) == f"system:serviceaccount:{SPACE}:walker"
            await helm.uninstall("absent", SPACE)
