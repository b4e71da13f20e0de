"""How late a clock reading may have been."""

import asyncio
import time

from plnt.clients.loop_lag import watch_loop


async def test_reading_after_a_stall_may_be_as_late_as_the_stall_was_long() -> None:
    async with watch_loop() as lag:
        await asyncio.sleep(0.03)
        time.sleep(0.2)  # noqa: ASYNC251
        at_once = time.perf_counter()
        assert lag.tell_lateness_ms(at_once) >= 150
        await asyncio.sleep(0.03)
        assert lag.tell_lateness_ms(at_once) >= 150


async def test_reading_outside_a_stall_is_punctual() -> None:
    async with watch_loop() as lag:
        await asyncio.sleep(0.03)
        before = time.perf_counter()
        time.sleep(2)  # noqa: ASYNC251
        await asyncio.sleep(0.03)
        assert lag.tell_lateness_ms(before) < 1900
        lag.restart()
        assert lag.tell_lateness_ms(before) < 1900
