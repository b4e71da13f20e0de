"""Every process killed in every active phase and in the undo; prints the table."""

import os

import pytest

from tests.chaos.kills import COMPONENTS, MOMENTS, Cell, render_table, serve_first, try_cell
from tests.e2e.place import Place

WANTED_COMPONENTS = os.environ.get("CHAOS_COMPONENTS", ",".join(COMPONENTS)).split(",")
WANTED_MOMENTS = os.environ.get("CHAOS_MOMENTS", ",".join(MOMENTS)).split(",")


async def test_every_process_may_be_killed_at_every_moment(
    tough_place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    subject = await serve_first(tough_place)
    results = []
    for component in WANTED_COMPONENTS:
        for moment in WANTED_MOMENTS:
            result = await try_cell(subject, Cell(component, moment))
            results.append(result)
            with capsys.disabled():
                print(f"{result.cell}: {result.fault or f'{result.seconds:.1f} s'}", flush=True)
            if result.fault:
                subject = await serve_first(tough_place, f"model-{len(results)}")
    with capsys.disabled():
        print(f"\n{render_table(results)}", flush=True)
    assert [str(one.cell) for one in results if one.fault] == []
