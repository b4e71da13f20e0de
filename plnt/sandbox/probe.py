"""Asks whether a component answers."""

import asyncio
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

_TIMEOUT = aiohttp.ClientTimeout(total=2)


async def answers(address: str, authority: Path) -> bool:
    """Tell whether ``tcp://host:port`` accepts connections, or an http(s) URL answers 200."""
    parts = urlsplit(address)
    try:
        if parts.scheme == "tcp":
            _, writer = await asyncio.wait_for(asyncio.open_connection(parts.hostname, parts.port), 2)
            writer.close()
            return True
        trusted = ssl.create_default_context(cafile=str(authority)) if parts.scheme == "https" else False
        async with (
            aiohttp.ClientSession(timeout=_TIMEOUT) as session,
            session.get(address, ssl=trusted) as response,
        ):
            return response.status == 200
    except (aiohttp.ClientError, OSError, TimeoutError):
        return False
