from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from bridge.desired import DesiredActivities
from plnt.errors import ApiUnavailable
from plnt.model import names
from plnt.model.desired import Policy, Ref
from plnt.model.messages import DropFinalizer, Target
from tests.fakes.kube_api import KubeApi, serve_kube_api

REF = Ref(namespace="default", name="one")


class Setting:
    def __init__(self, api: KubeApi, activities: DesiredActivities) -> None:
        self.api, self.activities = api, activities

    async def load(self) -> Any:
        loaded = await ActivityEnvironment().run(self.activities.load_desired, Target(ref=REF))
        return loaded.desired

    async def drop(self, uid: str = "uid-1") -> None:
        await ActivityEnvironment().run(self.activities.drop_finalizer, DropFinalizer(ref=REF, uid=uid))

    @property
    def finalizers(self) -> list[str]:
        found: list[str] = self.api.objects[("default", "one")]["metadata"].get("finalizers", [])
        return found


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    async with serve_kube_api() as (api, kube):
        yield Setting(api, DesiredActivities(kube, Policy(bake_seconds=7)))


async def test_object_is_read_with_the_policy_and_gets_the_finalizer_once(setting: Setting) -> None:
    setting.api.put("one", finalizers=["example.org/theirs"], annotations={"plnt.work/bake-seconds": "5"})
    first, second = await setting.load(), await setting.load()
    assert first == second
    assert (first.spec.model.name, first.options.bake_seconds, first.policy.bake_seconds) == ("org/small", 5, 7)
    assert first.faults == []
    assert setting.finalizers == ["example.org/theirs", names.FINALIZER]


async def test_missing_object_is_gone(setting: Setting) -> None:
    assert await setting.load() is None


async def test_kind_that_is_not_served_is_no_missing_object(setting: Setting) -> None:
    setting.api.refusal = 404
    with pytest.raises(ApiUnavailable, match="its kind is not served"):
        await setting.load()


async def test_object_that_is_being_deleted_gets_no_finalizer(setting: Setting) -> None:
    setting.api.put("one", deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["example.org/theirs"])
    assert (await setting.load()).deleting
    assert setting.finalizers == ["example.org/theirs"]


async def test_finalizer_is_added_to_the_newest_object_when_it_changes_meanwhile(setting: Setting) -> None:
    def change_once() -> None:
        setting.api.before_status_write = lambda: None
        setting.api.put("one", generation=2)

    setting.api.put("one")
    setting.api.before_status_write = change_once
    assert (await setting.load()).generation == 2
    assert setting.finalizers == [names.FINALIZER]


async def test_spec_and_annotations_that_cannot_be_read_are_named(setting: Setting) -> None:
    setting.api.put("one", annotations={"plnt.work/colour": "blue"})
    setting.api.objects[("default", "one")]["spec"]["runtime"] = "ollama"
    faults = (await setting.load()).faults
    assert len(faults) == 2
    assert "spec.runtime" in faults[0]
    assert "plnt.work/colour" in faults[1]


async def test_finalizer_is_dropped_and_others_stay(setting: Setting) -> None:
    setting.api.put("one", finalizers=[names.FINALIZER, "example.org/theirs"])
    await setting.drop()
    await setting.drop()
    assert setting.finalizers == ["example.org/theirs"]


async def test_finalizer_of_another_uid_stays(setting: Setting) -> None:
    setting.api.put("one", uid="uid-2", finalizers=[names.FINALIZER])
    await setting.drop("uid-1")
    assert setting.finalizers == [names.FINALIZER]


async def test_finalizer_of_a_missing_object_is_no_error(setting: Setting) -> None:
    await setting.drop()
