"""Numbers and verdict of a smoke test."""

from typing import Any

import pytest

from plnt.model.completion_stream import TokenTimes
from plnt.model.latency import Outcome, Sample, judge, measure, summarise


def _samples(*ttft_ms: float, tpot_ms: float | None = 20.0, **more: Any) -> list[Sample]:
    return [Sample(ttft_ms=value, tpot_ms=tpot_ms, **more) for value in ttft_ms]


def _times(first_at: float, last_at: float, tokens: int | None, first_chunk_tokens: int = 1) -> TokenTimes:
    return TokenTimes(first_at=first_at, last_at=last_at, tokens=tokens, first_chunk_tokens=first_chunk_tokens)


def test_sample_divides_the_spread_by_the_tokens_after_the_first_chunk() -> None:
    sample = measure(1.0, _times(1.1, 1.3, tokens=20, first_chunk_tokens=10))
    assert sample.ttft_ms == pytest.approx(100)
    assert sample.tpot_ms == pytest.approx(20)


@pytest.mark.parametrize(
    "times",
    [
        pytest.param(_times(1.1, 1.3, tokens=None), id="no usage"),
        pytest.param(_times(1.1, 1.1, tokens=1), id="one token"),
        pytest.param(_times(1.1, 1.1, tokens=20, first_chunk_tokens=20), id="one chunk"),
        pytest.param(_times(1.1, 1.1, tokens=20), id="everything at one moment"),
    ],
)
def test_sample_has_no_tpot_when_nothing_measures_it(times: TokenTimes) -> None:
    assert measure(1.0, times).tpot_ms is None


def test_report_gives_median_and_nearest_rank_rounded() -> None:
    report = summarise(_samples(*[float(n) + 0.04 for n in range(1, 11)]))
    assert (report.prompts, report.ttft_p50_ms, report.ttft_p90_ms) == (10, 5.5, 9.0)


def test_report_has_no_tpot_when_most_samples_lack_it() -> None:
    mixed = [*_samples(1.0), *_samples(1.0, 1.0, tpot_ms=None)]
    assert summarise(mixed).tpot_p50_ms is None
    assert summarise([*mixed, *_samples(1.0)]).tpot_p50_ms == 20.0


def test_verdict_passes_at_the_budget_and_without_one() -> None:
    assert judge(_samples(250.0), 250, 20).outcome is Outcome.PASS
    assert judge(_samples(9999.0, tpot_ms=None), None, None).outcome is Outcome.PASS


def test_verdict_fails_with_measured_and_allowed_of_each_budget() -> None:
    verdict = judge(_samples(412.0, 412.04), 250, 10)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.message == (
        "TTFT p50 412 ms is over spec.canary.smokeTest.ttftBudgetMs 250 ms; "
        "TPOT p50 20 ms is over spec.canary.smokeTest.tpotBudgetMs 10 ms"
    )


def test_verdict_fails_a_tpot_budget_that_was_not_measured() -> None:
    verdict = judge(_samples(1.0, 1.0, tpot_ms=None), None, 40)
    assert verdict.outcome is Outcome.FAIL
    assert "2 of 2 answers came without usage" in verdict.message


def test_verdict_is_inconclusive_when_late_readings_may_be_what_exceeds() -> None:
    verdict = judge(_samples(300.0, first_late_ms=80.0), 250, None)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "80 ms late" in verdict.message


def test_verdict_fails_when_late_readings_cannot_explain_it() -> None:
    assert judge(_samples(400.0, first_late_ms=80.0), 250, None).outcome is Outcome.FAIL


def test_verdict_fails_when_most_readings_were_punctual() -> None:
    samples = [*_samples(300.0, 300.0), *_samples(300.0, first_late_ms=200.0)]
    assert judge(samples, 250, None).outcome is Outcome.FAIL


def test_verdict_passes_whatever_made_readings_late() -> None:
    assert judge(_samples(240.0, first_late_ms=80.0), 250, None).outcome is Outcome.PASS


def test_verdict_spreads_lateness_over_the_tokens_of_tpot() -> None:
    close = _samples(1.0, tpot_ms=39.0, first_late_ms=62.0, later_tokens=31)
    far = _samples(1.0, tpot_ms=30.0, first_late_ms=62.0, later_tokens=31)
    above = _samples(1.0, tpot_ms=41.0, last_late_ms=62.0, later_tokens=31)
    assert judge(close, None, 40).outcome is Outcome.INCONCLUSIVE
    assert judge(far, None, 40).outcome is Outcome.PASS
    assert judge(above, None, 40).outcome is Outcome.INCONCLUSIVE


def test_sample_notes_how_late_each_reading_was() -> None:
    late = {1.1: 30.0, 1.3: 5.0}
    sample = measure(1.0, _times(1.1, 1.3, tokens=20), late.__getitem__)
    assert (sample.first_late_ms, sample.last_late_ms) == (30.0, 5.0)
