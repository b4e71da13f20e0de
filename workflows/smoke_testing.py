"""SmokeTesting: prompts at weight 0, then a share of the traffic for the bake time."""

from datetime import timedelta

from temporalio.exceptions import ActivityError

from plnt.model import messages as m
from plnt.model import names, sizes
from plnt.model.status import Phase
from plnt.model.workflow_run import SmokeTest
from plnt.steps import RUN_SMOKE_TEST, SET_WEIGHTS, WATCH_CANARY
from workflows.attempt import Attempt
from workflows.deploying import look_at_stable, put_down_withdrawal, resize

_SECONDS_PER_PROMPT = 20
"""Time limit of the smoke test on top of the step's own, per prompt: 1000 prompts stay within six hours."""


async def smoke_test(attempt: Attempt) -> None:
    """Test the canary without users; if something serves, let it carry its share of the traffic for a while."""
    attempt.enter(Phase.SMOKE_TESTING)
    await send_prompts(attempt)
    if attempt.stable:
        await bake(attempt)


async def send_prompts(attempt: Attempt) -> None:
    """Run the smoke test; a verdict by budgets that changed meanwhile counts for nothing.

    Raises:
        ActivityError: a prompt failed or a budget was exceeded.
    """
    while True:
        judged_by = attempt.desired.spec.canary.smoke_test
        try:
            report = await _send_prompts(attempt, judged_by)
        except ActivityError:
            if attempt.desired.spec.canary.smoke_test == judged_by:
                raise
        else:
            attempt.note(smoke=report)
            if attempt.desired.spec.canary.smoke_test == judged_by:
                return


async def _send_prompts(attempt: Attempt, test: SmokeTest) -> m.SmokeReport:
    release, policy = attempt.facts.release, attempt.desired.policy
    arg = m.RunSmokeTest(
        ref=attempt.ref,
        release=release,
        url=names.endpoint_url(release, attempt.ref.namespace, policy.cluster_domain),
        model=attempt.desired.spec.model.name,
        prompts=test.prompts,
        ttft_budget_ms=test.ttft_budget_ms,
        tpot_budget_ms=test.tpot_budget_ms,
        wait_seconds=policy.smoke_wait_seconds,
    )
    return await attempt.take(
        RUN_SMOKE_TEST,
        arg,
        summary=f"stream {test.prompts} prompts to {release} at weight 0",
        start_to_close=RUN_SMOKE_TEST.start_to_close + timedelta(seconds=_SECONDS_PER_PROMPT * test.prompts),
    )


async def bake(attempt: Attempt) -> None:
    """Give the canary its share and watch its pods."""
    spec = attempt.desired.spec
    percent = spec.canary.traffic_percent
    await look_at_stable(attempt)
    await resize(attempt, max(attempt.size, sizes.canary_size(spec, attempt.stable_pods)))
    put_down_withdrawal(attempt)
    weights = await attempt.take(
        SET_WEIGHTS,
        m.SetWeights(
            ref=attempt.ref,
            base=attempt.base,
            policy=attempt.desired.policy,
            stable=attempt.stable_revision,
            canary=attempt.facts.revision,
            canary_percent=percent,
        ),
        summary=f"route {percent} % to {attempt.facts.revision}",
    )
    seconds = _bake_seconds(attempt)
    attempt.report(weights=weights.weights)
    watch = m.WatchCanary(ref=attempt.ref, base=attempt.base, release=attempt.facts.release, seconds=seconds)
    await attempt.take(WATCH_CANARY, watch, summary=f"watch {attempt.facts.release} for {seconds} s at {percent} %")


def _bake_seconds(attempt: Attempt) -> int:
    own = attempt.desired.options.bake_seconds
    return attempt.desired.policy.bake_seconds if own is None else own
