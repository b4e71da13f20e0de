import io
from typing import Any

from plnt.model.status import Phase
from plnt.sandbox.record import Entry
from plnt.sandbox.report import Reporter, render_seconds, render_status
from plnt.sandbox.story import Story


def seen(phase: str, **messages: str) -> dict[str, Any]:
    conditions = [{"type": kind, "message": message} for kind, message in messages.items()]
    return {"status": {"phase": phase, "conditions": conditions}}


def test_story_tells_each_phase_once_with_its_time_and_last_word() -> None:
    story = Story(0)
    lines = story.observe({}, 0.5) + story.observe(seen("Pending"), 1) + story.observe(seen("PullingWeights"), 2)
    assert [line.split() for line in lines] == [["Pending", "1.0", "s"]]
    assert story.observe(seen("PullingWeights", WeightsReady="3 of 9 MB, 2 MB/s"), 3) == []
    assert "3 of 9 MB, 2 MB/s" in story.render_now(4)
    (line,) = story.observe(seen("Deploying", WeightsReady="9 MB"), 6)
    assert line.split()[:3] == ["PullingWeights", "4.0", "s"]
    assert "9 MB" in line


def test_story_ends_with_the_rollout() -> None:
    story = Story(0)
    story.observe(seen("SmokeTesting"), 1)
    lines = story.observe(seen("RolledBack"), 3)
    assert story.is_over
    assert story.phases == [Phase.SMOKE_TESTING, Phase.ROLLED_BACK]
    assert story.suspect == "smoke"
    assert "3.0 s in all" in lines[-1]


def test_status_table_tells_what_is_down_and_why() -> None:
    lines, well = render_status([Entry("gpu", 2**22, 1.0, (21_000,), 4, "ended with SIGKILL, starts in 1 s")])
    assert not well
    assert "down" in lines[1]
    assert "SIGKILL" in lines[1]


def test_ticks_are_rare_where_lines_cannot_be_overwritten() -> None:
    now = [0.0]
    said = io.StringIO()
    reporter = Reporter(said, lambda: now[0])
    for second in range(100):
        now[0] = float(second)
        reporter.tick(f"{second} s")
    assert said.getvalue().split("\n") == ["30 s", "60 s", "90 s", ""]


def test_durations_read_as_in_kubectl() -> None:
    assert [render_seconds(value) for value in (5, 119.9, 125, 7260)] == ["5s", "119s", "2m5s", "2h1m"]
