"""The platform chart as helm renders it, and the files that are derived from it."""

import importlib.util
import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from kubernetes_validate import validate  # type: ignore[import-untyped]

from activities.pools import POOLS
from plnt.resources import platform_chart
from plnt.sandbox.product import PRODUCT
from plnt.sandbox.programs import Programs

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CLAIMS: dict[str, Any] = {
    "cache": {
        "claim": {"create": True, "tenantNamespaces": ["team-a"], "backing": {"nfs": {"server": "s", "path": "/"}}}
    }
}
SCRAPERS = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
OWN_KINDS = {"PodMonitor"}
"""Kinds that the API server does not bring along."""

pytestmark = pytest.mark.timeout(120)


def run_helm(
    programs: Programs, *arguments: str, values: dict[str, Any] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [str(programs.helm), *arguments, *(["--values", "-"] if values is not None else [])]
    return subprocess.run(command, input=json.dumps(values), capture_output=True, check=False, text=True)


def render(programs: Programs, values: dict[str, Any]) -> list[dict[str, Any]]:
    done = run_helm(programs, "template", "plnt", str(platform_chart()), "-n", "plnt-system", values=values)
    assert done.returncode == 0, done.stderr
    return [body for body in yaml.safe_load_all(done.stdout) if body]


def select(objects: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [body for body in objects if body["kind"] == kind]


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("deploy_render", DEPLOY / "render.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_chart_passes_the_strict_lint(programs: Programs) -> None:
    done = run_helm(programs, "lint", "--strict", str(platform_chart()))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({}, id="defaults"),
        pytest.param({"namespaces": ["team-a", "team-b"]}, id="listed namespaces"),
        pytest.param(CLAIMS, id="claims and volumes"),
        pytest.param({"metrics": {"service": True, "podMonitor": True}}, id="metrics"),
        pytest.param({"networkPolicy": {"enabled": True, "metricsFrom": SCRAPERS}}, id="network policy"),
    ],
)
def test_rendered_objects_are_what_kubernetes_takes(programs: Programs, values: dict[str, Any]) -> None:
    for body in render(programs, values):
        if body["kind"] not in OWN_KINDS:
            validate(body, "1.34", strict=True)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"bogus": 1}, "bogus"),
        ({"pools": {"gpu": {"replica": 2}}}, "replica"),
        ({"temporal": {"address": "http://x"}}, "address"),
        ({"logLevel": "LOUD"}, "logLevel"),
        ({"namespaces": ["Team"]}, "namespaces"),
        ({"kubernetes": {"tokenSeconds": 60}}, "tokenSeconds"),
        ({"networkPolicy": {"metricsFrom": [{"namespace": "monitoring"}]}}, "metricsFrom"),
    ],
)
def test_wrong_value_is_refused_by_name(programs: Programs, values: dict[str, Any], named: str) -> None:
    done = run_helm(programs, "template", "plnt", str(platform_chart()), values=values)
    assert done.returncode != 0
    assert named in done.stderr


def test_values_that_the_installation_page_begins_with_are_taken(programs: Programs) -> None:
    page = (DEPLOY.parent / "docs" / "installation.md").read_text()
    (shown,) = (block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if block.startswith("image:"))
    objects = render(programs, yaml.safe_load(shown))
    assert len(select(objects, "PersistentVolume")) == 2


def test_manifests_and_readme_are_what_the_script_writes(programs: Programs) -> None:
    script = load_script()
    assert script.README.read_text() == script.render_readme(script.README.read_text())
    for name, arguments in script.MODES.items():
        assert (script.MANIFESTS / name).read_text() == script.render_manifests(str(programs.helm), arguments), name


