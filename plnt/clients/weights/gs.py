"""Weights on Google Cloud Storage, and on emulators by ``STORAGE_EMULATOR_HOST``.

gcsfs lists and holds the credentials; the bytes come from the JSON API's media links, pinned by generation.
"""

import asyncio
import base64
import binascii
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import quote

import aiohttp

from plnt.clients.weights.credentials import Credentials
from plnt.clients.weights.host_rule import HostRule
from plnt.clients.weights.redirect import trusted_hosts
from plnt.clients.weights.source import Link
from plnt.clients.weights.verdict import changed
from plnt.clients.weights.web import Web, open_web
from plnt.errors import AccessDenied, PlntError, SourceUnavailable, SpecInvalid, WeightsNotFound
from plnt.model.pull_plan import MAX_FILES, PlannedFile
from plnt.model.storage_uri import FIELD, BucketUri
from plnt.model.weight_files import MAX_SIDE_FILE_BYTES

PUBLIC_ENDPOINT = "https://storage.googleapis.com"
_PAGE = "1000"
_FIELDS = "nextPageToken,items(name,size,generation,crc32c,contentEncoding,updated)"


class GsSource:
    """A folder of a bucket."""

    packed = None
    ca_bundle: str | None = None

    def __init__(self, store: Any, web: Web, uri: BucketUri, endpoint: str) -> None:
        self._store, self._web, self._uri, self._endpoint = store, web, uri, endpoint
        self._found: dict[str, dict[str, Any]] = {}
        self.where = str(uri)
        self.trusted_hosts = trusted_hosts(endpoint)

    async def list_files(self) -> dict[str, int]:
        """Give path -> size of every object in the folder; placeholders of empty folders are left out.

        Raises:
            WeightsNotFound: there is no such bucket, or nothing in the folder.
        """
        token = ""
        with self._explaining(self.where):
            while True:
                page = await self._store._call(  # noqa: SLF001 - the public listing drops generations and sums
                    "GET",
                    "b/{}/o",
                    self._uri.bucket,
                    json_out=True,
                    prefix=self._uri.prefix,
                    maxResults=_PAGE,
                    fields=_FIELDS,
                    **({"pageToken": token} if token else {}),
                )
                self._keep(page.get("items") or [])
                token = page.get("nextPageToken", "")
                if not token:
                    break
        if not self._found:
            raise WeightsNotFound(
                f"{FIELD}: bucket {self._uri.bucket} holds nothing under the prefix {self._uri.prefix!r}: correct it, "
                f"or upload the model there"
            )
        return {path: int(entry["size"]) for path, entry in self._found.items()}

    def _keep(self, items: list[dict[str, Any]]) -> None:
        for item in items:
            if not item["name"].endswith("/"):
                self._found[item["name"].removeprefix(self._uri.prefix)] = item
        if len(self._found) > MAX_FILES:
            raise SpecInvalid(
                f"{FIELD}: {self.where} holds more than {MAX_FILES} files: point it at the model's own folder"
            )

    async def pin_file(self, path: str) -> PlannedFile:
        """Give an object's generation and its CRC-32C, which the store keeps for every object."""
        entry = self._found[path]
        if entry.get("contentEncoding", "") not in {"", "identity"}:
            raise SpecInvalid(
                f"{self.where}/{path} is stored with Content-Encoding {entry['contentEncoding']}, so its sums are not "
                f"those of the file: upload it without"
            )
        return PlannedFile(
            path=path,
            size=int(entry["size"]),
            validator="",
            version=str(entry["generation"]),
            modified=str(entry.get("updated", "")),
            checksum=_read_crc(entry.get("crc32c", "")),
        )

    async def read_file(self, file: PlannedFile) -> bytes:
        """Read a small object whole.

        Raises:
            SourceChanged: it is no longer what was pinned.
        """
        reply = await self._web.get(await self.make_link(file), limit=MAX_SIDE_FILE_BYTES)
        if reply.status == 200:
            return reply.body
        if reply.status in {404, 410, 412}:
            raise changed(file)
        raise _explain_status(reply.status, f"{self.where}/{file.path}", self._uri.bucket)

    async def make_link(self, file: PlannedFile) -> Link:
        """Give the object's media link at its generation, with a fresh token."""
        headers: dict[str, str] = {}
        # It may ask a token server.
        with self._explaining(self.where):
            await asyncio.to_thread(self._store.credentials.apply, headers)
        key = quote(self._uri.prefix + file.path, safe="")
        url = f"{self._endpoint}/storage/v1/b/{self._uri.bucket}/o/{key}?alt=media&generation={file.version}"
        return Link(url, headers)

    @contextmanager
    def _explaining(self, where: str) -> Iterator[None]:
        import requests  # noqa: PLC0415 - loaded with gcsfs, which is loaded at use
        from gcsfs.retry import HttpError  # noqa: PLC0415
        from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415

        try:
            yield
        except FileNotFoundError as error:
            raise WeightsNotFound(
                f"{FIELD}: there is no bucket {self._uri.bucket}: correct it, or create and fill the bucket"
            ) from error
        except HttpError as error:
            raise _explain_status(int(getattr(error, "code", 0) or 0), where, self._uri.bucket) from error
        except GoogleAuthError as error:
            raise AccessDenied(f"{where}: Google refuses plnt's credentials: {type(error).__name__}") from error
        except (aiohttp.ClientError, requests.RequestException, TimeoutError) as error:
            raise SourceUnavailable(f"{where}: the endpoint does not answer: {type(error).__name__}") from error
        except OSError as error:
            # gcsfs says 403 by a plain OSError.
            if "Forbidden" in str(error):
                raise _explain_status(403, where, self._uri.bucket) from error
            raise SourceUnavailable(f"{where}: the endpoint does not answer: {type(error).__name__}") from error


