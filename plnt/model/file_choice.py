"""Which files of a source are taken: the chooser's, as the user's globs change them."""

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from plnt.errors import WeightsNotFound
from plnt.model.message import Message
from plnt.model.weight_files import choose_side_files, choose_weights

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".engine")


class Globs(Message):
    """The annotations ``plnt.work/include`` and ``plnt.work/exclude``, split."""

    include: list[str] = []
    """Weights are exactly what matches; other files that match come beside those that are always taken."""
    exclude: list[str] = []
    """What matches is as good as not there."""


class Choice(Message):
    """The files to take."""

    side: list[str]
    weights: list[str]


def drop_excluded(sizes: Mapping[str, int], globs: Globs) -> dict[str, int]:
    """Give the files that the user does not exclude."""
    return {name: size for name, size in sizes.items() if not _matches(name, globs.exclude)}


def choose_files(sizes: Mapping[str, int], index: Mapping[str, Any] | None, globs: Globs, where: str) -> Choice:
    """Choose among ``sizes``, from which what is excluded is gone; ``index`` is the parsed index of shards.

    Raises:
        WeightsNotFound: the weights are not all there, or nothing matches what is to be included.
        SpecInvalid: the index is none.
    """
    side = choose_side_files(sizes)
    if not globs.include:
        return Choice(side=side, weights=choose_weights(sizes, index, where))
    included = {name for name in sizes if _matches(name, globs.include)}
    weights = sorted(name for name in included if is_weights(name))
    if not weights:
        raise WeightsNotFound(
            f"{where} holds no weights that annotation plnt.work/include {', '.join(globs.include)} matches: "
            f"correct it, or remove it to take what the runtime loads"
        )
    return Choice(side=sorted({*side, *(included - set(weights))}), weights=weights)


def may_be_chosen(name: str, size: int, globs: Globs) -> bool:
    """Tell whether a file could be chosen, whatever lies beside it."""
    if _matches(name, globs.exclude):
        return False
    wanted = _matches(name, globs.include) if globs.include else name.endswith(".safetensors")
    return wanted or bool(choose_side_files({name: size}))


def is_weights(name: str) -> bool:
    """Tell whether a name is that of weights."""
    return name.endswith(_WEIGHTS)


def _matches(name: str, globs: Collection[str]) -> bool:
    candidates: Iterable[str] = (name, name.rpartition("/")[2])
    return any(fnmatchcase(candidate, glob) for candidate in candidates for glob in globs)
