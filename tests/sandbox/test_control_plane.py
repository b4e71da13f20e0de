from plnt import resources
from plnt.sandbox.running import Sandbox


async def test_crd_that_the_sandbox_applied_is_unchanged_when_a_user_applies_it(control_plane: Sandbox) -> None:
    said = await control_plane.kubectl("apply", "-f", str(resources.crd_path()))
    assert said.split() == ["customresourcedefinition.apiextensions.k8s.io/workflowruns.plnt.work", "unchanged"]


async def test_pools_act_under_their_own_names(control_plane: Sandbox) -> None:
    kubeconfig = control_plane.state.kubeconfig_of("weights")
    said = await control_plane.kubectl("auth", "whoami", f"--kubeconfig={kubeconfig}")
    assert "plnt-weights" in said


async def test_kubectl_and_server_know_their_versions(control_plane: Sandbox) -> None:
    said = await control_plane.kubectl("version")
    assert "Server Version: v1.37" in said


async def test_virtual_services_are_served(control_plane: Sandbox) -> None:
    assert "virtualservices" in await control_plane.kubectl("api-resources", "--api-group=networking.istio.io")
