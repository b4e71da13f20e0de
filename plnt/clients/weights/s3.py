"""Weights on S3 and on servers that speak its protocol; endpoint, credentials and CA by the standard AWS settings.

aioboto3 lists, pins and signs; the bytes of large files come over presigned links (see `mover`).
"""

import base64
import binascii
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlsplit

import aioboto3
import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
)

from plnt.clients.weights.credentials import Credentials
from plnt.clients.weights.source import Link
from plnt.clients.weights.verdict import changed
from plnt.errors import AccessDenied, PlntError, SourceUnavailable, SpecInvalid, WeightsNotFound
from plnt.model.pull_plan import MAX_FILES, PlannedFile
from plnt.model.storage_uri import FIELD, BucketUri

LINK_SECONDS = 3600
"""Life of a presigned link, in seconds; it ends earlier with the credentials that signed it."""

_CONFIG = AioConfig(
    signature_version="s3v4",
    connect_timeout=10,
    read_timeout=30,
    max_pool_connections=16,
    retries={"mode": "standard", "max_attempts": 3},
)
_AWS_SUFFIXES = (".amazonaws.com", ".amazonaws.com.cn")
_REFUSED = frozenset(
    {"AccessDenied", "403", "401", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken",
     "AllAccessDisabled", "AccountProblem", "InvalidClientTokenId", "TokenRefreshRequired"}
)  # fmt: skip
_ABSENT = frozenset({"NoSuchBucket", "NoSuchKey", "NoSuchVersion", "404"})


class S3Source:
    """A folder of a bucket."""

    packed = None

    def __init__(self, client: Any, uri: BucketUri, ca_bundle: str | None) -> None:
        self._client, self._uri = client, uri
        self.where = str(uri)
        self.ca_bundle = ca_bundle
        self.trusted_hosts = _trusted_hosts(str(client.meta.endpoint_url), uri.bucket)

    async def list_files(self) -> dict[str, int]:
        """Give path -> size of every object in the folder; placeholders of empty folders are left out.

        Raises:
            WeightsNotFound: there is no such bucket, or nothing in the folder.
        """
        found: dict[str, int] = {}
        with self._explaining():
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._uri.bucket, Prefix=self._uri.prefix
            )
            async for page in pages:
                for entry in page.get("Contents", []):
                    if not entry["Key"].endswith("/"):
                        found[entry["Key"].removeprefix(self._uri.prefix)] = entry["Size"]
                if len(found) > MAX_FILES:
                    raise SpecInvalid(
                        f"{FIELD}: {self.where} holds more than {MAX_FILES} files: point it at the model's own folder"
                    )
        if not found:
            raise WeightsNotFound(
                f"{FIELD}: bucket {self._uri.bucket} holds nothing under the prefix {self._uri.prefix!r}: correct it, "
                f"or upload the model there"
            )
        return found

    async def pin_file(self, path: str) -> PlannedFile:
        """Give an object's version, validator and published digest."""
        with self._explaining(path):
            head = await self._client.head_object(
                Bucket=self._uri.bucket, Key=self._uri.prefix + path, ChecksumMode="ENABLED"
            )
        version = head.get("VersionId", "")
        return PlannedFile(
            path=path,
            size=head["ContentLength"],
            validator=head["ETag"].strip('"'),
            version="" if version == "null" else version,
            modified=head["LastModified"].isoformat(),
            sha256=_read_sha256(head),
        )

    async def read_file(self, file: PlannedFile) -> bytes:
        """Read a small object whole.

        Raises:
            SourceChanged: it is no longer what was pinned.
        """
        with self._explaining(file.path, file):
            answer = await self._client.get_object(**self._address(file), IfMatch=f'"{file.validator}"')
            async with answer["Body"] as body:
                return bytes(await body.read())

    async def make_link(self, file: PlannedFile) -> Link:
        """Presign a GET of the object."""
        with self._explaining(file.path):
            url = await self._client.generate_presigned_url(
                "get_object", Params=self._address(file), ExpiresIn=LINK_SECONDS
            )
        return Link(url)

    def _address(self, file: PlannedFile) -> dict[str, str]:
        version = {"VersionId": file.version} if file.version else {}
        return {"Bucket": self._uri.bucket, "Key": self._uri.prefix + file.path, **version}

    @contextmanager
    def _explaining(self, path: str = "", file: PlannedFile | None = None) -> Iterator[None]:
        where = f"{self.where}/{path}" if path else self.where
        try:
            yield
        except ClientError as error:
            raise _explain(error, where, self._uri.bucket, file) from error
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise AccessDenied(
                f"{where}: plnt has no S3 credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the "
                f"weights pool a role"
            ) from error
        except ParamValidationError as error:
            raise SpecInvalid(f"{FIELD}: {self._uri.bucket!r} can be no S3 bucket: correct it") from error
        except (BotoCoreError, aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise SourceUnavailable(
                f"{where}: the S3 endpoint does not answer: {error or type(error).__name__}"
            ) from error


class S3Sources:
    """Opens folders with the process's own AWS settings; one session for all, as loading one takes most of a second."""

    def __init__(self) -> None:
        self._settings = get_session()
        self._session = aioboto3.Session(botocore_session=self._settings)

    @asynccontextmanager
    async def open(self, uri: BucketUri, credentials: Credentials | None = None) -> AsyncIterator[S3Source]:
        """Open the folder ``uri``; endpoint and region are the process's own, whoever's keys are used."""
        keys = credentials.read_aws_keys() if credentials is not None else {}
        async with self._session.client("s3", config=_CONFIG, **keys) as client:
            yield S3Source(client, uri, self._settings.get_config_variable("ca_bundle"))


def _trusted_hosts(endpoint: str, bucket: str) -> frozenset[str]:
    """Give the hosts of an endpoint that the operator set; Amazon's own are public and need no trust."""
    parts = urlsplit(endpoint)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    if host.endswith(_AWS_SUFFIXES):
        return frozenset()
    return frozenset({f"{host}:{port}", f"{bucket}.{host}:{port}"})


def _read_sha256(head: dict[str, Any]) -> str:
    """Give the published SHA-256 in hex; one over parts (``-N``, COMPOSITE) proves nothing about the whole file."""
    text = head.get("ChecksumSHA256", "")
    if head.get("ChecksumType", "FULL_OBJECT") != "FULL_OBJECT":
        return ""
    try:
        digest = base64.b64decode(text, validate=True)
    except binascii.Error:
        return ""
    return digest.hex() if len(digest) == 32 else ""


def _explain(error: ClientError, where: str, bucket: str, file: PlannedFile | None) -> PlntError:
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code == "NoSuchBucket":
        return WeightsNotFound(f"{FIELD}: there is no bucket {bucket}: correct it, or create and fill the bucket")
    if code in _ABSENT or status == 404:
        return WeightsNotFound(f"{where} is not there (any more): upload it, then retry")
    if code in {"PreconditionFailed", "412"} and file is not None:
        return changed(file)
    if code in _REFUSED or status in {401, 403}:
        return AccessDenied(
            f"{FIELD}: no access to {where} ({code}): give plnt's credentials s3:ListBucket on bucket {bucket} and "
            f"s3:GetObject on its objects, or correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if code in {"InvalidBucketName", "InvalidRequest", "InvalidURI"}:
        return SpecInvalid(f"{FIELD}: the S3 endpoint refuses {where} ({code}): correct it")
    return SourceUnavailable(f"{where}: the S3 endpoint answered {code or 'nothing'} (HTTP {status})")
