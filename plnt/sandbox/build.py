"""Builds the servers from the pinned Go module once, and finds them again.

The result is kept under the user's cache folder by a digest of the module and the flags, with the sums of its
files. Each binary appears by a rename when it is whole, so an interrupted build goes on where it stopped.
"""

import fcntl
import hashlib
import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from plnt.errors import PermanentError
from plnt.sandbox import toolchain
from plnt.sandbox.report import Reporter

KUBERNETES = "v1.37.2"
HELM = "v4.3.2"
ISTIO_CRDS = "crd-all.gen.yaml"
SUMS = "SHA256SUMS.json"
FLAGS = ("-trimpath", "-buildvcs=false")
_CRDS_IN_ISTIO = Path("manifests/charts/base/files") / ISTIO_CRDS
_TICK_SECONDS = 1.0
_TAIL_LINES = 15


class BuildFailed(PermanentError):
    """The Go compiler failed, or the module could not be downloaded."""


class ServersDamaged(PermanentError):
    """A given folder of servers is not complete."""


@dataclass(frozen=True, slots=True)
class Target:
    """One binary: its main package, and the variables that its linker sets.

    ``module`` is the subfolder of its Go module, for what wants other libraries than the rest; ``tags`` choose parts.
    """

    name: str
    package: str
    variables: Mapping[str, str]
    module: str = ""
    tags: str = ""

    @property
    def linker_flags(self) -> str:
        """Give the ``-ldflags`` text."""
        return " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in self.variables.items())])


