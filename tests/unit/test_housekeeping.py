"""Which releases are orphans, and which trees are in use."""

from datetime import UTC, datetime, timedelta

from plnt.model import names
from plnt.model.housekeeping import choose_orphans
from plnt.model.live_trees import read_trees
from plnt.model.messages import ServingRecord
from plnt.model.release_recovery import ReleaseRecord

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def record(release: str, owner: str, age: timedelta = timedelta(hours=1)) -> ReleaseRecord:
    return ReleaseRecord(release=release, owner=owner, version=1, status="deployed", changed_at=NOW - age)


def orphans(*records: ReleaseRecord, known: tuple[str, ...] = ()) -> list[str]:
    return [one.release for one in choose_orphans(records, "default", known, NOW)]


def test_release_whose_workflow_run_is_gone_is_an_orphan() -> None:
    found = choose_orphans([record("llama-3-1-0a1b2c3d", "llama-3-1")], "ns", ["other"], NOW)
    assert [(one.ref.namespace, one.base, one.release) for one in found] == [("ns", "llama-3-1", "llama-3-1-0a1b2c3d")]


def test_release_whose_workflow_run_exists_is_none_whatever_its_name_looks_like() -> None:
    assert orphans(record("llama-3-1-0a1b2c3d", "llama-3-1"), known=("llama-3.1",)) == []


def test_release_without_our_label_is_never_an_orphan() -> None:
    assert orphans(record("llama-3-1-0a1b2c3d", "")) == []


def test_release_under_another_name_than_its_owner_gives_is_left_alone() -> None:
    assert orphans(record("database", "llama-3-1")) == []


def test_release_of_the_last_minutes_is_left_alone() -> None:
    assert orphans(record("a-0a1b2c3d", "a", timedelta(minutes=2))) == []


def test_trees_of_pods_templates_and_serving_records_are_in_use() -> None:
    pods = {"containers": [{"volumeMounts": [{"subPath": "trees/one"}, {"mountPath": "/tmp"}]}]}
    serving = ServingRecord(revision="r", release="a-r", generation=1, identity="i", pods_digest="p", tree="three")
    objects = [
        {"metadata": {}, "spec": pods},
        {
            "metadata": {},
            "spec": {"template": {"spec": {"initContainers": [{"volumeMounts": [{"subPath": "trees/two"}]}]}}},
        },
        {"metadata": {"annotations": {names.RECORD_ANNOTATION: serving.model_dump_json()}}},
        {"metadata": {"annotations": {names.RECORD_ANNOTATION: "no json"}}, "spec": {}},
    ]
    assert read_trees(objects) == {"one", "two", "three"}