def test_nobody_may_read_secrets_run_commands_or_widen_rights(programs: Programs) -> None:
    roles = [body for kind in ("Role", "ClusterRole") for body in select(render(programs, {"namespaces": ["a"]}), kind)]
    rules = [rule for role in roles for rule in role["rules"]]
    granted = {word for rule in rules for key in ("apiGroups", "resources", "verbs") for word in rule[key]}
    assert rules
    assert granted.isdisjoint({"*", "secrets", "pods/exec", "pods/attach", "nodes/proxy", "serviceaccounts/token"})
    assert granted.isdisjoint({"bind", "escalate", "impersonate", "rbac.authorization.k8s.io"})


def test_listed_namespaces_leave_nothing_but_counting_to_the_cluster(programs: Programs) -> None:
    objects = render(programs, {"namespaces": ["team-a"]})
    cluster = select(objects, "ClusterRole")
    assert [role["metadata"]["name"] for role in cluster] == ["plnt-gpu"]
    assert {verb for role in cluster for rule in role["rules"] for verb in rule["verbs"]} == {"list"}
    roles = {(role["metadata"]["namespace"], role["metadata"]["name"]) for role in select(objects, "Role")}
    assert roles == {("team-a", f"plnt-{name}") for name in ("bridge", "deploy", "promote")}


def test_each_process_has_an_account_of_its_own_and_bindings_name_it(programs: Programs) -> None:
    objects = render(programs, {})
    accounts = {body["metadata"]["name"] for body in select(objects, "ServiceAccount")}
    assert accounts == {f"plnt-{name}" for name in PRODUCT}
    for binding in select(objects, "ClusterRoleBinding"):
        assert [subject["name"] for subject in binding["subjects"]] == [binding["roleRef"]["name"]]


def test_pods_are_restricted_and_bounded(programs: Programs) -> None:
    for body in select(render(programs, {}), "Deployment"):
        spec = body["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]


def test_pods_get_longer_to_stop_than_their_pools_take(programs: Programs) -> None:
    for body in select(render(programs, {}), "Deployment"):
        name = body["metadata"]["labels"]["app.kubernetes.io/component"]
        if name in POOLS:
            seconds = body["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
            assert seconds > POOLS[name].grace.total_seconds(), name


def test_claims_are_bound_to_volumes_of_their_own_and_stay_when_the_release_goes(programs: Programs) -> None:
    objects = render(programs, CLAIMS)
    claims, volumes = select(objects, "PersistentVolumeClaim"), select(objects, "PersistentVolume")
    assert {claim["metadata"]["namespace"] for claim in claims} == {"plnt-system", "team-a"}
    named = {volume["metadata"]["name"]: volume["spec"]["claimRef"]["namespace"] for volume in volumes}
    for claim in claims:
        assert named[claim["spec"]["volumeName"]] == claim["metadata"]["namespace"]
    for body in (*claims, *volumes):
        assert body["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_network_policy_lets_scrapes_in_to_every_process_and_nothing_else(programs: Programs) -> None:
    assert select(render(programs, {}), "NetworkPolicy") == []
    objects = render(programs, {"networkPolicy": {"enabled": True, "metricsFrom": SCRAPERS}})
    (policy,) = select(objects, "NetworkPolicy")
    scrapes = {"ports": [{"port": "metrics", "protocol": "TCP"}], "from": SCRAPERS}
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert policy["spec"]["ingress"] == [scrapes]
    for body in select(objects, "Deployment"):
        pod = body["spec"]["template"]
        assert pod["metadata"]["labels"].items() >= policy["spec"]["podSelector"]["matchLabels"].items()
        assert "metrics" in {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
    (policy,) = select(render(programs, {"networkPolicy": {"enabled": True}}), "NetworkPolicy")
    assert policy["spec"]["ingress"] == [{"ports": scrapes["ports"]}]


def test_chart_and_package_have_one_version(programs: Programs) -> None:
    chart = yaml.safe_load((platform_chart() / "Chart.yaml").read_text())
    text = (DEPLOY.parent / "pyproject.toml").read_text()
    assert f'\nversion = "{chart["version"]}"\n' in text
    assert chart["appVersion"] == chart["version"]
