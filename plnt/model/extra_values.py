"""Extra chart values that a ConfigMap adds to those that plnt sets: which are allowed, and what they mean."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from plnt.model.messages import ExtraValues
from plnt.model.workflow_run import Runtime, Spec

KEY = "values.yaml"
"""Key of the ConfigMap under which the values lie."""
ALLOWED = (
    "extraArgs",
    "extraEnv",
    "image",
    "imagePullSecrets",
    "podDisruptionBudget",
    "sharedMemorySize",
    "tolerations",
)
"""Values that plnt leaves to the user; the rest follows from the WorkflowRun or belongs to the installation."""
FIRST_COUNTING_TRT_LLM = (1, 3)
"""First version of TensorRT-LLM with a counter of generated tokens."""

_LENGTH_FLAGS = frozenset({"--max-model-len", "--context-length", "--max-total-tokens", "--max-seq-len"})
_DIGEST_CHARS = 16


def find_value_faults(values: Mapping[str, Any]) -> Iterator[str]:
    """Give one fault per key that is not the user's to set."""
    for key in sorted(set(values) - set(ALLOWED)):
        yield f"{key} is set by plnt or by the installation: leave it out (allowed are {', '.join(ALLOWED)})"


def digest_values(values: Mapping[str, Any]) -> str:
    """Give a digest over what the values say, whatever their text looks like.

    Raises:
        TypeError: a value is none that JSON knows.
    """
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:_DIGEST_CHARS]


def describe_values(name: str, values: Mapping[str, Any]) -> ExtraValues:
    """Give what a workflow needs to know of checked values."""
    arguments = values.get("extraArgs") or []
    return ExtraValues(
        name=name,
        digest=digest_values(values),
        image_tag=str((values.get("image") or {}).get("tag") or ""),
        request_tokens=find_request_tokens(arguments),
        offloads=any(word.startswith("-") and "offload" in word for word in arguments),
    )


def find_request_tokens(arguments: list[str]) -> int:
    """Give the longest request that engine arguments allow, in tokens; 0 where they do not say a number."""
    words = [part for argument in arguments for part in argument.split("=", 1)]
    named = [value for word, value in pairwise([*words, ""]) if word.replace("_", "-") in _LENGTH_FLAGS]
    return int(named[-1]) if named and named[-1].isdecimal() else 0


def merge_values(own: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Give the chart's values: plnt's own win, and tolerations add up."""
    merged = {**extra, **own}
    if "tolerations" in extra:
        merged["tolerations"] = [*own["tolerations"], *extra["tolerations"]]
    return merged


def check_values(spec: Spec, values: ExtraValues | None) -> list[str]:
    """Give every fault of the extra values of a WorkflowRun."""
    if values is None:
        return []
    return [*([values.fault] if values.fault else []), *_check_counter(spec, values)]


def _check_counter(spec: Spec, values: ExtraValues) -> Iterator[str]:
    found = re.match(r"v?(\d+)\.(\d+)", values.image_tag)
    if spec.runtime is not Runtime.TRT_LLM or not spec.autoscaling.target_tokens_per_second or not found:
        return
    if (int(found[1]), int(found[2])) < FIRST_COUNTING_TRT_LLM:
        yield (
            f"spec.autoscaling.targetTokensPerSecond: TensorRT-LLM {values.image_tag} of ConfigMap {values.name} does"
            " not count generated tokens: leave the target out, or use 1.3 or newer"
        )
