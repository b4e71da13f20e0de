"""What of the cache goes, what stays, and the command for people."""

import hashlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plnt import cli
from plnt.clients.weights.cache import MANIFEST, Cache
from plnt.clients.weights.collect import Collector, Rules
from plnt.clients.weights.leases import Lease, Leases
from plnt.model.housekeeping import GRACE_SECONDS, Room, TreeSeen, choose_trees
from plnt.model.pull_plan import PlannedFile, PullPlan, TreeFile, pin_key

DAY = 86_400.0
RULES = Rules(7 * DAY, 85)


def add_tree(cache: Cache, *files: bytes) -> str:
    """Publish a tree of ``files`` as a pull would."""
    plan = PullPlan(
        source="s3://b/" + hashlib.sha256(b"".join(files)).hexdigest()[:8],
        files=[PlannedFile(path=f"f{n}", size=len(data), validator="v") for n, data in enumerate(files)],
    )
    kept = []
    for planned, data in zip(plan.files, files, strict=True):
        digest = hashlib.sha256(data).hexdigest()
        partial = cache.open_partial(pin_key(plan, planned), len(data))
        partial.write(memoryview(data), 0)
        cache.keep_blob(partial, digest, pin_key(plan, planned))
        os.close(partial.fd)
        kept.append(TreeFile(path=planned.path, size=len(data), sha256=digest))
    return cache.publish_tree(kept, cache.write_plan(plan), "sha256").digest


def age(root: Path, seconds: float) -> None:
    """Make everything in the cache look that old."""
    then = time.time() - seconds
    for path in root.rglob("*"):
        os.utime(path, (then, then))


def blobs(cache: Cache) -> set[bytes]:
    return {path.read_bytes() for path in (cache.root / "blobs").rglob("*") if path.is_file()}


def collect(cache: Cache, live: Sequence[str] = (), plans: Sequence[str] = (), rules: Rules = RULES) -> list[str]:
    return Collector(cache).collect(live, plans, rules).trees


def test_tree_in_use_stays_however_old_and_full_the_cache_is(cache: Cache) -> None:
    used, unused = add_tree(cache, b"shared", b"used"), add_tree(cache, b"shared", b"unused")
    age(cache.root, 30 * DAY)
    assert collect(Cache(cache.root, max_bytes=1), live=[used]) == [unused]
    assert blobs(cache) == {b"shared", b"used"}
    assert (cache.root / "trees" / used / "f0").read_bytes() == b"shared"


def test_unused_tree_goes_after_its_time_and_not_before(cache: Cache) -> None:
    tree = add_tree(cache, b"a")
    age(cache.root, 6 * DAY)
    assert collect(cache) == []
    age(cache.root, 8 * DAY)
    assert collect(cache) == [tree]
    assert blobs(cache) == set()


def test_tree_that_a_rollout_asked_for_again_counts_as_used(cache: Cache) -> None:
    tree = add_tree(cache, b"a")
    age(cache.root, 8 * DAY)
    (plan,) = (path.stem for path in (cache.root / "plans").glob("*.json"))
    assert cache.find_tree(plan) is not None
    assert collect(cache) == []
    assert (cache.root / "trees" / tree).is_dir()


def test_longest_unused_tree_goes_first_when_the_cache_is_full(cache: Cache) -> None:
    older = add_tree(cache, b"x" * 40_000)
    age(cache.root, 3 * DAY)
    newer = add_tree(cache, b"y" * 40_000)
    os.utime(cache.root / "trees" / newer / MANIFEST, (time.time() - DAY,) * 2)
    assert collect(Cache(cache.root, max_bytes=90_000)) == [older]
    assert collect(Cache(cache.root, max_bytes=90_000)) == []


def test_tree_of_the_last_hour_stays_even_when_the_cache_is_full(cache: Cache) -> None:
    add_tree(cache, b"x" * 40_000)
    assert collect(Cache(cache.root, max_bytes=1_000)) == []


def test_files_of_a_pull_under_way_stay_and_those_of_a_dead_one_go(cache: Cache) -> None:
    file = PlannedFile(path="a", size=5, validator="v")
    held, lost = (PullPlan(source=f"s3://b/{name}", files=[file]) for name in ("held", "lost"))
    for plan in (held, lost):
        cache.write_plan(plan)
        part = cache.open_partial(pin_key(plan, file), 5)
        part.write(memoryview(b"bytes"), 0)
        part.note(0, 5)
        part.close()
    age(cache.root, 2 * DAY)
    Collector(cache).collect((), {cache.write_plan(held)}, RULES)
    assert {path.stem for path in (cache.root / "partials").iterdir()} == {pin_key(held, file)}


