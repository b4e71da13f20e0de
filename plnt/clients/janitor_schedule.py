"""The schedule that starts the janitor."""

from collections.abc import Sequence
from datetime import timedelta

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleUpdate,
    ScheduleUpdateInput,
)

from plnt.model.housekeeping import Housekeeping
from plnt.steps import Queue

SCHEDULE = "plnt-janitor"
RUN_LIMIT = timedelta(hours=3)
"""Longest round: the sum of its steps' limits and some."""


async def ensure_schedule(client: Client, seconds: float, namespaces: Sequence[str] = ()) -> None:
    """Create the schedule, or give the one that is there this interval and place; a pause that a person set stays.

    Raises:
        RPCError: Temporal does not take the call.
    """
    wanted = _describe(seconds, namespaces)
    try:
        await client.create_schedule(SCHEDULE, wanted)
    except ScheduleAlreadyRunningError:
        await client.get_schedule_handle(SCHEDULE).update(lambda seen: _change(seen, wanted))


def _change(seen: ScheduleUpdateInput, wanted: Schedule) -> ScheduleUpdate:
    wanted.state = seen.description.schedule.state
    return ScheduleUpdate(schedule=wanted)


def _describe(seconds: float, namespaces: Sequence[str]) -> Schedule:
    return Schedule(
        action=ScheduleActionStartWorkflow(
            "Janitor",
            Housekeeping(namespaces=list(namespaces)),
            id=SCHEDULE,
            task_queue=Queue.CONTROL,
            run_timeout=RUN_LIMIT,
            static_summary="remove what no WorkflowRun needs",
        ),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(seconds=seconds))]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=timedelta(minutes=1)),
    )
