"""The connection to Temporal, by the ``TEMPORAL_*`` variables of the official CLI."""

import asyncio
import logging
import random

from temporalio.client import Client, Plugin
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.envconfig import ClientConfig, ClientConnectConfig
from temporalio.runtime import Runtime

from plnt.settings import SettingsInvalid

logger = logging.getLogger(__name__)

DEFAULT_ADDRESS = "localhost:7233"

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 2.0


async def connect(runtime: Runtime | None = None, plugins: tuple[Plugin, ...] = ()) -> Client:
    """Connect, waiting for as long as the server does not answer: workers refuse a lazily connected client.

    Raises:
        SettingsInvalid: a ``TEMPORAL_*`` variable names a profile or file that cannot be read.
    """
    options = _read_options()
    options.setdefault("target_host", DEFAULT_ADDRESS)
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            return await Client.connect(
                **options, data_converter=pydantic_data_converter, runtime=runtime, plugins=plugins
            )
        except RuntimeError as error:
            # The SDK has no class of its own for a server that cannot be reached.
            logger.warning("temporal does not answer", extra={"address": options["target_host"], "error": str(error)})
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


def _read_options() -> ClientConnectConfig:
    try:
        return ClientConfig.load_client_connect_config()
    except (OSError, RuntimeError, ValueError) as error:
        raise SettingsInvalid(f"TEMPORAL_*: {error}; see docs/settings.md") from error
