"""Weights of the Hugging Face Hub, and of mirrors by ``HF_ENDPOINT``.

huggingface_hub resolves the revision and lists the files; the bytes come from the Hub's resolve links, which redirect
to signed ones of its stores.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar
from urllib.parse import quote

from plnt.clients.weights.credentials import Credentials
from plnt.clients.weights.host_rule import HostRule
from plnt.clients.weights.redirect import trusted_hosts
from plnt.clients.weights.source import Link
from plnt.clients.weights.web import Web, open_web
from plnt.errors import AccessDenied, DigestMismatch, PlntError, SourceUnavailable, SpecInvalid, WeightsNotFound
from plnt.model.pull_plan import MAX_FILES, PlannedFile
from plnt.model.storage_uri import FIELD, HfUri
from plnt.model.weight_files import MAX_SIDE_FILE_BYTES

PUBLIC_ENDPOINT = "https://huggingface.co"
_COMMIT_CHARS = 40
Result = TypeVar("Result")


class HfSource:
    """A model repository at one revision."""

    packed = None
    ca_bundle: str | None = None

    def __init__(self, hub: Any, web: Web, uri: HfUri, endpoint: str, token: str) -> None:
        self._hub, self._web, self._uri, self._endpoint = hub, web, uri, endpoint
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._found: dict[str, PlannedFile] = {}
        self.trusted_hosts = frozenset() if endpoint == PUBLIC_ENDPOINT else trusted_hosts(endpoint)

    @property
    def where(self) -> str:
        """URI at the pinned commit, once the files were listed."""
        return str(self._uri)

    @property
    def _repo(self) -> str:
        return f"{self._uri.owner}/{self._uri.repo}"

    async def list_files(self) -> dict[str, int]:
        """Pin the revision to its commit and give path -> size of the files there.

        Raises:
            WeightsNotFound, AccessDenied: there is no such repository or revision, or it is not for this token.
        """
        self._uri = self._uri.model_copy(update={"revision": await self._find_commit()})
        entries = await self._ask(self._list)
        folder = f"{self._uri.path}/" if self._uri.path else ""
        self._found = {file.path: file for entry in entries if (file := _read_entry(entry, folder)) is not None}
        if not self._found:
            raise WeightsNotFound(f"{FIELD}: {self.where} holds no files: correct owner, repository, revision and path")
        return {path: file.size for path, file in self._found.items()}

    async def _find_commit(self) -> str:
        info = await self._ask(
            lambda: self._hub.model_info(self._repo, revision=self._uri.revision or None, timeout=30)
        )
        commit = str(info.sha or "")
        if len(commit) != _COMMIT_CHARS:
            raise SourceUnavailable(f"{self.where}: the Hub names no commit")
        return commit

    def _list(self) -> list[Any]:
        tree = self._hub.list_repo_tree(
            self._repo, path_in_repo=self._uri.path or None, recursive=True, revision=self._uri.revision
        )
        entries = []
        for entry in tree:
            entries.append(entry)
            if len(entries) > MAX_FILES:
                raise SpecInvalid(
                    f"{FIELD}: {self.where} holds more than {MAX_FILES} files: add the model's own folder"
                )
        return entries

    async def pin_file(self, path: str) -> PlannedFile:
        """Give a file with the sum that its commit fixes."""
        return self._found[path]

    async def read_file(self, file: PlannedFile) -> bytes:
        """Read a small file and check it.

        Raises:
            DigestMismatch: it is not what the commit says.
        """
        reply = await self._web.get(await self.make_link(file), limit=MAX_SIDE_FILE_BYTES)
        if reply.status != 200:
            raise _explain_status(reply.status, f"{self.where}/{file.path}")
        blob = hashlib.sha1(b"blob %d\0" % len(reply.body) + reply.body, usedforsecurity=False).hexdigest()
        if f"git-sha1:{blob}" != file.checksum and hashlib.sha256(reply.body).hexdigest() != file.sha256:
            raise DigestMismatch(f"{self.where}/{file.path} is not what the commit says: check the endpoint")
        return reply.body

    async def make_link(self, file: PlannedFile) -> Link:
        """Give the file's link at the pinned commit."""
        path = quote(f"{self._uri.path}/{file.path}" if self._uri.path else file.path)
        url = f"{self._endpoint}/{self._repo}/resolve/{self._uri.revision}/{path}"
        return Link(url, self._headers, follows=True)

    async def _ask(self, call: Callable[[], Result]) -> Result:
        with self._explaining():
            return await asyncio.to_thread(call)

    @contextmanager
    def _explaining(self) -> Iterator[None]:

        from huggingface_hub import errors  # noqa: PLC0415 - loaded at use, as the client itself

        try:
            yield
        except errors.GatedRepoError as error:
            raise AccessDenied(
                f"{FIELD}: {self._repo} is gated: ask for access on its page, then name a Secret with HF_TOKEN in "
                f"annotation plnt.work/credentials"
            ) from error
        except errors.RepositoryNotFoundError as error:
            raise WeightsNotFound(
                f"{FIELD}: there is no repository {self._repo}, or it is private: correct it, or name a Secret with "
                f"HF_TOKEN in annotation plnt.work/credentials"
            ) from error
        except (errors.RevisionNotFoundError, errors.EntryNotFoundError) as error:
            raise WeightsNotFound(f"{FIELD}: {self.where} has no such revision or path: correct it") from error
        except errors.HfHubHTTPError as error:
            raise _explain_status(error.response.status_code, self.where) from error
        except (errors.HTTPError, OSError) as error:  # type: ignore[attr-defined]
            raise SourceUnavailable(f"{self.where}: the Hub does not answer: {type(error).__name__}") from error


