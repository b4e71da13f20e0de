"""Each plnt service of the compose file, by its very command, against real servers; and each with wrong settings."""

import asyncio
import os
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from plnt.sandbox.component import clean_environment
from plnt.sandbox.pki import Authority
from plnt.sandbox.product import PRODUCT
from plnt.sandbox.programs import Programs
from plnt.sandbox.running import Sandbox, running_sandbox
from plnt.sandbox.waiting import wait_until
from tests.deploy.compose import load_compose

SERVERS = ("etcd", "kube-apiserver", "kube-controller-manager", "temporal")
START_SECONDS = 60.0
FILLED = {
    "POSTGRES_PASSWORD": "long",
    "PLNT_KUBECONFIG": "/etc/kubeconfig",
    "PLNT_CACHE_VOLUME": '{"nfs": {"server": "weights.plnt.test", "path": "/"}}',
    "PLNT_WEIGHTS_NFS_OPTIONS": "addr=10.0.0.5,rw",
    "PLNT_WEIGHTS_NFS_DEVICE": ":/export/weights",
}
WRONG = {
    "bridge": {"PLNT_BAKE_SECONDS": "soon", "PLNT_PROVIDER": "none"},
    "control": {"PLNT_WORKFLOW_SLOTS": "0", "PLNT_LOG_LEVEL": "LOUD"},
    **{
        pool: {"PLNT_SLOTS": "-1", "PLNT_CACHE_VOLUME": "{"}
        for pool in ("gpu", "weights", "deploy", "smoke", "promote")
    },
}

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
async def servers(tmp_path_factory: pytest.TempPathFactory, programs: Programs) -> AsyncIterator[Sandbox]:
    """Kubernetes and Temporal."""
    async with running_sandbox(tmp_path_factory.mktemp("servers"), programs, only=SERVERS) as running:
        yield running


async def start(command: list[str], env: Mapping[str, str], folder: Path) -> asyncio.subprocess.Process:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return await asyncio.create_subprocess_exec(
        *command,
        env={**clean_environment(), "PATH": path, **env},
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def run(command: list[str], env: Mapping[str, str], folder: Path) -> tuple[int | None, list[str]]:
    """Run a command that is to end by itself; gives its exit status and what it said, line by line."""
    process = await start(command, env, folder)
    try:
        async with asyncio.timeout(START_SECONDS):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode, said.decode().splitlines()


def describe(name: str, sandbox: Sandbox, folder: Path) -> tuple[list[str], dict[str, str], int]:
    """Give a service's command and environment, less what only a container has, and its health port."""
    service: dict[str, Any] = load_compose(FILLED)["services"][name]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    own = {
        "TEMPORAL_ADDRESS": sandbox.site.temporal,
        "KUBECONFIG": str(sandbox.state.kubeconfig_of(name)),
        "PLNT_LISTEN_HOST": "127.0.0.1",
        "PLNT_HEALTH_PORT": str(port),
        "PLNT_METRICS_PORT": "0",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), sandbox.site.path]),
    }
    own |= {"PLNT_CACHE_DIR": str(folder / "cache")} if name == "weights" else {}
    return service["command"], {**service["environment"], **own}, port


async def test_register_command_ends_well_when_it_runs_again(servers: Sandbox, tmp_path: Path) -> None:
    command, env, _ = describe("register", servers, tmp_path)
    assert await run(command, env, tmp_path) == (0, ["all search attributes are registered"])


@pytest.mark.parametrize("name", PRODUCT)
async def test_service_becomes_healthy_by_its_command_and_ends_at_sigterm(
    servers: Sandbox, tmp_path: Path, name: str
) -> None:
    command, env, port = describe(name, servers, tmp_path)
    process = await start(command, env, tmp_path)

    async def is_ready() -> bool:
        assert process.returncode is None
        try:
            async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    try:
        await wait_until(is_ready, START_SECONDS)
        process.terminate()
        await asyncio.wait_for(process.wait(), 60)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        *((name, "KUBECONFIG") for name in ("bridge", "gpu")),
        *((name, "TEMPORAL_TLS_SERVER_CA_CERT_PATH") for name in ("bridge", "control", "smoke")),
    ],
)
async def test_file_that_a_variable_names_and_that_is_not_there_ends_a_process_with_one_message(
    servers: Sandbox, tmp_path: Path, name: str, variable: str
) -> None:
    command, env, _ = describe(name, servers, tmp_path)
    status, (*_, heading, fault) = await run(command, {**env, variable: str(tmp_path / "absent")}, tmp_path)
    assert (status, heading) == (2, "wrong settings:")
    assert fault.startswith(variable.partition("_")[0])
    assert "absent" in fault


async def test_temporal_is_reached_with_a_client_certificate_by_the_variables_of_its_cli(
    servers: Sandbox, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "pki")
    server, (certificate, key) = authority.issue("server", "temporal"), authority.issue("client", "plnt")
    inside = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.certificate))
    inside.load_cert_chain(*server)
    inside.verify_mode = ssl.CERT_REQUIRED
    inside.set_alpn_protocols(["h2"])
    command, env, _ = describe("register", servers, tmp_path)
    async with forwarding(servers.site.temporal, inside) as address:
        tls = {
            "TEMPORAL_ADDRESS": address,
            "TEMPORAL_TLS_SERVER_CA_CERT_PATH": str(authority.certificate),
            "TEMPORAL_TLS_CLIENT_CERT_DATA": certificate.read_text(),
            "TEMPORAL_TLS_CLIENT_KEY_DATA": key.read_text(),
        }
        said = await run(command, {**env, **tls}, tmp_path)
    assert said == (0, ["all search attributes are registered"])


@asynccontextmanager
async def forwarding(target: str, inside: ssl.SSLContext) -> AsyncIterator[str]:
    """Take TLS off connections to a port of the test's own and pass them on; gives its address."""
    host, port = target.split(":")

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward_reader, onward_writer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(copy(reader, onward_writer), copy(onward_reader, writer))

    server = await asyncio.start_server(pass_on, "127.0.0.1", 0, ssl=inside)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("name", PRODUCT)
async def test_wrong_settings_end_a_process_with_one_message_that_names_them_all(tmp_path: Path, name: str) -> None:
    command = load_compose(FILLED)["services"][name]["command"]
    status, said = await run(command, {**WRONG[name], "TEMPORAL_ADDRESS": "127.0.0.1:1"}, tmp_path)
    assert status == 2
    for setting in WRONG[name]:
        assert setting in "\n".join(said)
