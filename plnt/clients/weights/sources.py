"""Opens the source of a URI by its scheme, whose client library is loaded at the first use."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from plnt.clients.weights.credentials import Credentials
from plnt.clients.weights.gs import GsSources
from plnt.clients.weights.hf import HfSources
from plnt.clients.weights.oci import OciSources
from plnt.clients.weights.source import Source
from plnt.model.storage_uri import HfUri, OciUri, Scheme, StorageUri
from plnt.settings import PoolSettings

if TYPE_CHECKING:
    from plnt.clients.weights.s3 import S3Sources


class Sources:
    """All schemes, as the pool's settings have them."""

    def __init__(self, settings: PoolSettings) -> None:
        self._gs = GsSources(settings.gs_endpoint, settings.private_hosts)
        self._hf = HfSources(settings.hf_endpoint, settings.hf_token, settings.private_hosts)
        self._oci = OciSources(settings.oci_mirrors, settings.private_hosts)

    @cached_property
    def _s3(self) -> "S3Sources":
        # The AWS libraries take half of what a pool of another scheme needs in all.
        from plnt.clients.weights.s3 import S3Sources  # noqa: PLC0415

        return S3Sources()

    @asynccontextmanager
    async def open(self, uri: StorageUri, credentials: Credentials | None = None) -> AsyncIterator[Source]:
        """Open the source of ``uri``, with the pool's own identity when no credentials are given."""
        async with AsyncExitStack() as stack:
            yield await self._enter(stack, uri, credentials)

    async def _enter(self, stack: AsyncExitStack, uri: StorageUri, credentials: Credentials | None) -> Source:
        if isinstance(uri, OciUri):
            return await stack.enter_async_context(self._oci.open(uri, credentials))
        if isinstance(uri, HfUri):
            return await stack.enter_async_context(self._hf.open(uri, credentials))
        if uri.scheme is Scheme.GS:
            return await stack.enter_async_context(self._gs.open(uri, credentials))
        return await stack.enter_async_context(self._s3.open(uri, credentials))