def _kubernetes_version() -> dict[str, str]:
    major, minor, _ = KUBERNETES.removeprefix("v").split(".")
    facts = {"gitVersion": KUBERNETES, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return {f"{package}.{name}": value for package in packages for name, value in facts.items()}


_HELM_VERSION = {
    "helm.sh/helm/v4/internal/version.version": HELM,
    "helm.sh/helm/v4/internal/version.gitTreeState": "clean",
}
_IN_KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
TARGETS = (
    Target("etcd", "go.etcd.io/etcd/server/v3", {}),
    Target("helm", "helm.sh/helm/v4/cmd/helm", _HELM_VERSION),
    *(Target(name, f"k8s.io/kubernetes/cmd/{name}", _kubernetes_version()) for name in _IN_KUBERNETES),
    Target("pilot-discovery", "istio.io/istio/pilot/cmd/pilot-discovery", {}),
)
"""Without version variables the API server calls itself v0.0.0, which kubectl cannot parse, and helm v4.3, which
pyhelm3 refuses."""


@dataclass(frozen=True, slots=True)
class Servers:
    """A folder of server binaries, and Istio's CRDs."""

    folder: Path
    istio_crds: Path


@dataclass(frozen=True, slots=True)
class _Place:
    """Which of how many binaries is being built, and who is told."""

    number: int
    count: int
    reporter: Reporter

    def __str__(self) -> str:
        return f"[{self.number} of {self.count}]"


def module_dir() -> Path:
    """Give the folder of the pinned Go module."""
    return Path(str(files("plnt") / "sandbox" / "servers"))


def cache_dir(environ: Mapping[str, str]) -> Path:
    """Give plnt's folder in the user's cache."""
    root = environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "plnt"


def compute_digest(module: Path) -> str:
    """Compute the name under which a build of the module is kept."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum", "tools.go"):
        digest.update((module / name).read_bytes())
    digest.update(json.dumps([FLAGS, [[t.name, t.package, t.linker_flags] for t in TARGETS]]).encode())
    return digest.hexdigest()[:16]


def find_servers(environ: Mapping[str, str]) -> Servers | None:
    """Find the given or the cached servers; none when they have to be built.

    Raises:
        ServersDamaged: the folder in ``PLNT_SANDBOX_BIN`` lacks a file.
    """
    given = environ.get("PLNT_SANDBOX_BIN")
    if given:
        return _take_given(Path(given))
    home = cache_dir(environ) / "servers" / compute_digest(module_dir())
    return _servers_in(home) if verify_sums(home) else None


def provide_servers(environ: Mapping[str, str], reporter: Reporter) -> Servers:
    """Give the servers, building first what is missing.

    Raises:
        BuildFailed: Go could not build one; the message names it and the log.
        ServersDamaged: the folder in ``PLNT_SANDBOX_BIN`` lacks a file.
    """
    found = find_servers(environ)
    if found is not None:
        return found
    cache = cache_dir(environ)
    home = cache / "servers" / compute_digest(module_dir())
    (home / "bin").mkdir(parents=True, exist_ok=True)
    with locked(home / ".lock", reporter):
        if not verify_sums(home):
            _build_all(home, toolchain.provide_go(module_dir(), cache, environ, reporter.say), environ, reporter)
    return _servers_in(home)


def verify_sums(home: Path) -> bool:
    """Tell whether every file of a build is there with the sum that it was built with."""
    try:
        sums: dict[str, str] = json.loads((home / SUMS).read_text())
        with ThreadPoolExecutor() as pool:
            return list(pool.map(sum_file, [home / name for name in sums])) == list(sums.values())
    except (OSError, ValueError):
        return False


def _take_given(folder: Path) -> Servers:
    missing = [name for name in (*(target.name for target in TARGETS), ISTIO_CRDS) if not (folder / name).is_file()]
    if missing:
        raise ServersDamaged(f"PLNT_SANDBOX_BIN={folder} lacks {', '.join(missing)}; add them or unset the variable")
    return Servers(folder.absolute(), folder.absolute() / ISTIO_CRDS)


def _servers_in(home: Path) -> Servers:
    return Servers(home / "bin", home / ISTIO_CRDS)


def _build_all(home: Path, go: Path, environ: Mapping[str, str], reporter: Reporter) -> None:
    sums = build_missing(home, go, TARGETS, environ, reporter, "10 to 15 minutes")
    _copy_crds(home, go, environ)
    sums[ISTIO_CRDS] = sum_file(home / ISTIO_CRDS)
    write_sums(home / SUMS, sums)


def build_missing(
    home: Path, go: Path, targets: Sequence[Target], environ: Mapping[str, str], reporter: Reporter, expected: str
) -> dict[str, str]:
    """Build those of ``targets`` that are not there whole; gives the sums of all.

    Raises:
        BuildFailed: Go could not build one; the message names it and the log.
    """
    sums = _read_parts(home)
    missing = [target for target in targets if not _is_whole(home, f"bin/{target.name}", sums)]
    if missing:
        reporter.say(f"building {len(missing)} servers with {go}; the first time takes {expected} on 2 cores")
    for number, target in enumerate(missing, 1):
        _build(home, go, target, environ, _Place(number, len(missing), reporter))
        sums[f"bin/{target.name}"] = sum_file(home / "bin" / target.name)
        write_sums(home / "parts.json", sums)
    return sums


def _build(home: Path, go: Path, target: Target, environ: Mapping[str, str], place: _Place) -> None:
    draft, log = home / "bin" / f".{target.name}.part", home / f"{target.name}.log"
    tags = [f"-tags={target.tags}"] if target.tags else []
    flags = [*FLAGS, *tags, f"-ldflags={target.linker_flags}"]
    command = [str(go), "build", *flags, "-o", str(draft), target.package]
    began = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=module_dir() / target.module, env=toolchain.environment(environ), stdout=out, stderr=out
        )
        try:
            while not _ended(process):
                place.reporter.tick(f"{place} {target.name}: {time.monotonic() - began:.0f} s")
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    if process.returncode:
        tail = " | ".join(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
        raise BuildFailed(f"go could not build {target.name} (log {log}); run the command again to go on: {tail}")
    draft.replace(home / "bin" / target.name)
    place.reporter.say(f"{place} {target.name}: built in {time.monotonic() - began:.0f} s")


def _ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_TICK_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _copy_crds(home: Path, go: Path, environ: Mapping[str, str]) -> None:
    command = [str(go), "list", "-m", "-f", "{{.Dir}}", "istio.io/istio"]
    done = subprocess.run(
        command, cwd=module_dir(), env=toolchain.environment(environ), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BuildFailed(f"go could not find Istio's CRDs: {done.stderr}")
    draft = home / f".{ISTIO_CRDS}.part"
    shutil.copyfile(Path(done.stdout.strip()) / _CRDS_IN_ISTIO, draft)
    draft.replace(home / ISTIO_CRDS)


def _read_parts(home: Path) -> dict[str, str]:
    try:
        return dict(json.loads((home / "parts.json").read_text()))
    except (OSError, ValueError):
        return {}


def _is_whole(home: Path, name: str, sums: Mapping[str, str]) -> bool:
    path = home / name
    return path.is_file() and sums.get(name) == sum_file(path)


def sum_file(path: Path) -> str:
    """Give the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_sums(path: Path, sums: Mapping[str, str]) -> None:
    """Write sums of files, whole or not at all."""
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(sums, indent=2) + "\n")
    draft.replace(path)


@contextmanager
def locked(path: Path, reporter: Reporter) -> Iterator[None]:
    """Let one build at a time work in a folder."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            reporter.say("another build is under way; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
