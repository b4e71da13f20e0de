"""Extra chart values from a ConfigMap: what is taken, what is refused by name, and how they are merged."""

from typing import Any

import pytest

from plnt.clients.extra_values import MAX_CHARS, read_values
from plnt.errors import SpecInvalid
from plnt.model.extra_values import ALLOWED, check_values, describe_values, digest_values, merge_values
from plnt.model.messages import ExtraValues
from plnt.model.options import VALUES_FROM, Options, parse_options
from plnt.model.revision import pods_digest, revision
from tests.fakes.steps import make_spec

OWN: dict[str, Any] = {"model": {"name": "m"}, "tolerations": [{"key": "nvidia.com/gpu"}]}


def read(text: str) -> dict[str, Any]:
    return read_values({"data": {"values.yaml": text}}, "default", "extra")


def test_values_are_read_from_their_key() -> None:
    assert read("extraArgs: [--max-model-len, '4096']\nextraEnv:\n- {name: A, value: b}\n") == {
        "extraArgs": ["--max-model-len", "4096"],
        "extraEnv": [{"name": "A", "value": "b"}],
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model: {name: x}", ["model is set by plnt", "extraArgs"]),
        ("fullnameOverride: x\nsecurityContext: {privileged: true}", ["fullnameOverride", "securityContext"]),
        ("extraArgs: &a [x]\nextraEnv: *a", ["alias"]),
        ("- 1", ["no map"]),
        ("a: [", ["no YAML"]),
        ("extraArgs: [2026-01-01]", ["no YAML of plain values"]),
        ("x" * (MAX_CHARS + 1), ["65536"]),
    ],
)
def test_values_that_are_not_the_users_are_refused_by_name(text: str, words: list[str]) -> None:
    with pytest.raises(SpecInvalid, match=r"annotation plnt\.work/values-from: ConfigMap default/extra") as refused:
        read(text)
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize(("found", "word"), [(None, "does not exist"), ({"data": {"x": "y"}}, "no key values.yaml")])
def test_config_map_without_values_is_named(found: dict[str, Any] | None, word: str) -> None:
    with pytest.raises(SpecInvalid, match=word):
        read_values(found, "default", "extra")


def test_own_values_win_and_tolerations_add_up() -> None:
    extra = {"model": {"name": "x"}, "tolerations": [{"key": "spot"}], "extraArgs": ["--a"]}
    assert merge_values(OWN, extra) == {
        "model": {"name": "m"},
        "tolerations": [{"key": "nvidia.com/gpu"}, {"key": "spot"}],
        "extraArgs": ["--a"],
    }


def test_digest_follows_what_is_said_and_not_how() -> None:
    assert digest_values(read("image: {tag: a}\nextraArgs: []")) == digest_values(
        read("extraArgs: []\nimage:\n  tag: a")
    )
    assert digest_values(read("extraArgs: []")) != digest_values(read("extraArgs: [--x]"))


@pytest.mark.parametrize(
    ("arguments", "tokens"),
    [
        (["--max-model-len", "4096"], 4096),
        (["--max_model_len=8192", "--max-model-len=4096"], 4096),
        (["--max-model-len", "auto"], 0),
        (["--context-length", "32"], 32),
        (["--enforce-eager"], 0),
        (["--max-model-len"], 0),
    ],
)
def test_longest_request_is_read_from_the_arguments(arguments: list[str], tokens: int) -> None:
    assert describe_values("extra", {"extraArgs": arguments}).request_tokens == tokens


def test_offloading_is_read_from_the_arguments() -> None:
    assert describe_values("extra", {"extraArgs": ["--cpu-offload-gb", "10"]}).offloads
    assert not describe_values("extra", {"extraArgs": ["--chat-template", "offload"]}).offloads


@pytest.mark.parametrize(("tag", "refused"), [("1.2.1", True), ("1.3.0rc5", False), ("", False), ("nightly", False)])
def test_target_for_tokens_is_refused_where_the_engine_does_not_count_them(tag: str, refused: bool) -> None:
    spec = make_spec(runtime="trt-llm", autoscaling__targetTokensPerSecond=100)
    faults = check_values(spec, describe_values("extra", {"image": {"tag": tag}}))
    assert bool(faults) is refused
    assert all(tag in fault and "targetTokensPerSecond" in fault for fault in faults)


def test_fault_of_the_values_is_told() -> None:
    assert check_values(make_spec(), ExtraValues(name="extra", fault="wrong")) == ["wrong"]
    assert check_values(make_spec(), None) == []


def test_values_are_part_of_the_revision_and_their_name_of_the_pods_digest() -> None:
    spec, plain, named = make_spec(), Options(), Options(values_from="extra")
    assert pods_digest(spec, plain) != pods_digest(spec, named)
    assert revision(spec, named, "t", "0.1.0", "a") != revision(spec, named, "t", "0.1.0", "b")


@pytest.mark.parametrize(("value", "accepted"), [("extra.v1", True), ("Extra", False), ("", False), ("a/b", False)])
def test_annotation_takes_the_name_of_a_config_map(value: str, accepted: bool) -> None:
    options, faults = parse_options({VALUES_FROM: value}, {})
    assert (options.values_from, bool(faults)) == (value if accepted else "", not accepted)


def test_nothing_that_plnt_sets_is_allowed() -> None:
    assert set(ALLOWED).isdisjoint({"model", "weights", "resources", "labels", "quantization", "securityContext"})