def test_verified_file_of_a_pull_under_way_stays(cache: Cache) -> None:
    add_tree(cache, b"one", b"two")
    (plan,) = (path.stem for path in (cache.root / "plans").glob("*.json"))
    (tree,) = (cache.root / "trees").iterdir()
    tree.rename(cache.root / "tmp" / "gone")
    age(cache.root, 2 * DAY)
    Collector(cache).collect((), {plan}, RULES)
    assert blobs(cache) == {b"one", b"two"}
    age(cache.root, 2 * DAY)
    Collector(cache).collect((), (), RULES)
    assert blobs(cache) == set()


def test_lease_is_read_back_until_it_is_dropped(cache: Cache) -> None:
    leases, lease = Leases(cache.root), Lease(workflow_id="rollout.default.llama-3.1", plan="p")
    leases.take(lease)
    leases.take(held := lease.model_copy(update={"tree": "t"}))
    assert [one for one, _ in leases.list()] == [held]
    leases.drop(held)
    assert leases.list() == []


def test_leases_of_the_longest_names_are_kept_apart(cache: Cache) -> None:
    leases, longest = Leases(cache.root), f"rollout.{'n' * 63}.{'x.' * 126}"
    one, other = (Lease(workflow_id=f"{longest}{end}", plan="p") for end in "ab")
    leases.take(one)
    leases.take(other)
    assert [lease for lease, _ in leases.list()] in ([one, other], [other, one])
    leases.drop(one)
    assert [lease for lease, _ in leases.list()] == [other]


TREES = st.lists(
    st.builds(
        TreeSeen,
        digest=st.uuids().map(str),
        last_used=st.floats(0, 1e6),
        blobs=st.dictionaries(st.sampled_from("abcdef"), st.just(100), min_size=1),
    ),
    max_size=6,
)


@given(TREES, st.sets(st.integers(0, 5)), st.integers(1, 1000), st.integers(0, 1000))
def test_choice_spares_the_live_and_the_young_and_goes_no_further_than_needed(
    trees: list[TreeSeen], picks: set[int], capacity: int, used: int
) -> None:
    live = {tree.digest for index, tree in enumerate(trees) if index in picks}
    room = Room(capacity=capacity, used=used, keep_seconds=5e5, high_water_percent=85)
    chosen = choose_trees(trees, live, 1e6, room)
    assert not live & {tree.digest for tree in chosen}
    assert all(1e6 - tree.last_used > GRACE_SECONDS for tree in chosen)
    if used * 100 <= capacity * 85:
        assert all(1e6 - tree.last_used > 5e5 for tree in chosen)
    old = [tree for tree in trees if 1e6 - tree.last_used > 5e5 and tree.digest not in live]
    assert all(tree in chosen for tree in old)


def test_command_lists_verifies_and_names_the_broken_file(cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    tree = add_tree(cache, b"good", b"spoiled")
    assert cli.main(["cache", "ls", "--dir", str(cache.root)]) == 0
    assert tree[:12] in capsys.readouterr().out
    assert cli.main(["cache", "verify", "--dir", str(cache.root)]) == 0
    path = cache.root / "trees" / tree / "f1"
    path.chmod(0o644)
    path.write_bytes(b"SPOILED")
    assert cli.main(["cache", "verify", "--dir", str(cache.root), tree[:8]]) == 1
    assert f"{path}: SHA-256 " in capsys.readouterr().err


def test_command_removes_nothing_while_nobody_said_what_is_in_use(
    cache: Cache, capsys: pytest.CaptureFixture[str]
) -> None:
    used, unused = add_tree(cache, b"used"), add_tree(cache, b"unused")
    age(cache.root, 8 * DAY)
    command = ["cache", "gc", "--dir", str(cache.root)]
    assert cli.main(command) == 1
    assert "no word from a janitor" in capsys.readouterr().err
    Collector(cache).note_live([used])
    assert cli.main(command) == 0
    assert f"removed tree {unused}" in capsys.readouterr().out
    assert [path.name for path in (cache.root / "trees").iterdir()] == [used]
    assert json.loads((cache.root / "live.json").read_bytes())["trees"] == [used]


def test_command_refuses_a_folder_that_is_no_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cache", "gc", "--dir", str(tmp_path)]) == 1
    assert "is no weights cache" in capsys.readouterr().err
