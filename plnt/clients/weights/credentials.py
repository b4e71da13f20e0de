"""Access to a private source: a Secret of the WorkflowRun's namespace, read at use and kept nowhere."""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plnt.clients.kube import Kube, Resource
from plnt.errors import AccessDenied, NotFound, SpecInvalid
from plnt.model.options import CREDENTIALS

SECRETS = Resource("v1", "secrets")
_REVIEWS = Resource("authentication.k8s.io/v1", "selfsubjectreviews")
_GOOGLE_TOKENS = "https://oauth2.googleapis.com/token"
_DOCKER_HUB = ("docker.io", "index.docker.io", "registry-1.docker.io")


@dataclass(frozen=True, slots=True)
class Login:
    """How a registry is asked for tokens: user and password, or an identity token alone."""

    user: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Credentials:
    """The content of one Secret; never logged, never part of a message."""

    name: str
    """Namespace and name of the Secret."""
    data: Mapping[str, str] = field(repr=False)

    def read_aws_keys(self) -> dict[str, str]:
        """Give the keyword arguments of an AWS client.

        Raises:
            SpecInvalid: a key is missing.
        """
        keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        found = {key.lower(): self._get(key) for key in keys}
        token = self.data.get("AWS_SESSION_TOKEN", "").strip()
        return {**found, **({"aws_session_token": token} if token else {})}

    def read_service_account(self) -> dict[str, Any]:
        """Give the service account's key; tokens are asked of Google alone, wherever the key points.

        Raises:
            SpecInvalid: there is none, or it names another token server.
        """
        names = sorted(key for key in self.data if key.endswith(".json"))
        account = _parse_object(self.data[names[0]]) if names else {}
        if account.get("type") != "service_account":
            raise self._lacks("a service account's key as a *.json entry")
        if account.get("token_uri", _GOOGLE_TOKENS) != _GOOGLE_TOKENS or account.get("universe_domain") not in {
            None,
            "googleapis.com",
        }:
            raise SpecInvalid(f"annotation {CREDENTIALS}: Secret {self.name} names another token server than Google's")
        return {**account, "token_uri": _GOOGLE_TOKENS}

    def read_hub_token(self) -> str:
        """Give the token of the Hugging Face Hub.

        Raises:
            SpecInvalid: there is none.
        """
        return self._get("HF_TOKEN")

    def read_login(self, host: str, name: str) -> Login | None:
        """Give the login of the longest matching entry for ``host/name``, as kubelet chooses it; none = no entry.

        Raises:
            SpecInvalid: the Secret is of another kind, or needs a program to give the login.
        """
        config = _parse_object(self._get(".dockerconfigjson"))
        entries = config.get("auths")
        wanted = f"{host}/{name}"
        matching = {
            key: entry
            for key, entry in (entries.items() if isinstance(entries, dict) else ())
            if isinstance(entry, dict) and _covers(key, host, wanted)
        }
        if not matching:
            helpers = config.get("credHelpers")
            if isinstance(helpers, dict) and host in helpers:
                raise SpecInvalid(
                    f"annotation {CREDENTIALS}: Secret {self.name} asks for credHelper {helpers[host]}, which plnt "
                    f"does not run: put user and password under auths"
                )
            return None
        return _read_entry(matching[max(matching, key=lambda key: len(_normalize(key)))])

    def _get(self, key: str) -> str:
        value = self.data.get(key, "").strip()
        if not value:
            raise self._lacks(f"the entry {key}")
        return value

    def _lacks(self, what: str) -> SpecInvalid:
        return SpecInvalid(f"annotation {CREDENTIALS}: Secret {self.name} lacks {what}: add it")


async def read_credentials(kube: Kube, namespace: str, name: str) -> Credentials:
    """Read a Secret.

    Raises:
        AccessDenied: plnt may not; the message says how to allow it.
        SpecInvalid: it is not there.
    """
    try:
        secret = await kube.get(SECRETS, namespace, name)
    except NotFound:
        raise SpecInvalid(f"annotation {CREDENTIALS}: there is no Secret {name} in namespace {namespace}") from None
    except AccessDenied as error:
        user = await _read_user(kube)
        raise AccessDenied(
            f"annotation {CREDENTIALS}: plnt may not read Secret {name}: kubectl create role plnt-{name} "
            f"--namespace={namespace} --verb=get --resource=secrets --resource-name={name} && kubectl create "
            f"rolebinding plnt-{name} --namespace={namespace} --role=plnt-{name} --user={user}"
        ) from error
    return Credentials(f"{namespace}/{name}", {key: _decode(text) for key, text in (secret.get("data") or {}).items()})


async def _read_user(kube: Kube) -> str:
    body = {"apiVersion": _REVIEWS.api, "kind": "SelfSubjectReview"}
    answer = await kube.create(_REVIEWS, None, body)
    return str(answer.get("status", {}).get("userInfo", {}).get("username", "the weights pool's user"))


def _decode(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _parse_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {}


def _normalize(key: str) -> str:
    bare = key.removeprefix("https://").removeprefix("http://").rstrip("/")
    return bare.removesuffix("/v1").removesuffix("/v2").rstrip("/")


def _covers(key: str, host: str, wanted: str) -> bool:
    bare = _normalize(key)
    if bare in _DOCKER_HUB and host in _DOCKER_HUB:
        return True
    return wanted == bare or wanted.startswith(f"{bare}/")


def _read_entry(entry: Mapping[str, Any]) -> Login:
    if entry.get("identitytoken"):
        return Login(identity_token=str(entry["identitytoken"]))
    user, _, password = _decode(str(entry.get("auth", ""))).partition(":")
    return Login(user=str(entry.get("username") or user), password=str(entry.get("password") or password))
