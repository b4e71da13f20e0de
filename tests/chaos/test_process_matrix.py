"""Every process killed in every active phase and in the undo; prints the table."""

import os

import pytest

from tests.chaos.kills import COMPONENTS, MOMENTS, Cell, Result, render_table, serve_first, try_cell
from tests.e2e.place import Place, make_place

WANTED_COMPONENTS = os.environ.get("CHAOS_COMPONENTS", ",".join(COMPONENTS)).split(",")
WANTED_MOMENTS = os.environ.get("CHAOS_MOMENTS", ",".join(MOMENTS)).split(",")


async def test_every_process_may_be_killed_at_every_moment(
    tough_place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    results: list[Result] = []
    try:
        await _play_all(tough_place, results, capsys)
    finally:
        with capsys.disabled():
            print(f"\n{render_table(results)}", flush=True)
    assert [str(one.cell) for one in results if one.fault] == []


async def _play_all(place: Place, results: list[Result], capsys: pytest.CaptureFixture[str]) -> None:
    subject = await serve_first(place)
    for cell in (Cell(component, moment) for component in WANTED_COMPONENTS for moment in WANTED_MOMENTS):
        result = await try_cell(subject, cell)
        results.append(result)
        with capsys.disabled():
            print(f"{cell}: {result.fault or f'{result.seconds:.1f} s'}", flush=True)
        if result.fault:
            # What a failed cell left must not fail those that follow.
            place = await make_place(place.sandbox, place.kube, f"after {cell}")
            subject = await serve_first(place)
