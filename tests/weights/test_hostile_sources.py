"""Sources that were made to do harm: refused by name, and nothing is made outside the cache."""

import asyncio
import gzip
import hashlib
import io
import json
import socket
import tarfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from plnt.clients.weights.cache import Cache
from plnt.clients.weights.host_rule import HostRule
from plnt.clients.weights.overlay import Entry, open_archive, walk
from plnt.clients.weights.pull import Pull, PullSettings
from plnt.clients.weights.redirect import follow
from plnt.clients.weights.resolve import resolve
from plnt.clients.weights.source import Link
from plnt.clients.weights.sources import Sources
from plnt.clients.weights.tar_reader import ArchiveFault
from plnt.clients.weights.throttle import Throttle
from plnt.errors import DigestMismatch, PlntError, SourceChanged, SourceUnavailable, SpecInvalid
from plnt.model.oci_manifest import MAX_MANIFEST_BYTES, parse_manifest
from plnt.model.pull_plan import PlannedFile, PullPlan
from plnt.model.storage_uri import parse_storage_uri
from plnt.model.workflow_run import Quantization, Runtime
from plnt.sandbox.sources.seed import IMAGE_CONFIG, MANIFEST
from plnt.settings import PoolSettings
from tests.fakes.source_servers import serving

MIB = 1 << 20