def _explain_status(status: int, where: str, bucket: str) -> PlntError:
    if status in {401, 403}:
        return AccessDenied(
            f"{FIELD}: no access to {where} (HTTP {status}): give plnt's account roles/storage.objectViewer on bucket "
            f"{bucket}, or name a Secret in annotation plnt.work/credentials"
        )
    if status == 404:
        return WeightsNotFound(f"{FIELD}: there is no bucket {bucket}: correct it, or create and fill the bucket")
    return SourceUnavailable(f"{where}: the endpoint answered HTTP {status}")


def _read_crc(text: str) -> str:
    try:
        value = base64.b64decode(text, validate=True)
    except binascii.Error:
        return ""
    return f"crc32c:{value.hex()}" if len(value) == 4 else ""


class GsSources:
    """Opens folders; an emulator is spoken to without credentials."""

    def __init__(self, endpoint: str, private_hosts: tuple[str, ...]) -> None:
        self._is_emulator = endpoint not in {"", "default"}
        given = endpoint if "://" in endpoint else f"http://{endpoint}"
        self._endpoint = given.rstrip("/") if self._is_emulator else PUBLIC_ENDPOINT
        self._private_hosts = private_hosts

    @asynccontextmanager
    async def open(self, uri: BucketUri, credentials: Credentials | None) -> AsyncIterator[GsSource]:
        """Open the folder ``uri``."""
        store = await asyncio.to_thread(self._make_store, credentials)
        rule = HostRule({*self._private_hosts, *trusted_hosts(self._endpoint)})
        try:
            async with open_web(rule) as web:
                yield GsSource(store, web, uri, self._endpoint)
        finally:
            session = store._session  # noqa: SLF001 - left open otherwise
            if session is not None:
                await session.close()

    def _make_store(self, credentials: Credentials | None) -> Any:
        # Without this gcsfs asks a gRPC service for the kind of each bucket, which blocks a minute where there is none.
        os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        # Loaded at use: it costs a second, and memory that a pool for another scheme does not need.
        from gcsfs.core import GCSFileSystem  # noqa: PLC0415

        token: Any = "anon" if self._is_emulator else None
        if credentials is not None:
            token = credentials.read_service_account()
        return GCSFileSystem(
            token=token,
            access="read_only",
            asynchronous=True,
            endpoint_url=self._endpoint,
            skip_instance_cache=True,
            session_kwargs={"trust_env": True},
        )
