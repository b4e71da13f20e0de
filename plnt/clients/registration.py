"""What the Temporal namespace must hold before a rollout can start, and what must poll before it can go on."""

from collections.abc import Mapping

from temporalio.api.enums.v1 import IndexedValueType, TaskQueueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from plnt.errors import PermanentError
from plnt.model.search_attributes import SEARCH_ATTRIBUTES
from plnt.steps import Queue

TYPES = {"Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD, "Int": IndexedValueType.INDEXED_VALUE_TYPE_INT}
WORKFLOW, ACTIVITY = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY


class RegistrationRefused(PermanentError):
    """The Temporal namespace does not take the search attributes."""


async def register_search_attributes(client: Client) -> list[str]:
    """Register the search attributes that are missing; gives their names.

    Raises:
        RegistrationRefused: one exists with another type, or this client may not register any.
    """
    present = await _list_present(client)
    wrong = [name for name, kind in SEARCH_ATTRIBUTES.items() if present.get(name, TYPES[kind]) != TYPES[kind]]
    if wrong:
        raise RegistrationRefused(
            f"search attributes {', '.join(wrong)} exist in namespace {client.namespace} with another type than"
            " plnt's: remove them with `temporal operator search-attribute remove`"
        )
    missing = [name for name in SEARCH_ATTRIBUTES if name not in present]
    if missing:
        types = {name: TYPES[SEARCH_ATTRIBUTES[name]] for name in missing}
        await _add(client, types)
    return missing


async def find_faults(client: Client) -> list[str]:
    """Tell what a rollout would lack, a line each: search attributes and pollers of each task queue."""
    present = await _list_present(client)
    faults = [f"search attribute {name} is not registered" for name in SEARCH_ATTRIBUTES if name not in present]
    for queue in Queue:
        kind = WORKFLOW if queue is Queue.CONTROL else ACTIVITY
        answer = await client.workflow_service.describe_task_queue(
            DescribeTaskQueueRequest(namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind)
        )
        if not answer.pollers:
            faults.append(f"nothing polls task queue {queue}")
    return faults


async def _list_present(client: Client) -> Mapping[str, int]:
    request = ListSearchAttributesRequest(namespace=client.namespace)
    try:
        return dict((await client.operator_service.list_search_attributes(request)).custom_attributes)
    except RPCError as error:
        raise RegistrationRefused(
            f"namespace {client.namespace}: search attributes cannot be listed: {error.message}"
        ) from error


async def _add(client: Client, types: Mapping[str, "IndexedValueType.ValueType"]) -> None:
    request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=types)
    try:
        await client.operator_service.add_search_attributes(request)
    except RPCError as error:
        if error.status is not RPCStatusCode.ALREADY_EXISTS:
            raise RegistrationRefused(
                f"namespace {client.namespace}: search attributes {', '.join(types)} cannot be registered:"
                f" {error.message}"
            ) from error
