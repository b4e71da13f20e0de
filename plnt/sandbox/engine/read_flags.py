"""Writes the tables of ``flags/`` anew from the engines' own parsers: ``python -m plnt.sandbox.engine.read_flags``.

The wheels of vLLM and SGLang come from the package registry, without what they require; their parsers are built in a
process of their own, with placeholders for what is missing. TGI and trtllm-serve come as images alone: their tables
are kept by hand.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from plnt.sandbox.engine.command_line import TABLES, Engine
from plnt.sandbox.engine.placeholders import Placeholders

FOLDER = Path(__file__).parent / "flags"
HEADER = "flag\taction\tnargs\tchoices"
LIBRARIES = ("msgspec", "regex", "pydantic")
"""What the parsers are made of."""
WHEEL_OF = (
    *("--only-binary", ":all:", "--implementation", "cp", "--python-version", "3.12"),
    *("--platform", "manylinux_2_28_x86_64", "--platform", "manylinux_2_34_x86_64"),
)
"""The one build whose Python files are read, whatever machine reads them."""
_NO_DEVICE = ("amdsmi", "libtpu", "mlx", "torch_npu", "torchada", "tpu_inference")
_KERNELS = ("vllm.ir", "vllm.ir.op", "vllm.ir.ops", "sglang.srt.utils.hf_transformers_patches")


class WheelMissing(Exception):
    """pip could not get a wheel; the text is its own."""


def list_rows(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Give the row of every option string and positional of a parser."""
    for action in parser._actions:  # noqa: SLF001 - argparse shows its actions in no other way
        found = action.choices or ()
        choices = "|".join(sorted(map(str, found)) if isinstance(found, set | frozenset) else map(str, found))
        kind = type(action).__name__
        if not action.option_strings:
            yield f"POS\t{action.dest}\t{action.nargs}\t{choices}"
        for flag in action.option_strings:
            yield f"{flag}\t{kind}\t{action.nargs}\t{choices}"


def render_table(parser: argparse.ArgumentParser) -> str:
    """Give the table of a parser."""
    return "\n".join([HEADER, *list_rows(parser)]) + "\n"


def _build_vllm() -> argparse.ArgumentParser:
    platforms = import_module("vllm.platforms")
    platforms._current_platform = import_module("vllm.platforms.cpu").CpuPlatform()  # type: ignore[attr-defined]  # noqa: SLF001
    cli_args = import_module("vllm.entrypoints.common.cli_args")
    parser = import_module("vllm.utils.argparse_utils").FlexibleArgumentParser(prog="vllm serve")
    return cli_args.make_arg_parser(parser)  # type: ignore[no-any-return]


def _build_sglang() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="launch_server.py")
    import_module("sglang.srt.server_args").ServerArgs.add_cli_args(parser)
    return parser


_PARSERS: Mapping[str, Callable[[], argparse.ArgumentParser]] = {"vllm": _build_vllm, "sglang": _build_sglang}


def write_table(engine: str, folder: Path) -> Path:
    """Write the table of the engine that this process can import; the file is named after its version.

    Raises:
        ImportError: it cannot be imported, or its parser is elsewhere in this version.
    """
    sys.meta_path.insert(0, Placeholders(engine, without=_NO_DEVICE, unneeded=_KERNELS))
    path = folder / f"{engine}-{version(engine)}.tsv"
    path.write_text(render_table(_PARSERS[engine]()))
    return path


def fetch(requirement: str, folder: Path) -> None:
    """Get the Python files and the metadata of a wheel such as ``vllm==0.33.0``, and the libraries of its parser.

    Raises:
        WheelMissing: the registry has no such version, or did not answer.
    """
    wheels = folder / "wheels"
    _run_pip("download", "--no-deps", "--dest", str(wheels), *WHEEL_OF, requirement)
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            wanted = [name for name in archive.namelist() if name.endswith((".py", ".json", "METADATA"))]
            archive.extractall(folder, wanted)
        wheel.unlink()
    _run_pip("install", "--target", str(folder / "libraries"), *LIBRARIES)


def _run_pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", arguments[0], "--quiet", *arguments[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WheelMissing(done.stderr.strip())


def read_anew(requirement: str) -> int:
    """Fetch an engine and write its table in a process that can import it; gives that process's exit code."""
    engine = requirement.partition("==")[0]
    with tempfile.TemporaryDirectory(prefix="plnt-flags-") as folder:
        fetch(requirement, Path(folder))
        path = os.pathsep.join([folder, f"{folder}/libraries", str(Path(__file__).parents[3])])
        command = [sys.executable, "-m", "plnt.sandbox.engine.read_flags", "--installed", engine]
        return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False).returncode


def list_requirements() -> list[str]:
    """Give the wheels whose tables the stub engine uses."""
    return [TABLES[engine].removesuffix(".tsv").replace("-", "==", 1) for engine in (Engine.VLLM, Engine.SGLANG)]


def main(arguments: list[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m plnt.sandbox.engine.read_flags", description=__doc__)
    parser.add_argument("wheel", nargs="*", help="such as vllm==0.33.0; none = those that the stub engine plays")
    parser.add_argument("--installed", choices=sorted(_PARSERS), help="read what this Python can import")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the table is written")
    asked = parser.parse_args(arguments)
    try:
        if not asked.installed:
            return max(map(read_anew, asked.wheel or list_requirements()))
        path = write_table(asked.installed, asked.folder)
    except (ImportError, WheelMissing) as error:
        print(f"{asked.installed or 'pip'}: {error}", file=sys.stderr)
        return 2
    print(f"{path}: {len(path.read_text().splitlines()) - 1} options; a new version is to be named in command_line.py")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
