"""Latency of a smoke test: from token times to the verdict.

TTFT runs from the request's headers being written to the first delta with content or reasoning. TPOT is the time
between first and last such delta, divided by the tokens after the first chunk; equal to what ``vllm bench serve``
reports when each chunk holds one token.

A late event loop reads the clock late. So each sample carries how late its readings may have been, the medians get
bounds from that, and a budget between the bounds is neither met nor exceeded: the test says nothing.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from enum import StrEnum

from plnt.model.completion_stream import TokenTimes
from plnt.model.message import Message
from plnt.model.messages import SmokeReport

FIELD = "spec.canary.smokeTest"


class Sample(Message):
    """One measured prompt, in milliseconds."""

    ttft_ms: float
    tpot_ms: float | None
    """None: the server gave no usage, or there was no token after the first chunk."""
    later_tokens: int = 1
    """Tokens after the first chunk."""
    first_late_ms: float = 0.0
    """How late the clock may have been read at the first token."""
    last_late_ms: float = 0.0
    """How late the clock may have been read at the last token."""

    @property
    def least_ttft_ms(self) -> float:
        """TTFT if the first reading was as late as it may have been; TTFT is never longer than measured."""
        return max(0.0, self.ttft_ms - self.first_late_ms)

    @property
    def tpot_bounds_ms(self) -> tuple[float, float]:
        """Least and greatest TPOT that fit the readings."""
        tpot_ms = self.tpot_ms or 0.0
        return (
            max(0.0, tpot_ms - self.last_late_ms / self.later_tokens),
            tpot_ms + self.first_late_ms / self.later_tokens,
        )


class Outcome(StrEnum):
    """What a smoke test says about the model."""

    PASS = "pass"  # noqa: S105
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


class Verdict(Message):
    """An outcome, and for all but a pass one line for the user."""

    outcome: Outcome
    message: str = ""


def measure(sent_at: float, times: TokenTimes, tell_lateness_ms: Callable[[float], float] = lambda _: 0.0) -> Sample:
    """Turn clock readings in seconds into a sample; ``tell_lateness_ms`` says how late a reading may have been."""
    later = (times.tokens or 0) - times.first_chunk_tokens
    spread_ms = (times.last_at - times.first_at) * 1000
    return Sample(
        ttft_ms=(times.first_at - sent_at) * 1000,
        tpot_ms=spread_ms / later if later > 0 and spread_ms > 0 else None,
        later_tokens=max(1, later),
        first_late_ms=tell_lateness_ms(times.first_at),
        last_late_ms=tell_lateness_ms(times.last_at),
    )


def summarise(samples: Sequence[Sample]) -> SmokeReport:
    """Give the numbers of a test, rounded to 0.1 ms.

    TPOT is none when fewer than half of the samples have one: a median over a minority says nothing.
    """
    ttft = [sample.ttft_ms for sample in samples]
    tpot = [sample.tpot_ms for sample in samples if sample.tpot_ms is not None]
    if 2 * len(tpot) < len(samples):
        tpot = []
    return SmokeReport(
        prompts=len(samples),
        ttft_p50_ms=_p50(ttft),
        ttft_p90_ms=_p90(ttft),
        tpot_p50_ms=_p50(tpot) if tpot else None,
        tpot_p90_ms=_p90(tpot) if tpot else None,
    )


def judge(samples: Sequence[Sample], ttft_budget_ms: int | None, tpot_budget_ms: int | None) -> Verdict:
    """Compare the medians with the budgets; none is no budget."""
    report = summarise(samples)
    verdicts = [
        _judge_ttft(samples, report, ttft_budget_ms),
        _judge_tpot(samples, report, tpot_budget_ms),
    ]
    for outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE):
        said = [verdict.message for verdict in verdicts if verdict.outcome is outcome]
        if said:
            return Verdict(outcome=outcome, message="; ".join(said))
    return Verdict(outcome=Outcome.PASS)


def _judge_ttft(samples: Sequence[Sample], report: SmokeReport, budget_ms: int | None) -> Verdict:
    if budget_ms is None:
        return Verdict(outcome=Outcome.PASS)
    low = _p50([sample.least_ttft_ms for sample in samples])
    return _compare("TTFT", f"{FIELD}.ttftBudgetMs", (low, report.ttft_p50_ms, report.ttft_p50_ms), budget_ms, samples)


def _judge_tpot(samples: Sequence[Sample], report: SmokeReport, budget_ms: int | None) -> Verdict:
    field = f"{FIELD}.tpotBudgetMs"
    if budget_ms is None:
        return Verdict(outcome=Outcome.PASS)
    if report.tpot_p50_ms is None:
        text = f"TPOT could not be measured against {field} {budget_ms} ms: {_tell_missing(samples)}"
        return Verdict(outcome=Outcome.FAIL, message=text)
    bounds = [sample.tpot_bounds_ms for sample in samples if sample.tpot_ms is not None]
    low, high = (_p50([bound[side] for bound in bounds]) for side in (0, 1))
    return _compare("TPOT", field, (low, report.tpot_p50_ms, high), budget_ms, samples)


def _tell_missing(samples: Sequence[Sample]) -> str:
    missing = sum(sample.tpot_ms is None for sample in samples)
    return (
        f"{missing} of {len(samples)} answers came without usage or with no token after their first chunk; "
        "the server must honour stream_options.include_usage and answer with 2 tokens or more"
    )


def _compare(
    what: str, field: str, bounds: tuple[float, float, float], budget_ms: int, samples: Sequence[Sample]
) -> Verdict:
    low, value, high = bounds
    if high <= budget_ms:
        return Verdict(outcome=Outcome.PASS)
    if low > budget_ms:
        text = f"{what} p50 {value:g} ms is over {field} {budget_ms} ms"
        return Verdict(outcome=Outcome.FAIL, message=text)
    late = max(max(sample.first_late_ms, sample.last_late_ms) for sample in samples)
    text = (
        f"{what} p50 {value:g} ms cannot be held against {field} {budget_ms} ms: "
        f"the tester's own event loop was up to {late:.0f} ms late"
    )
    return Verdict(outcome=Outcome.INCONCLUSIVE, message=text)


def _p50(values: Sequence[float]) -> float:
    return round(statistics.median(values), 1)


def _p90(values: Sequence[float]) -> float:
    """Give the nearest-rank quantile: the smallest value that 90 % don't exceed."""
    return round(sorted(values)[math.ceil(0.9 * len(values)) - 1], 1)
