from pathlib import Path

import pytest

from plnt.sandbox.backing import S3_SECRET_KEY
from plnt.sandbox.component import Component, Site
from plnt.sandbox.components import list_components
from plnt.sandbox.polling import QUEUES
from plnt.sandbox.ports import Block
from plnt.sandbox.product import PRODUCT
from plnt.sandbox.programs import Programs
from plnt.sandbox.state import State
from plnt.settings import BridgeSettings, PoolSettings

BIN = Path("/opt/servers")
PROGRAMS = Programs(BIN, BIN / "crds", BIN / "kubectl", BIN / "temporal", BIN / "weed", BIN / "envoy")


@pytest.fixture
def components(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Component]:
    for name in ("KUBECONFIG", "AWS_PROFILE", "TEMPORAL_ADDRESS", "PLNT_PROVIDER", "https_proxy"):
        monkeypatch.setenv(name, "the user's own")
    site = Site(State(tmp_path), Block(21_000, 101), PROGRAMS, {"PLNT_BAKE_SECONDS": "9"})
    return {component.name: component for component in list_components(site)}


def test_no_two_components_share_a_port(components: dict[str, Component]) -> None:
    ports = [port for component in components.values() for port in component.ports]
    assert len(set(ports)) == len(ports)
    assert all(21_000 <= port < 21_060 for port in ports)


def test_every_product_process_acts_as_a_user_of_its_own(components: dict[str, Component]) -> None:
    kubeconfigs = {components[name].env["KUBECONFIG"] for name in PRODUCT}
    assert len(kubeconfigs) == len(PRODUCT)


def test_settings_of_the_users_shell_reach_no_component(components: dict[str, Component]) -> None:
    assert not [name for name, component in components.items() if "the user's own" in component.env.values()]


def test_product_settings_are_valid_and_overridden(components: dict[str, Component]) -> None:
    assert BridgeSettings.read(components["bridge"].env).bake_seconds == 9
    weights, deploy = (PoolSettings.read(components[name].env) for name in ("weights", "deploy"))
    assert weights.cache_volume == deploy.cache_volume
    assert weights.cache_volume["nfs"]["server"] == "weights.plnt.test"


def test_no_secret_is_in_a_command(components: dict[str, Component]) -> None:
    assert not [name for name, one in components.items() if any(S3_SECRET_KEY in part for part in one.command)]


def test_only_the_product_is_restarted(components: dict[str, Component]) -> None:
    assert {name for name, component in components.items() if component.restarts} == set(PRODUCT) == set(QUEUES)


def test_only_smoke_and_weights_are_told_of_servers_outside_kubernetes(components: dict[str, Component]) -> None:
    assert {name for name in PRODUCT if "HTTP_PROXY" in components[name].env} == {"smoke"}
    assert {name for name in PRODUCT if "AWS_SECRET_ACCESS_KEY" in components[name].env} == {"weights"}