def make_tar(*members: tuple[str, bytes, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    """Give an archive of (name, type, data); links point to /etc/passwd."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for name, kind, data in members:
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, len(data), "/etc/passwd"
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def read_archive(data: bytes, unpack: str = "tar", strip: str = "models/") -> list[str]:
    changes = walk(open_archive(io.BytesIO(data), unpack), strip)
    return [change.path for change in changes if isinstance(change, Entry)]


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_plain_archive_is_read_whatever_wrote_it(form: int) -> None:
    long = "models/" + "/".join(["folder" * 8] * 3) + "/a.json"
    data = make_tar(("models/a.json", tarfile.REGTYPE, b"x"), (long, tarfile.REGTYPE, b"yy" * 700), form=form)
    assert read_archive(data) == ["a.json", long.removeprefix("models/")]
    assert read_archive(gzip.compress(data), "tar+gzip") == ["a.json", long.removeprefix("models/")]


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("models/../../etc/cron.d/x", tarfile.REGTYPE, "'..'"),
        ("models//etc/passwd", tarfile.REGTYPE, "absolute"),
        ("models/a\nb", tarfile.REGTYPE, "control character"),
        ("models/a\x01b", tarfile.REGTYPE, "control character"),
        ("models/a\\b", tarfile.REGTYPE, "backslash"),
        ("models/.plnt-manifest.json", tarfile.REGTYPE, "cache keeps for itself"),
        ("models/link", tarfile.SYMTYPE, "is a link"),
        ("models/link", tarfile.LNKTYPE, "is a link"),
        ("models", tarfile.SYMTYPE, "is a link"),
        ("models/sda", tarfile.BLKTYPE, "is a device"),
        ("models/tty", tarfile.CHRTYPE, "is a device"),
        ("models/pipe", tarfile.FIFOTYPE, "is a device"),
        ("models/sparse", tarfile.GNUTYPE_SPARSE, "unknown type"),
        ("models/" + "d/" * 20 + "x", tarfile.REGTYPE, "deeper"),
    ],
)
def test_member_that_is_no_plain_file_below_the_folder_is_refused(name: str, kind: bytes, words: str) -> None:
    with pytest.raises(ArchiveFault, match=words):
        read_archive(make_tar((name, kind, b"")))


def test_absolute_and_climbing_names_are_refused_in_archives_without_a_folder() -> None:
    for name in ("/etc/passwd", "../x", "a/../../x"):
        with pytest.raises(ArchiveFault):
            read_archive(make_tar((name, tarfile.REGTYPE, b"x")), strip="")


def test_links_of_an_images_own_system_are_passed_over() -> None:
    data = make_tar(("bin/sh", tarfile.SYMTYPE, b""), ("dev/null", tarfile.CHRTYPE, b""), ("models/a", b"0", b"x"))
    assert read_archive(data) == ["a"]


def test_decompression_bomb_is_stopped_early() -> None:
    bomb = gzip.compress(make_tar(("models/model.safetensors", tarfile.REGTYPE, bytes(256 * MIB))))
    reader = open_archive(io.BytesIO(bomb), "tar+gzip")
    taken: list[int] = []

    def read_all() -> None:
        for _ in walk(reader, "models/"):
            while data := reader.read(MIB):
                taken.append(len(data))

    with pytest.raises(ArchiveFault, match="decompression bomb"):
        read_all()
    assert sum(taken) < 80 * MIB


def test_extended_header_of_any_length_is_not_taken_into_memory() -> None:
    header = tarfile.TarInfo("././@PaxHeader")
    header.type, header.size = tarfile.XHDTYPE, 1 << 40
    with pytest.raises(ArchiveFault, match="extended header of 1099511627776 bytes"):
        read_archive(header.tobuf(tarfile.GNU_FORMAT))


@pytest.mark.parametrize(
    "data",
    [b"x" * 2048, b"\x1f\x8b" + b"x" * 2048, gzip.compress(b"y" * 2048)],
    ids=["letters", "broken gzip", "gzip of letters"],
)
def test_what_is_no_archive_is_refused(data: bytes) -> None:
    with pytest.raises(ArchiveFault):
        read_archive(data, "tar+gzip")


def layer(**changes: Any) -> dict[str, Any]:
    digest = f"sha256:{'a' * 64}"
    notes = {"org.opencontainers.image.title": "config.json"}
    return {"mediaType": "application/octet-stream", "digest": digest, "size": 2, "annotations": notes, **changes}


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(b"null", id="no object"),
        pytest.param(json.dumps({"layers": [layer()] * 10_001}).encode(), id="too many layers"),
        pytest.param(json.dumps({"layers": [layer(digest="sha256:../../x")]}).encode(), id="digest is a path"),
        pytest.param(json.dumps({"layers": [layer(digest="md5:" + "a" * 32)]}).encode(), id="weak digest"),
        pytest.param(json.dumps({"layers": [layer(size=-1)]}).encode(), id="negative size"),
        pytest.param(json.dumps({"layers": [layer(size="2")]}).encode(), id="size is text"),
        pytest.param(json.dumps({"layers": [layer(annotations={})]}).encode(), id="no name"),
        pytest.param(json.dumps({"layers": ["x"]}).encode(), id="layer is text"),
        pytest.param(json.dumps({"manifests": ["x", {"digest": 1}]}).encode(), id="index of nothing"),
    ],
)
def test_broken_manifest_is_refused(document: bytes) -> None:
    with pytest.raises(SpecInvalid):
        parse_manifest(document, "oci://r.test/n")


class HostileRegistry:
    """Answers as a test says; its blobs are ``blobs``, by digest."""

    def __init__(self) -> None:
        self.port = 0
        self.manifest: Callable[[web.Request], Any] = lambda _: web.Response(status=404)
        self.blob: Callable[[web.Request], Any] = lambda _: web.Response(status=404)
        self.requests: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request.path)
        if request.path == "/v2/":
            return web.Response(text="{}")
        answer = self.manifest(request) if "/manifests/" in request.path else self.blob(request)
        return await answer if asyncio.iscoroutine(answer) else answer

    def give_files(self, *names: str, size: int = 2) -> None:
        layers = [layer(annotations={"org.opencontainers.image.title": name}, size=size) for name in names]
        body = json.dumps({"config": {"mediaType": "application/vnd.oci.empty.v1+json"}, "layers": layers})
        self.manifest = lambda _: web.Response(text=body, content_type=MANIFEST)

    @property
    def uri(self) -> str:
        return f"oci://127.0.0.1:{self.port}/model:v1"

    def settings(self) -> PoolSettings:
        return PoolSettings.read({"PLNT_WEIGHTS_PRIVATE_HOSTS": f"127.0.0.1:{self.port}"})

    async def resolve(self) -> PullPlan:
        async with Sources(self.settings()).open(parse_storage_uri(self.uri)) as source:
            return (await resolve(source, Runtime.VLLM, Quantization.FP16)).plan

    async def pull(self, cache: Cache, size: int) -> None:
        file = PlannedFile(path="data.bin", size=size, validator="", sha256="a" * 64)
        plan = PullPlan(source=f"oci://127.0.0.1:{self.port}/model@sha256:{'b' * 64}", files=[file])
        settings = self.settings()
        shared = PullSettings(
            cache,
            Sources(settings).open,
            Throttle(None),
            2,
            settings.private_hosts,
            stall_seconds=2,
            pause_seconds=0.01,
        )
        await Pull(shared).run(cache.write_plan(plan))


@pytest.fixture
async def registry() -> AsyncIterator[HostileRegistry]:
    hostile = HostileRegistry()
    app = web.Application()
    app.router.add_get("/{path:.*}", hostile.handle)
    async with serving(app) as port:
        hostile.port = port
        yield hostile


async def test_manifest_without_end_is_given_up_at_its_bound(registry: HostileRegistry) -> None:
    sent = 0

    async def flood(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while sent < 1 << 30:
                await response.write(b"x" * MIB)
                sent += MIB
        except ConnectionError:
            pass
        return response

    registry.manifest = flood
    with pytest.raises(SpecInvalid, match=f"more than {MAX_MANIFEST_BYTES} bytes"):
        await registry.resolve()
    assert sent < 100 * MIB


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("config.json", "../../etc/passwd"), "file name"),
        (("config.json", "/etc/passwd"), "file name"),
        (("config.json", "a\x00b"), "file name"),
        (("config.json", "a\nb"), "file name"),
        (("config.json", "Config.JSON"), "differ in case only"),
        (("config.json", "config.json/x"), "is a file and the folder"),
        (("config.json", "config.json"), "two layers of the name"),
    ],
)
async def test_unsafe_names_of_layers_are_refused(
    registry: HostileRegistry, names: tuple[str, ...], words: str
) -> None:
    registry.give_files(*names)
    with pytest.raises(SpecInvalid, match=words):
        await registry.resolve()


async def test_manifest_that_is_not_its_digest_is_refused(registry: HostileRegistry) -> None:
    registry.give_files("config.json")
    async with Sources(registry.settings()).open(
        parse_storage_uri(f"oci://127.0.0.1:{registry.port}/model@sha256:{'0' * 64}")
    ) as source:
        with pytest.raises(DigestMismatch):
            await source.list_files()


async def test_small_file_that_is_not_its_digest_is_refused(registry: HostileRegistry) -> None:
    registry.give_files("config.json", "tokenizer.json", "model.safetensors")
    registry.blob = lambda _: web.Response(body=b"{}")
    with pytest.raises(DigestMismatch):
        await registry.resolve()


@pytest.mark.parametrize(
    "target",
    [
        "http://169.254.169.254/latest/meta-data",
        "https://169.254.169.254/latest/meta-data",
        "https://10.0.0.1/x",
        "https://[::1]/x",
        "https://[::ffff:127.0.0.1]/x",
        "https://localhost/x",
        "https://0.0.0.0/x",
        "https://100.64.0.1/x",
    ],
)
async def test_redirect_to_the_inside_is_refused(registry: HostileRegistry, cache: Cache, target: str) -> None:
    registry.blob = lambda _: web.Response(status=307, headers={"Location": target})
    with pytest.raises(SpecInvalid, match="not a public address"):
        await registry.pull(cache, 10)
    registry.give_files("config.json", "tokenizer.json", "model.safetensors")
    with pytest.raises(SpecInvalid, match="not a public address"):
        await registry.resolve()


async def test_redirect_to_another_port_of_an_allowed_host_is_refused(registry: HostileRegistry, cache: Cache) -> None:
    inside = HostileRegistry()
    app = web.Application()
    app.router.add_get("/{path:.*}", inside.handle)
    async with serving(app) as port:
        registry.blob = lambda _: web.Response(status=302, headers={"Location": f"http://127.0.0.1:{port}/x"})
        with pytest.raises(SpecInvalid, match=f"127.0.0.1:{port}"):
            await registry.pull(cache, 10)
    assert not inside.requests


@pytest.mark.parametrize("location", ["file:///etc/passwd", "gopher://127.0.0.1/x", ""])
async def test_redirect_to_no_http_is_refused(registry: HostileRegistry, cache: Cache, location: str) -> None:
    registry.blob = lambda _: web.Response(status=302, headers={"Location": location} if location else {})
    with pytest.raises(PlntError, match="no HTTP address"):
        await registry.pull(cache, 10)


async def test_redirects_in_circles_end(registry: HostileRegistry, cache: Cache) -> None:
    registry.blob = lambda request: web.Response(status=302, headers={"Location": str(request.url)})
    with pytest.raises(SourceUnavailable, match="in circles"):
        await registry.pull(cache, 10)


def test_credentials_stay_behind_when_the_host_changes() -> None:
    link = Link("https://hub.test/a", {"Authorization": "Bearer secret", "Accept": "x"}, follows=True)
    rule = HostRule()
    assert follow(link, "/b", rule).headers == link.headers
    for elsewhere in ("https://store.test/b", "https://hub.test:8443/b"):
        assert follow(link, elsewhere, rule).headers == {"Accept": "x"}
    with pytest.raises(SpecInvalid, match="without TLS"):
        follow(link, "http://hub.test/b", rule)


async def test_name_whose_address_changes_to_the_inside_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second answer is the one that would be connected to."""
    answers = iter(["93.184.215.14", "127.0.0.1"])

    def look_up(host: str, port: int, **_: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers, "127.0.0.1"), port))]

    monkeypatch.setattr("plnt.clients.weights.host_rule.socket.getaddrinfo", look_up)
    async with Sources(PoolSettings.read({})).open(parse_storage_uri("oci://registry.test/model:v1")) as source:
        with pytest.raises(SpecInvalid, match=r"registry\.test:443 at 127\.0\.0\.1"):
            await source.list_files()


