"""Every scheme's real server behind a proxy that spoils answers: the tree is whole, or the fault is named."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from plnt.clients.weights.cache import Cache
from plnt.clients.weights.pull import Pull, PullSettings
from plnt.clients.weights.resolve import resolve
from plnt.clients.weights.sources import Sources
from plnt.clients.weights.throttle import Throttle
from plnt.errors import SourceChanged
from plnt.model.messages import Tree
from plnt.model.pull_plan import PullPlan
from plnt.model.storage_uri import parse_storage_uri
from plnt.model.workflow_run import Quantization, Runtime
from plnt.sandbox.model_files import ModelFolder, write_model
from plnt.sandbox.sources.hub import write_repository
from plnt.sandbox.sources.seed import push_modelcar, push_modelpack, seed_gs
from plnt.settings import PoolSettings
from tests.fakes.fault_proxy import Fault, FaultProxy, cut, drip, flip, refuse, running_fault_proxy, shorten, stall
from tests.fakes.object_store import ObjectStore
from tests.fakes.source_servers import SourceServers, running_source_servers

SCHEMES = ("s3", "gs", "oci", "modelcar", "hf")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    write_model(folder, ModelFolder(total_bytes=3 << 20, shards=2))
    return folder


@pytest.fixture(scope="module")
async def servers(
    tmp_path_factory: pytest.TempPathFactory, s3: ObjectStore, small: Path
) -> AsyncIterator[SourceServers]:
    async with running_source_servers(tmp_path_factory.mktemp("sources")) as running:
        await s3.seed("faults", "m", small)
        await seed_gs(running.gs, "faults", "m", small)
        await push_modelpack(running.registry, "faults", "m", small)
        await push_modelcar(running.registry, "modelcar", "m", small)
        write_repository(running.hub_root, "org/faults", small)
        yield running


class Faulty:
    """A scheme's server behind the proxy."""

    def __init__(self, proxy: FaultProxy, settings: PoolSettings, uri: str) -> None:
        self.proxy, self._settings = proxy, settings
        self._uri = parse_storage_uri(uri)
        self._sources = Sources(settings)

    async def make_plan(self) -> PullPlan:
        async with self._sources.open(self._uri) as source:
            return (await resolve(source, Runtime.VLLM, Quantization.FP16)).plan

    async def pull(self, cache: Cache, plan: PullPlan) -> Tree:
        shared = PullSettings(
            cache,
            self._sources.open,
            Throttle(None),
            2,
            self._settings.private_hosts,
            stall_seconds=1,
            pause_seconds=0.01,
        )
        return await Pull(shared).run(cache.write_plan(plan))


@asynccontextmanager
async def behind_proxy(
    scheme: str, servers: SourceServers, s3: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Faulty]:
    upstream = {"s3": s3.endpoint, "gs": servers.gs, "hf": servers.hub_url}.get(scheme, servers.registry)
    async with running_fault_proxy(upstream) as proxy:
        host = proxy.url.removeprefix("http://")
        uri = {
            "s3": "s3://faults/m",
            "gs": "gs://faults/m",
            "oci": f"oci://{host}/faults:m",
            "modelcar": f"oci://{host}/modelcar:m",
            "hf": "hf://org/faults",
        }[scheme]
        for key, value in {**s3.environ(), "AWS_ENDPOINT_URL_S3": proxy.url}.items():
            monkeypatch.setenv(key, value)
        settings = {
            "STORAGE_EMULATOR_HOST": proxy.url,
            "HF_ENDPOINT": proxy.url,
            "PLNT_WEIGHTS_PRIVATE_HOSTS": f"{host},{host.replace('127.0.0.1', 'localhost')}",
        }
        yield Faulty(proxy, PoolSettings.read(settings), uri)


def read_tree(cache: Cache, tree: Tree) -> dict[str, bytes]:
    root = cache.root / "trees" / tree.digest
    return {path.name: path.read_bytes() for path in root.iterdir() if not path.name.startswith(".plnt")}


def read_folder(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param([cut, cut], id="cut"),
        pytest.param([stall], id="stall"),
        pytest.param([drip], id="drip"),
        pytest.param([flip], id="wrong byte"),
        pytest.param([shorten], id="short 206"),
        pytest.param([refuse(500)] * 4, id="storm of 500"),
        pytest.param([refuse(429, Retry_After="1"), refuse(503)], id="busy"),
        pytest.param([refuse(403)], id="expired"),
    ],
)
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_tree_is_whole_in_spite_of(
    scheme: str,
    faults: list[Fault],
    servers: SourceServers,
    s3: ObjectStore,
    small: Path,
    cache: Cache,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with behind_proxy(scheme, servers, s3, monkeypatch) as faulty:
        plan = await faulty.make_plan()
        faulty.proxy.faults = list(faults)
        tree = await faulty.pull(cache, plan)
        assert faulty.proxy.met == len(faults)
    assert read_tree(cache, tree) == read_folder(small)


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_file_that_has_no_such_range_any_more_is_named(
    scheme: str, servers: SourceServers, s3: ObjectStore, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with behind_proxy(scheme, servers, s3, monkeypatch) as faulty:
        plan = await faulty.make_plan()
        faulty.proxy.faults = [refuse(416)]
        with pytest.raises(SourceChanged, match="was replaced at the source"):
            await faulty.pull(cache, plan)
