import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from bridge import watch as watch_module
from bridge.watch import Change, Watch
from tests.fakes.kube_api import KubeApi, send, serve_kube_api
from tests.fakes.waiting import eventually

IDLE_SECONDS = 0.5


class Changes:
    """What a watch offered, in order."""

    def __init__(self) -> None:
        self.all: list[Change] = []

    def __call__(self, change: Change) -> None:
        self.all.append(change)

    def names(self, *, gone: bool = False) -> list[str]:
        return [change.seen.name for change in self.all if change.gone is gone]


class Setting:
    """A watch that runs against a double of the API server."""

    def __init__(self, api: KubeApi, watch: Watch, changes: Changes) -> None:
        self.api, self.watch, self.changes = api, watch, changes

    async def until_watching(self, watches: int = 1) -> None:
        await eventually(lambda: self.api.watches >= watches and not self.watch.check_ready())


@asynccontextmanager
async def running(
    prepare: Callable[[KubeApi], object] = lambda _: None,
    *,
    namespace: str | None = None,
    resync: float = 60,
) -> AsyncIterator[Setting]:
    async with serve_kube_api() as (api, kube):
        prepare(api)
        changes = Changes()
        watch = Watch(kube, namespace, changes, resync=resync, idle=IDLE_SECONDS)
        task = asyncio.create_task(watch.run())
        try:
            yield Setting(api, watch, changes)
        finally:
            assert not task.done(), "the watch ended"
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def quick_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_PAUSE_SECONDS", "REFUSED_PAUSE_SECONDS", "MIN_WATCH_SECONDS"):
        monkeypatch.setattr(watch_module, name, 0.05)


async def test_watch_offers_what_is_there_and_what_comes() -> None:
    async with running(lambda api: api.put("old")) as setting:
        await setting.until_watching()
        setting.api.put("new", uid="uid-2")
        await eventually(lambda: setting.changes.names() == ["old", "new"])
        assert [change.listed for change in setting.changes.all] == [True, False]


async def test_watch_follows_one_namespace_only_when_told() -> None:
    async with running(lambda api: api.put("theirs", namespace="b"), namespace="a") as setting:
        await setting.until_watching()
        setting.api.put("theirs too", namespace="b")
        setting.api.put("ours", namespace="a")
        await eventually(lambda: bool(setting.changes.all))
        assert setting.changes.names() == ["ours"]


async def test_watch_lists_anew_once_when_its_version_expired() -> None:
    async with running(lambda api: (api.put("kept"), api.put("lost", uid="uid-2"))) as setting:
        await setting.until_watching()

        async def expire(response: web.StreamResponse) -> None:
            setting.api.remove("lost", silently=True)
            setting.api.oldest = setting.api.version
            await send(response, "ERROR", {"code": 410, "message": "too old resource version"})

        setting.api.watch_faults.append(expire)
        await setting.until_watching(2)
        await eventually(lambda: setting.changes.names(gone=True) == ["lost"])
        await setting.until_watching(3)
        assert setting.api.lists == 2


async def test_watch_reports_a_delete_that_no_event_told_at_the_next_resync() -> None:
    async with running(lambda api: api.put("lost"), resync=0.3) as setting:
        await setting.until_watching()
        setting.api.remove("lost", silently=True)
        await eventually(lambda: setting.changes.names(gone=True) == ["lost"])


async def test_watch_sees_a_delete_and_a_new_object_when_a_name_was_taken_again_unseen() -> None:
    async with running(lambda api: api.put("one", uid="uid-1"), resync=0.3) as setting:
        await setting.until_watching()
        setting.api.remove("one", silently=True)
        setting.api.put("one", uid="uid-2")
        seen = setting.changes
        await eventually(lambda: any(change.seen.uid == "uid-2" for change in seen.all))
        relevant = [(c.seen.uid, c.gone) for c in seen.all if c.gone or c.seen.uid == "uid-2"]
        assert relevant[:2] == [("uid-1", True), ("uid-2", False)]


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(b'{"type": "MODIFIED", "object": {"met', id="cut in the middle"),
        pytest.param(b"<html>bad gateway</html>\n", id="no JSON"),
        pytest.param(b'{"type": "MODIFIED", "object": {}}\n', id="no metadata"),
        pytest.param(b'{"type": "MODIFIED", "object": "' + b"x" * 5_000_000 + b'"}\n', id="longer than any object"),
    ],
)
async def test_watch_lists_anew_after_a_line_that_is_no_event(rest: bytes) -> None:
    async def spoil(response: web.StreamResponse) -> None:
        await response.write(rest)

    async with running(lambda api: api.watch_faults.append(spoil)) as setting:
        await setting.until_watching(2)
        assert setting.api.lists == 2
        assert setting.changes.all == []


async def test_watch_goes_on_from_its_version_after_a_broken_connection() -> None:
    async with running() as setting:

        async def break_off(response: web.StreamResponse) -> None:
            setting.api.put("meanwhile")
            transport = response._payload_writer.transport
            assert transport is not None
            transport.abort()

        await setting.until_watching()
        setting.api.watch_faults.append(break_off)
        await eventually(lambda: setting.changes.names() == ["meanwhile"])
        assert setting.api.lists == 1


async def test_watch_reopens_after_silence_and_loses_nothing() -> None:
    async def keep_silent(_: web.StreamResponse) -> None:
        await asyncio.Event().wait()

    async with running(lambda api: api.watch_faults.append(keep_silent)) as setting:
        await setting.until_watching()
        setting.api.put("said to nobody")
        await eventually(lambda: setting.changes.names() == ["said to nobody"])
        assert setting.api.lists == 1


async def test_watch_is_alive_but_not_ready_while_it_is_refused_and_recovers() -> None:
    def refuse(api: KubeApi) -> None:
        api.refusal = 403

    async with running(refuse) as setting:
        await eventually(lambda: "403" in setting.watch.check_ready())
        assert setting.watch.check_alive() == ""
        setting.api.refusal = 0
        setting.api.put("granted")
        await eventually(lambda: setting.changes.names() == ["granted"])
        await setting.until_watching()


async def test_watch_is_not_alive_after_three_silent_periods_of_a_dead_server() -> None:
    def fail(api: KubeApi) -> None:
        api.refusal = 503

    async with running(fail) as setting:
        await eventually(setting.watch.check_alive)
        assert "503" in setting.watch.check_alive()


async def test_watch_drops_an_older_generation_that_is_replayed() -> None:
    async with running() as setting:
        await setting.until_watching()
        old = setting.api.put("one", generation=1)
        setting.api.put("one", generation=2)
        setting.api.replay(old)
        setting.api.put("last", uid="uid-2")
        await eventually(lambda: "last" in setting.changes.names())
        assert [change.seen.generation for change in setting.changes.all if change.seen.name == "one"] == [1, 2]
