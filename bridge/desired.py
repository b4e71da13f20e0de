"""Reads a WorkflowRun for its run, and holds and drops its finalizer."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from plnt.clients.kube import WORKFLOW_RUNS, Kube, Object
from plnt.errors import ApiUnavailable, Conflict, NotFound
from plnt.model import names
from plnt.model.desired import Desired, Loaded, Policy, Ref, identity_of
from plnt.model.messages import Done, DropFinalizer, Target
from plnt.model.options import options_digest, parse_options
from plnt.model.workflow_run import Model, Resources, Runtime, Spec
from plnt.steps import DROP_FINALIZER, LOAD_DESIRED, implements

MAX_READS = 5
"""Reads of one attempt before a conflict is left to the step's own retries."""

UNREADABLE = Spec(
    runtime=Runtime.VLLM,
    model=Model(name="unreadable", storage_uri="s3://unreadable"),
    resources=Resources(gpu=1, gpu_class="plnt.work/unreadable", memory_gib=1),
)
"""Stands for a spec that does not parse. Faults come with it, so it is refused; a teardown needs no spec."""


class DesiredActivities:
    """The bridge's activities on the object itself."""

    def __init__(self, kube: Kube, policy: Policy) -> None:
        """Read through ``kube``; ``policy`` goes with every answer."""
        self._kube = kube
        self._policy = policy

    @implements(LOAD_DESIRED)
    async def load_desired(self, target: Target) -> Loaded:
        """Read the WorkflowRun and make sure that it has the finalizer, unless it is being deleted.

        Raises:
            ApiUnavailable: the API server does not serve the kind.
            Conflict: the object changed between each read and write.
        """
        for _ in range(MAX_READS):
            live = await self._kube.find(WORKFLOW_RUNS, target.ref.namespace, target.ref.name)
            if live is None:
                await self._check_served(target.ref)
                return Loaded(policy=self._policy)
            held = live["metadata"].get("finalizers") or []
            if names.FINALIZER in held or "deletionTimestamp" in live["metadata"]:
                return Loaded(desired=read_desired(live, self._policy), policy=self._policy)
            await self._try_finalizers(live, [*held, names.FINALIZER])
        raise _conflict(target.ref)

    async def _check_served(self, ref: Ref) -> None:
        """Tell a missing object from a missing kind: what a gone object left is taken down."""
        try:
            await self._kube.list(WORKFLOW_RUNS, ref.namespace, fields=f"metadata.name={ref.name}")
        except NotFound as error:
            raise ApiUnavailable(f"WorkflowRun {ref.namespace}/{ref.name}: its kind is not served: {error}") from error

    @implements(DROP_FINALIZER)
    async def drop_finalizer(self, drop: DropFinalizer) -> Done:
        """Remove the finalizer of the object with this uid; another uid, or none, is left alone.

        Raises:
            Conflict: the object changed between each read and write.
        """
        for _ in range(MAX_READS):
            live = await self._kube.find(WORKFLOW_RUNS, drop.ref.namespace, drop.ref.name)
            if live is None or live["metadata"]["uid"] != drop.uid:
                return Done()
            held = live["metadata"].get("finalizers") or []
            if names.FINALIZER not in held:
                return Done()
            await self._try_finalizers(live, [entry for entry in held if entry != names.FINALIZER])
        raise _conflict(drop.ref)

    async def _try_finalizers(self, live: Object, wanted: list[str]) -> None:
        """Write the finalizers on the very object that was read; a changed or missing one is read again."""
        meta = live["metadata"]
        body = {"metadata": {"resourceVersion": meta["resourceVersion"], "finalizers": wanted}}
        with suppress(Conflict, NotFound):
            await self._kube.merge(WORKFLOW_RUNS, meta["namespace"], meta["name"], body)


def read_desired(live: Mapping[str, Any], policy: Policy) -> Desired:
    """Give what a run needs to know; what cannot be read stands in ``faults``, each naming its field."""
    meta = live["metadata"]
    annotations, labels = meta.get("annotations") or {}, meta.get("labels") or {}
    options, faults = parse_options(annotations, labels)
    spec, spec_faults = _parse_spec(live.get("spec"))
    digest = options_digest(annotations, labels)
    deleting = "deletionTimestamp" in meta
    return Desired(
        uid=meta["uid"],
        generation=meta["generation"],
        identity=identity_of(meta["uid"], meta["generation"], digest, deleting),
        options_digest=digest,
        deleting=deleting,
        spec=spec,
        options=options,
        policy=policy,
        faults=[*spec_faults, *faults],
    )


def _parse_spec(spec: object) -> tuple[Spec, list[str]]:
    try:
        return Spec.model_validate(spec), []
    except ValidationError as error:
        return UNREADABLE, [
            f"{'.'.join(('spec', *map(str, fault['loc'])))}: {fault['msg']}; this version of plnt cannot read it"
            for fault in error.errors(include_url=False, include_input=False)
        ]


def _conflict(ref: Ref) -> Conflict:
    return Conflict(f"finalizer of {ref.namespace}/{ref.name}: the object changed before each of {MAX_READS} writes")