async def test_registry_of_the_inside_is_refused_unless_the_operator_names_it(registry: HostileRegistry) -> None:
    async with Sources(PoolSettings.read({})).open(parse_storage_uri(registry.uri)) as source:
        with pytest.raises(SpecInvalid, match="PLNT_WEIGHTS_PRIVATE_HOSTS"):
            await source.list_files()
    assert not registry.requests


async def test_blob_of_another_length_is_refused(registry: HostileRegistry, cache: Cache) -> None:
    registry.blob = lambda _: web.Response(body=b"x" * 20)
    with pytest.raises(SourceChanged):
        await registry.pull(cache, 10)
    registry.blob = lambda _: web.Response(status=206, body=b"x", headers={"Content-Range": "bytes 0-0/99999999999"})
    with pytest.raises(SourceChanged):
        await registry.pull(cache, 10)


async def test_blob_that_comes_compressed_is_refused(registry: HostileRegistry, cache: Cache) -> None:
    body = gzip.compress(b"x" * 10)
    registry.blob = lambda _: web.Response(body=body, headers={"Content-Encoding": "gzip"})
    with pytest.raises(SourceUnavailable, match="Content-Encoding"):
        await registry.pull(cache, 10)


async def test_token_is_asked_only_over_tls(registry: HostileRegistry) -> None:
    async def ask(request: web.Request) -> web.Response:
        return web.Response(status=401, headers={"WWW-Authenticate": 'Bearer realm="http://token.test/t",service="x"'})

    app = web.Application()
    app.router.add_get("/{path:.*}", ask)
    async with serving(app) as port:
        registry.port = port
        with pytest.raises(SpecInvalid, match="without TLS"):
            await registry.resolve()


async def test_hostile_archive_is_named_in_validating(registry: HostileRegistry, tmp_path: Path) -> None:
    data = gzip.compress(make_tar(("models/config.json", b"0", b"{}"), ("models/link", tarfile.SYMTYPE, b"")))
    entry = layer(mediaType="application/vnd.oci.image.layer.v1.tar+gzip", size=len(data), annotations={})
    entry["digest"] = f"sha256:{hashlib.sha256(data).hexdigest()}"
    body = json.dumps({"config": {"mediaType": IMAGE_CONFIG}, "layers": [entry]})
    registry.manifest = lambda _: web.Response(text=body)
    registry.blob = lambda _: web.Response(body=data)
    with pytest.raises(SpecInvalid, match=r"layer-0\.tar\.gz has 'models/link', which is a link"):
        await registry.resolve()
