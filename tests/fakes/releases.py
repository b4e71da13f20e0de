"""Requests to install a release, as any legal WorkflowRun may make them."""

from collections.abc import Sequence

from hypothesis import strategies as st

from plnt.model import names
from plnt.model.desired import Policy, Ref
from plnt.model.messages import GpuClass, InstallRelease, Toleration, Tree
from plnt.model.options import Options
from plnt.model.workflow_run import Model, Resources, Runtime, Spec

INT32 = 2**31 - 1
LABEL = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,20}[A-Za-z0-9])?", fullmatch=True)
MODEL_NAME = st.text(st.characters(codec="utf-8").filter(str.isprintable), min_size=1, max_size=64).filter(
    lambda name: not name.startswith("-")
)

_RESOURCES = st.fixed_dictionaries(
    {"gpu": st.integers(1, INT32), "gpuClass": st.just("nvidia.com/h100"), "memoryGiB": st.integers(1, INT32)}
).map(Resources.model_validate)
_GPU_CLASS = st.builds(
    GpuClass,
    resource_name=st.from_regex(r"[a-z][a-z0-9.]{0,20}[a-z]/[a-z0-9]{1,10}", fullmatch=True),
    node_selector=st.dictionaries(st.just("nvidia.com/gpu.product"), LABEL),
    tolerations=st.lists(
        st.builds(
            Toleration,
            key=LABEL,
            operator=st.sampled_from(["Exists", "Equal"]),
            value=LABEL,
            effect=st.sampled_from(["", "NoSchedule", "PreferNoSchedule", "NoExecute"]),
        ),
        max_size=2,
    ),
)
_POLICY = st.builds(Policy, drain_seconds=st.integers(0, 3600), startup_budget_seconds=st.integers(10, 86_400))


@st.composite
def install_requests(draw: st.DrawFn, runtimes: Sequence[Runtime] = tuple(Runtime)) -> InstallRelease:
    """Draw a request for one of ``runtimes``."""
    name = draw(st.from_regex(r"[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?(\.[a-z0-9]{1,9})?", fullmatch=True))
    base = names.base_name(name)
    revision = draw(st.from_regex(r"[0-9a-f]{8}", fullmatch=True))
    model = Model(name=draw(MODEL_NAME), storage_uri="s3://bucket/path")
    return InstallRelease(
        ref=Ref(namespace="default", name=name),
        base=base,
        release=names.release_name(base, revision),
        revision=revision,
        spec=Spec(runtime=draw(st.sampled_from(runtimes)), model=model, resources=draw(_RESOURCES)),
        options=Options(labels=draw(st.dictionaries(st.just("kueue.x-k8s.io/queue-name"), LABEL))),
        policy=draw(_POLICY),
        gpu_class=draw(_GPU_CLASS),
        tree=Tree(digest=draw(st.from_regex(r"[0-9a-f]{64}", fullmatch=True)), bytes=1, proof="sha256"),
        replicas=draw(st.integers(0, INT32)),
    )
