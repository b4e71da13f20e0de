"""From a container's command, args and env to those of a local process (pure)."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

_REFERENCE = re.compile(r"\$\$|\$\(([^)]+)\)")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Expand ``$(NAME)`` as Kubernetes does: unknown names stay, ``$$`` is a dollar sign."""
    return _REFERENCE.sub(
        lambda match: "$" if match[1] is None else variables.get(match[1], match[0]),
        text,
    )


def rewrite_paths(text: str, mounts: Mapping[str, str]) -> str:
    """Replace each mount path that ``text`` names by its folder; ``mounts`` maps mount path to folder.

    A path counts where it stands alone or begins a longer one: ``/models/a`` is not in ``/models/ab`` nor in
    ``x/models/a``.
    """
    if not mounts:
        return text
    longest_first = sorted(mounts, key=len, reverse=True)
    pattern = r"(?<![\w./-])(" + "|".join(map(re.escape, longest_first)) + r")(?![\w.-])"
    return re.sub(pattern, lambda match: mounts[match[1]], text)


def count_gpus(container: Mapping[str, Any]) -> int:
    """Count the devices of a container: its limits on extended resources."""
    limits: Mapping[str, Any] = (container.get("resources") or {}).get("limits") or {}
    return sum(int(count) for name, count in limits.items() if "/" in name)


def read_words(container: Mapping[str, Any], entrypoint: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """Give command and args with their variables expanded; without a command, the image's entrypoint."""
    words = [*(container.get("command") or entrypoint), *(container.get("args") or [])]
    return [expand(word, variables) for word in words]
