"""Names that Kubernetes, Helm and DNS all take, from any legal name of a WorkflowRun."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plnt.model.names import MAX_BASE_CHARS, base_name, release_name, revision_of

LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
OBJECT_NAME = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", fullmatch=True)


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("llama-3.1-70b-instruct", "llama-3-1-70b-instruct"),
        ("3d-model", "m-3d-model"),
        ("a" * 44, "a" * 44),
        ("x.y", "x-y"),
        ("x-y", "x-y"),
    ],
    ids=["dots", "leading digit", "longest", "one of two", "the other of two"],
)
def test_base_name_is_a_label(name: str, base: str) -> None:
    assert base_name(name) == base


def test_long_names_are_cut_and_told_apart() -> None:
    one, other = base_name("model-" + "x" * 80 + "-1"), base_name("model-" + "x" * 80 + "-2")
    assert one != other
    assert len(one) == len(other) == MAX_BASE_CHARS


@given(OBJECT_NAME, st.from_regex(r"[0-9a-f]{8}", fullmatch=True))
def test_any_release_name_is_short_enough_for_helm_and_dns(name: str, revision: str) -> None:
    base = base_name(name)
    release = release_name(base, revision)
    assert LABEL.fullmatch(base)
    assert LABEL.fullmatch(release)
    assert len(release) <= 53
    assert revision_of(base, release) == revision
