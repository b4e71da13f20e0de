"""Tells whether the workers poll: the one sign that a pool takes work."""

import socket
from collections.abc import Sequence
from functools import partial

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

from plnt.sandbox.supervisor import Supervisor
from plnt.sandbox.waiting import wait_until
from plnt.steps import Queue

_WORKFLOW = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
_ACTIVITY = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
QUEUES = {
    "bridge": ((Queue.BRIDGE, _WORKFLOW), (Queue.BRIDGE, _ACTIVITY)),
    "control": ((Queue.CONTROL, _WORKFLOW),),
    "gpu": ((Queue.GPU, _ACTIVITY),),
    "weights": ((Queue.WEIGHTS, _ACTIVITY),),
    "deploy": ((Queue.DEPLOY, _ACTIVITY),),
    "smoke": ((Queue.SMOKE, _ACTIVITY),),
    "promote": ((Queue.PROMOTE, _ACTIVITY),),
}
"""What each process polls."""


MOST_RESTARTS = 3
"""Before a process has polled once: more is no waiting for a server but a fault of its own."""


async def wait_polling(
    client: Client, supervisor: Supervisor, names: Sequence[str], deadline_seconds: float, *, starting: bool = False
) -> None:
    """Wait until each component's present process polls; a dead one's pollers stay listed for five minutes.

    ``starting``: restarts count from the sandbox's start, else from now.

    Raises:
        ComponentFailed: one does not poll in time, or keeps ending.
    """
    before = {name: 0 if starting else supervisor.restarts(name) for name in names}

    async def polls(name: str) -> bool:
        supervisor.raise_failure()
        if supervisor.restarts(name) - before[name] > MOST_RESTARTS:
            raise supervisor.blame(name, "keeps ending before it polls its task queue")
        return await _polls(client, name, supervisor.pid(name))

    for name in names:
        try:
            await wait_until(partial(polls, name), deadline_seconds)
        except TimeoutError:
            raise supervisor.blame(name, f"does not poll its task queue within {deadline_seconds:.0f} s") from None


async def _polls(client: Client, name: str, pid: int | None) -> bool:
    identity = f"{pid}@{socket.gethostname()}"
    for queue, kind in QUEUES[name]:
        request = DescribeTaskQueueRequest(
            namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
        )
        try:
            answer = await client.workflow_service.describe_task_queue(request)
        except RPCError:
            return False
        if all(poller.identity != identity for poller in answer.pollers):
            return False
    return True
