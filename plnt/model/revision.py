"""What makes a pod different: the digest that decides whether to roll out, and the revision that names pods."""

import hashlib
import json

from plnt.model.names import REVISION_CHARS
from plnt.model.options import Options
from plnt.model.workflow_run import Spec

_DIGEST_CHARS = 16


def pods_digest(spec: Spec, options: Options) -> str:
    """Give a digest over the pod-relevant spec text and options, without resolving anything.

    Equal to the serving record's digest means that the change is applied in place.
    """
    return _digest([_pod_text(spec, options)], _DIGEST_CHARS)


def revision(spec: Spec, options: Options, tree: str, chart_version: str, values: str = "") -> str:
    """Give the 8 hex digits that name a revision: pod-relevant text, tree, chart version and extra values by digest."""
    return _digest([_pod_text(spec, options), tree, chart_version, *([values] if values else [])], REVISION_CHARS)


def _pod_text(spec: Spec, options: Options) -> dict[str, object]:
    return {
        **spec.model_dump(mode="json", include={"runtime", "model", "resources"}),
        "labels": options.labels,
        **({"valuesFrom": options.values_from} if options.values_from else {}),
        **({"include": options.include} if options.include else {}),
        **({"exclude": options.exclude} if options.exclude else {}),
    }


def _digest(parts: list[object], chars: int) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:chars]
