"""Pulls from a server that misbehaves: what is repaired, what is named."""

import hashlib
import random
import time
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from plnt.clients.weights.cache import Cache
from plnt.clients.weights.pull import Pull, PullSettings
from plnt.clients.weights.throttle import Throttle
from plnt.errors import (
    AccessDenied,
    DigestMismatch,
    PlntError,
    SourceChanged,
    SourceUnavailable,
    SpecInvalid,
    WeightsNotFound,
)
from plnt.model.messages import Tree
from plnt.model.pull_plan import PullPlan
from tests.fakes.file_server import RELEASED, FileServer, parse_range

MIB = 1 << 20
DATA = random.Random(7).randbytes(10 * MIB)


async def pull(
    server: FileServer, cache: Cache, *, stall_seconds: float = 5.0, connections: int = 2, private: tuple[str, ...] = ()
) -> tuple[Tree, Pull]:
    plan = PullPlan(source=server.where, files=[await server.pin_file(path) for path in server.files])
    settings = PullSettings(cache, server.open, Throttle(None), connections, private, stall_seconds, 0.02)
    running = Pull(settings)
    return await running.run(cache.write_plan(plan)), running


def read(cache: Cache, tree: Tree) -> bytes:
    return (cache.root / "trees" / tree.digest / "data.bin").read_bytes()


@pytest.fixture
def served(server: FileServer) -> FileServer:
    server.files = {"data.bin": DATA}
    return server


async def stall(request: web.Request, data: bytes) -> web.StreamResponse:
    """Send the half of what was asked for, then nothing."""
    first, last = parse_range(request)
    response = web.StreamResponse(status=206, headers={"Content-Range": f"bytes {first}-{last}/{len(data)}"})
    response.content_length = last + 1 - first
    await response.prepare(request)
    await response.write(data[first : (first + last) // 2])
    await request.app[RELEASED].wait()
    return response


async def cut(request: web.Request, data: bytes) -> web.StreamResponse:
    first, last = parse_range(request)
    response = web.StreamResponse(status=206, headers={"Content-Range": f"bytes {first}-{last}/{len(data)}"})
    response.content_length = last + 1 - first
    await response.prepare(request)
    await response.write(data[first : (first + last) // 2])
    assert request.transport is not None
    request.transport.close()
    return response


async def whole(request: web.Request, data: bytes) -> web.StreamResponse:
    return web.Response(body=data)


async def whole_in_chunks(request: web.Request, data: bytes) -> web.StreamResponse:
    response = web.StreamResponse()
    response.enable_chunked_encoding()
    await response.prepare(request)
    for start in range(0, len(data), 100_000):
        await response.write(data[start : start + 100_000])
    return response


async def wrong_start(request: web.Request, data: bytes) -> web.StreamResponse:
    return web.Response(status=206, body=b"x", headers={"Content-Range": f"bytes 1-1/{len(data)}"})


def answer(status: int, **headers: str) -> Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]:
    async def respond(request: web.Request, data: bytes) -> web.StreamResponse:
        return web.Response(status=status, headers={key.replace("_", "-"): value for key, value in headers.items()})

    return respond


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(cut, id="cut off"),
        pytest.param(answer(503), id="busy"),
        pytest.param(answer(403), id="expired link"),
        pytest.param(wrong_start, id="another range"),
    ],
)
async def test_single_fault_is_repaired(
    served: FileServer, cache: Cache, fault: Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]
) -> None:
    served.faults = [fault]
    tree, running = await pull(served, cache)
    assert read(cache, tree) == DATA
    assert running.read_progress().retries == 1


async def test_stalled_connection_is_opened_again_where_it_stopped(served: FileServer, cache: Cache) -> None:
    served.faults = [stall]
    tree, _ = await pull(served, cache, stall_seconds=0.5, connections=1)
    assert read(cache, tree) == DATA
    assert served.served < len(DATA), "the bytes before the stall were fetched again"


