"""What plnt reads in a tenant's Secret, and what it refuses there."""

import base64
import json
from typing import Any

import pytest

from plnt.clients.weights.credentials import Credentials, Login
from plnt.errors import SpecInvalid
from plnt.model.options import CREDENTIALS, EXCLUDE, INCLUDE, Options, parse_options
from plnt.model.revision import pods_digest
from plnt.model.workflow_run import Spec

SECRET = "s3cr3t"


def docker(**auths: Any) -> Credentials:
    config = {"auths": {key.replace("__", "/").replace("_", "."): value for key, value in auths.items()}}
    return Credentials("team/pull", {".dockerconfigjson": json.dumps(config)})


def login(name: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{name}:{SECRET}".encode()).decode()}


@pytest.mark.parametrize(
    ("host", "name", "user"),
    [
        ("ghcr.io", "team/model", "team"),
        ("ghcr.io", "team-b/model", "all"),
        ("ghcr.io", "teammodel", "all"),
        ("ghcr.io.evil.test", "team/model", None),
        ("quay.io", "team/model", None),
    ],
)
def test_registry_gets_the_longest_matching_entry_alone(host: str, name: str, user: str | None) -> None:
    found = docker(ghcr_io=login("all"), ghcr_io__team=login("team")).read_login(host, name)
    assert (found.user if found is not None else None) == user


def test_docker_hub_is_found_under_the_name_that_docker_writes() -> None:
    config = json.dumps({"auths": {"https://index.docker.io/v1/": login("me")}})
    found = Credentials("team/pull", {".dockerconfigjson": config}).read_login("docker.io", "org/model")
    assert found == Login(user="me", password=SECRET)


def test_identity_token_and_plain_fields_are_read() -> None:
    entries = docker(a_test={"identitytoken": SECRET}, b_test={"username": "me", "password": SECRET})
    assert entries.read_login("a.test", "m") == Login(identity_token=SECRET)
    assert entries.read_login("b.test", "m") == Login(user="me", password=SECRET)


def test_helper_program_is_named_and_not_run() -> None:
    config = json.dumps({"credHelpers": {"ecr.test": "ecr-login"}})
    with pytest.raises(SpecInvalid, match="credHelper ecr-login"):
        Credentials("team/pull", {".dockerconfigjson": config}).read_login("ecr.test", "m")


ACCOUNT = {"type": "service_account", "client_email": "a@b", "private_key": SECRET}


def test_service_account_asks_google_for_tokens_and_nobody_else() -> None:
    def read(**changes: str) -> dict[str, Any]:
        return Credentials("team/gs", {"key.json": json.dumps({**ACCOUNT, **changes})}).read_service_account()

    assert read()["token_uri"] == "https://oauth2.googleapis.com/token"
    for changes in ({"token_uri": "http://169.254.169.254/token"}, {"universe_domain": "evil.test"}):
        with pytest.raises(SpecInvalid, match="another token server"):
            read(**changes)


@pytest.mark.parametrize("method", ["read_aws_keys", "read_service_account", "read_hub_token"])
def test_secret_without_the_entry_says_which_is_missing(method: str) -> None:
    with pytest.raises(SpecInvalid, match=f"annotation {CREDENTIALS}: Secret team/empty lacks"):
        getattr(Credentials("team/empty", {"other": SECRET}), method)()


def test_secret_shows_in_no_representation() -> None:
    entries = docker(a_test=login("me"))
    assert SECRET not in repr(entries)
    assert SECRET not in repr(entries.read_login("a.test", "m"))


def test_globs_are_split_and_bounded() -> None:
    options, faults = parse_options({INCLUDE: "*.safetensors, *.py", EXCLUDE: "LICENSE*", CREDENTIALS: "hub"}, {})
    assert not faults
    assert (options.include, options.exclude, options.credentials) == (["*.safetensors", "*.py"], ["LICENSE*"], "hub")
    for value in ("", " , ", "x" * 300, "a\nb", ",".join("abc" * 20)):
        assert parse_options({INCLUDE: value}, {})[1]
    assert parse_options({CREDENTIALS: "No Name"}, {})[1]


def test_globs_are_part_of_the_pods_and_access_is_not() -> None:
    spec = Spec.model_validate(
        {
            "runtime": "vllm",
            "model": {"name": "m", "storageUri": "s3://bucket/m"},
            "resources": {"gpu": 1, "gpuClass": "nvidia.com/h100", "memoryGiB": 8},
        }
    )
    plain = pods_digest(spec, Options())
    assert pods_digest(spec, Options(credentials="hub")) == plain
    assert pods_digest(spec, Options(include=["*.bin"])) != plain
    assert pods_digest(spec, Options(exclude=["*.bin"])) != plain
