"""The images that the simulated nodes can pull, and the local command that stands for a container's."""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import version

from plnt.sandbox.engine.command_line import recognise

_PART = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?P<name>(?:{_PART}(?::\d+)?/)?{_PART}(?:/{_PART})*)(?::(?P<tag>\w[\w.-]{{0,127}}))?(?:@sha256:[0-9a-f]{{64}})?"
)
_PYTHON = re.compile(r"(/usr/bin/)?python3?")


class Program(StrEnum):
    """What an image's containers run as."""

    ENGINE = "engine"
    HOST = "host"
    PAUSE = "pause"
    PLNT = "plnt"
    """plnt's own image: its processes as they are, on the address where the pod listens, with helm on PATH."""


@dataclass(frozen=True, slots=True)
class Image:
    """One known image."""

    program: Program
    tags: str = ".*"
    """Expression that a tag must match: the flag tables are of one version."""
    entrypoint: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


_IMAGES = {
    "docker.io/vllm/vllm-openai": Image(Program.ENGINE, r"v0\.33\.\d+", ("vllm", "serve")),
    "docker.io/lmsysorg/sglang": Image(Program.ENGINE, r"v0\.5\.23(-.+)?"),
    "ghcr.io/huggingface/text-generation-inference": Image(
        Program.ENGINE, r"3\.3\.7", ("text-generation-launcher",), {"PORT": "80", "HF_HOME": "/data"}
    ),
    "nvcr.io/nvidia/tensorrt-llm/release": Image(Program.ENGINE, r"1\.3\.0(rc\d+)?"),
    "docker.io/library/busybox": Image(Program.HOST),
    "registry.k8s.io/pause": Image(Program.PAUSE),
    "docker.io/library/plnt": Image(Program.PLNT, re.escape(version("plnt"))),
}


def is_reference(image: str) -> bool:
    """Tell whether ``image`` has the form of an image reference."""
    return _REFERENCE.fullmatch(image) is not None


def find_image(image: str) -> Image | None:
    """Find the image that a registry would give; none = it has no such one."""
    match = _REFERENCE.fullmatch(image)
    if match is None:
        return None
    found = _IMAGES.get(_qualify(match["name"]))
    return found if found and re.fullmatch(found.tags, match["tag"] or "latest") else None


def choose_command(image: Image, words: Sequence[str]) -> list[str] | None:
    """Give the local command for a container's ``words``; none = the image holds no such program."""
    if image.program is Program.PAUSE:
        return ["sleep", "infinity"]
    if image.program is Program.HOST:
        return list(words) or None
    if image.program is Program.ENGINE and recognise(words):
        return [sys.executable, "-m", "plnt.sandbox.engine", *words]
    if words and _PYTHON.fullmatch(words[0]):
        return [sys.executable, *words[1:]]
    return None


def _qualify(name: str) -> str:
    first, slash, _ = name.partition("/")
    if not slash:
        return f"docker.io/library/{name}"
    return name if "." in first or ":" in first or first == "localhost" else f"docker.io/{name}"