async def test_source_that_never_sends_ends_the_attempt_with_the_reason(served: FileServer, cache: Cache) -> None:
    async def silent(request: web.Request, data: bytes) -> web.StreamResponse:
        await request.app[RELEASED].wait()
        return web.Response()

    served.always = silent
    with pytest.raises(SourceUnavailable, match=r"no byte of data\.bin"):
        await pull(served, cache, stall_seconds=0.05, connections=1)


@pytest.mark.parametrize("fault", [pytest.param(whole, id="length"), pytest.param(whole_in_chunks, id="chunks")])
async def test_server_without_ranges_is_read_in_one_stream(
    served: FileServer, cache: Cache, fault: Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]
) -> None:
    served.always = fault
    tree, _ = await pull(served, cache)
    assert read(cache, tree) == DATA


async def test_retry_after_is_honoured(served: FileServer, cache: Cache) -> None:
    served.faults = [answer(429, Retry_After="1")]
    began = time.monotonic()
    await pull(served, cache)
    assert time.monotonic() - began >= 1


async def test_expired_link_is_signed_again(served: FileServer, cache: Cache) -> None:
    served.faults = [answer(403)]
    await pull(served, cache, connections=1)
    assert served.links == 2


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        pytest.param(403, AccessDenied, "s3:GetObject", id="no right"),
        pytest.param(404, WeightsNotFound, "removed from the source", id="gone"),
        pytest.param(412, SourceChanged, "was replaced", id="changed"),
        pytest.param(416, SourceChanged, "was replaced", id="shorter"),
        pytest.param(302, WeightsNotFound, "redirects", id="redirect"),
    ],
)
async def test_answer_that_cannot_be_repaired_is_named(
    served: FileServer, cache: Cache, status: int, error: type[PlntError], words: str
) -> None:
    served.always = answer(status, Location="http://169.254.169.254/latest/meta-data/")
    with pytest.raises(error, match=words):
        await pull(served, cache)


async def test_corrupt_bytes_are_fetched_once_more(served: FileServer, cache: Cache) -> None:
    served.published = {"data.bin": _sha256(DATA)}
    served.faults = [corrupt]
    tree, running = await pull(served, cache)
    assert read(cache, tree) == DATA
    assert tree.proof == "sha256"
    assert running.read_progress().retries == 1


async def test_bytes_that_are_corrupt_twice_are_refused_with_both_digests(served: FileServer, cache: Cache) -> None:
    served.published = {"data.bin": "ab" * 32}
    with pytest.raises(DigestMismatch) as error:
        await pull(served, cache)
    assert all(word in str(error.value) for word in ("data.bin", "ab" * 32, _sha256(DATA)))
    assert not list((cache.root / "trees").iterdir())
    assert not list((cache.root / "partials").iterdir())


async def test_cut_safetensors_file_is_refused_before_any_pod_starts(server: FileServer, cache: Cache) -> None:
    header = b'{"a":{"dtype":"U8","shape":[100],"data_offsets":[0,100]}}'
    server.files = {"model.safetensors": len(header).to_bytes(8, "little") + header + b"x" * 99}
    with pytest.raises(WeightsNotFound, match=r"model\.safetensors has 164 bytes where its header says 165"):
        await pull(server, cache)


async def test_private_address_is_refused_unless_the_operator_listed_it(served: FileServer, cache: Cache) -> None:
    served.trusts_itself = False
    host = f"127.0.0.1:{served.port}"
    with pytest.raises(SpecInvalid, match=f"adding {host} to PLNT_WEIGHTS_PRIVATE_HOSTS"):
        await pull(served, cache)
    assert served.requests == []
    tree, _ = await pull(served, cache, private=(host,))
    assert tree.proof == "transport only (digest recorded)"


async def test_empty_file_is_part_of_the_tree(server: FileServer, cache: Cache) -> None:
    server.files = {"data.bin": b"", "other.json": b"{}"}
    tree, _ = await pull(server, cache)
    assert read(cache, tree) == b""


async def corrupt(request: web.Request, data: bytes) -> web.StreamResponse:
    first, last = parse_range(request)
    headers = {"Content-Range": f"bytes {first}-{last}/{len(data)}"}
    return web.Response(status=206, body=b"\0" + data[first + 1 : last + 1], headers=headers)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