def _read_entry(entry: Any, folder: str) -> PlannedFile | None:
    """Give a listed file; folders have no size."""
    size = getattr(entry, "size", None)
    if size is None or not entry.path.startswith(folder):
        return None
    path, lfs = entry.path.removeprefix(folder), getattr(entry, "lfs", None)
    if lfs is not None:
        return PlannedFile(path=path, size=lfs.size, validator="", version=lfs.sha256, sha256=lfs.sha256)
    return PlannedFile(path=path, size=size, validator="", version=entry.blob_id, checksum=f"git-sha1:{entry.blob_id}")


def _explain_status(status: int, where: str) -> PlntError:
    if status in {401, 403}:
        return AccessDenied(
            f"{FIELD}: no access to {where} (HTTP {status}): name a Secret with HF_TOKEN in annotation "
            f"plnt.work/credentials"
        )
    if status == 404:
        return WeightsNotFound(f"{FIELD}: {where} is not there: correct it")
    return SourceUnavailable(f"{where}: the Hub answered HTTP {status}")


class HfSources:
    """Opens repositories of one Hub."""

    def __init__(self, endpoint: str, token: str, private_hosts: tuple[str, ...]) -> None:
        self._endpoint, self._token = endpoint.rstrip("/"), token
        self._private_hosts = private_hosts

    @asynccontextmanager
    async def open(self, uri: HfUri, credentials: Credentials | None) -> AsyncIterator[HfSource]:
        """Open a repository."""
        # Loaded at use: it costs half a second, and memory that a pool for another scheme does not need.
        from huggingface_hub import HfApi  # noqa: PLC0415

        token = credentials.read_hub_token() if credentials is not None else self._token
        # False, not none: none would look for a token in the home folder.
        hub = HfApi(endpoint=self._endpoint, token=token or False)
        trusted = set() if self._endpoint == PUBLIC_ENDPOINT else trusted_hosts(self._endpoint)
        async with open_web(HostRule({*self._private_hosts, *trusted})) as web:
            yield HfSource(hub, web, uri, self._endpoint, token)
