"""The connection to Temporal, by the ``TEMPORAL_*`` variables of the official CLI."""

import logging

from temporalio.client import Client, Plugin
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.envconfig import ClientConfig
from temporalio.runtime import Runtime

logger = logging.getLogger(__name__)

DEFAULT_ADDRESS = "localhost:7233"


async def connect(runtime: Runtime | None = None, plugins: tuple[Plugin, ...] = ()) -> Client:
    """Connect lazily: the first call, not this one, needs the server, and every call is retried by the SDK."""
    options = ClientConfig.load_client_connect_config()
    options.setdefault("target_host", DEFAULT_ADDRESS)
    return await Client.connect(
        **options, data_converter=pydantic_data_converter, runtime=runtime, plugins=plugins, lazy=True
    )
