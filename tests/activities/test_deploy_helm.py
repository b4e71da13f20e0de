"""The helm client on stand-ins for the helm binary, and on the real one where its words count."""

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from plnt.clients.helm import Helm, explain_failure, join_surrogates, open_helm
from plnt.errors import AccessDenied, ApiUnavailable, ChartInvalid, NameTaken, PlntError, ReleaseBusy
from plnt.model.workflow_run import Runtime
from plnt.resources import chart_dir
from plnt.sandbox.programs import Programs
from plnt.sandbox.waiting import wait_until
from plnt.settings import SettingsInvalid

CHART = chart_dir(Runtime.VLLM)

MakeHelm = Callable[[str], Path]


@pytest.fixture
def make_helm(tmp_path: Path) -> MakeHelm:
    """Write a program that answers like helm and runs a piece of shell for the command that is tested."""

    def make(body: str) -> Path:
        path = tmp_path / "helm"
        show = "printf 'apiVersion: v2\\nname: c\\nversion: 0.1.0\\n'"
        path.write_text(
            "#!/bin/sh\n"
            f'cd {tmp_path}\ncase "$1" in\nversion) echo v4.3.2; exit;;\nshow) {show}; exit;;\nesac\n'
            f'echo "$@" > arguments; env > environment; touch started\n{body}\n'
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return make


async def begin(helm: Helm, call: str, folder: Path) -> asyncio.Task[None]:
    """Start a command and wait until the program runs."""
    calls = {
        "install": lambda: helm.install("m-1", "ns", CHART, {}, {"plnt.work/owner": "m"}),
        "uninstall": lambda: helm.uninstall("m-1", "ns"),
        "rollback": lambda: helm.roll_back("m-1", "ns", 1),
    }
    task = asyncio.ensure_future(calls[call]())

    async def is_started() -> bool:
        return (folder / "started").exists()

    await wait_until(is_started, 60)
    return task


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_cancelled_install_lets_helm_write_down_that_it_was_stopped(make_helm: MakeHelm, tmp_path: Path) -> None:
    helm = await open_helm(str(make_helm("trap 'touch told; exit 1' TERM; while :; do sleep 0.05; done")))
    task = await begin(helm, "install", tmp_path)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (tmp_path / "told").exists()


async def test_helm_that_ignores_the_stop_is_killed_with_its_children(
    make_helm: MakeHelm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plnt.clients.helm.STOP_SECONDS", 0.3)
    body = "trap '' TERM; echo $$ > pid; sleep 60 & echo $! > child; wait; sleep 60"
    helm = await open_helm(str(make_helm(body)))
    task = await begin(helm, "install", tmp_path)

    async def has_child() -> bool:
        return (tmp_path / "child").exists() and (tmp_path / "child").read_text().strip() != ""

    await wait_until(has_child, 60)
    task.cancel()
    async with asyncio.timeout(50):
        with pytest.raises(asyncio.CancelledError):
            await task
    pids = [int((tmp_path / name).read_text()) for name in ("pid", "child")]

    async def are_gone() -> bool:
        return not any(is_alive(pid) for pid in pids)

    await wait_until(are_gone, 50)


@pytest.mark.parametrize("call", ["uninstall", "rollback"])
async def test_cancelled_command_that_would_leave_a_lock_runs_to_its_end(
    make_helm: MakeHelm, tmp_path: Path, call: str
) -> None:
    helm = await open_helm(str(make_helm("while [ ! -e go ]; do sleep 0.05; done; touch ended")))
    task = await begin(helm, call, tmp_path)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    done, _ = await asyncio.wait([task], timeout=0.3)
    assert not done
    (tmp_path / "go").touch()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (tmp_path / "ended").exists()


async def test_install_labels_the_release_and_neither_waits_nor_undoes(make_helm: MakeHelm, tmp_path: Path) -> None:
    helm = await open_helm(str(make_helm("cat > /dev/null; exit 1")))
    with pytest.raises(PlntError):
        await helm.install("m-1", "ns", CHART, {}, {"plnt.work/owner": "m", "plnt.work/run": "r"})
    arguments = (tmp_path / "arguments").read_text()
    assert "--labels plnt.work/owner=m,plnt.work/run=r" in arguments
    assert "--reset-values" in arguments
    assert not {"--wait", "--atomic", "--rollback-on-failure", "--create-namespace"} & set(arguments.split())
    assert "HELM_DRIVER=configmap" in (tmp_path / "environment").read_text().splitlines()


FORBIDDEN = """echo 'Error: configmaps is forbidden: User "u" cannot list resource "configmaps"' >&2; exit 1"""


async def test_server_that_has_just_started_and_knows_no_roles_yet_is_asked_again(
    make_helm: MakeHelm, tmp_path: Path
) -> None:
    helm = await open_helm(str(make_helm(f"[ -e asked ] && exit 0; touch asked; {FORBIDDEN}")))
    await helm.roll_back("m-1", "ns", 1)
    assert (tmp_path / "asked").exists()


async def test_role_that_stays_missing_is_told(make_helm: MakeHelm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plnt.clients.helm.FORBIDDEN_SECONDS", 0.0)
    helm = await open_helm(str(make_helm(FORBIDDEN)))
    with pytest.raises(AccessDenied, match="cannot list resource"):
        await helm.roll_back("m-1", "ns", 1)


async def test_missing_helm_is_named() -> None:
    with pytest.raises(SettingsInvalid, match="not found on PATH; the deploy pool needs Helm 4"):
        await open_helm("no-such-helm")


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Error: UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress", ReleaseBusy),
        ("Error: release: already exists", ReleaseBusy),
        ('Error: Service "m-1" exists and cannot be imported into the current release: x', NameTaken),
        ('Error: kubernetes cluster unreachable: Get "https://127.0.0.1:1/version": connect: refused', ApiUnavailable),
        ("Error: etcdserver: request timed out", ApiUnavailable),
        ('Error: deployments.apps is forbidden: User "u" cannot create resource', AccessDenied),
        ("Error: values don't meet the specifications of the schema(s) in the following chart(s)", ChartInvalid),
        ('Error: namespaces "nope" not found', ChartInvalid),
        ("Error: something that nobody has seen yet", ApiUnavailable),
        ("", ApiUnavailable),
    ],
)
def test_words_of_helm_become_one_reason(said: str, kind: type[PlntError]) -> None:
    noise = b"level=INFO msg=noise\nWARNING: more noise\n"
    error = explain_failure("helm install ns/m-1", noise + said.encode())
    assert type(error) is kind
    assert str(error).startswith("helm install ns/m-1: ")
    assert "noise" not in str(error)


async def test_cluster_that_does_not_answer_is_told_as_such(programs: Programs, tmp_path: Path) -> None:
    helm = await open_helm(str(programs.helm))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(tmp_path / "none"))
        with pytest.raises(ApiUnavailable, match="unreachable"):
            await helm.install("m-1", "ns", CHART, {}, {})


def test_characters_beyond_the_basic_plane_reach_helm_as_themselves() -> None:
    assert join_surrogates(b'{"a": "\\ud83d\\ude00 \\u00e9"}') == '{"a": "😀 \\u00e9"}'.encode()
    assert join_surrogates(rb'{"a": "\\ud83d\\ude00"}') == rb'{"a": "\\ud83d\\ude00"}'
