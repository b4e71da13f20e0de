"""Runs contestants, each in a process of its own, and sums up what they took."""

import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.weights.stages import Stage

SCRIPT = Path(__file__).parent / "contestants.py"
WITH_HASH = frozenset({"s5cmd", "rclone"})
"""Commands that are followed by a pass of SHA-256 and fsync, as their users have to; its time is theirs."""

USAGE = """
import json, resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
sys.stdout.buffer.write(done.stdout + b"\\n")
print(json.dumps({"rss": used.ru_maxrss / 1024, "cpu": used.ru_utime + used.ru_stime}))
sys.exit(done.returncode)
"""
"""Runs a command from a small process: a child's peak counts what its parent had when it was forked."""


@dataclass(frozen=True)
class Result:
    """One run."""

    seconds: float
    verified: float
    """Seconds with a pass of SHA-256 and fsync where the client itself makes none."""
    started: float
    """Seconds with the process's start."""
    cpu: float
    rss_mib: float
    digests: tuple[str, ...]


def measure(command: list[str], environ: Mapping[str, str]) -> tuple[str, dict[str, float]]:
    """Run a command; gives its last line, and its peak RSS in MiB and CPU seconds."""
    whole = [sys.executable, "-S", "-c", USAGE, *command]
    done = subprocess.run(whole, stdout=subprocess.PIPE, env=dict(environ), text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}")
    *said, usage = done.stdout.splitlines()
    lines = [line for line in said if line]
    return (lines[-1] if lines else ""), json.loads(usage)


def run_script(python: str, name: str, folder: Path, stage: Stage) -> Result:
    said, usage = measure([python, str(SCRIPT), name, str(folder), stage.uri], stage.environ)
    facts = json.loads(said)
    verified = facts.get("verified", facts["seconds"])
    return Result(facts["seconds"], verified, facts["started"], facts["cpu"], usage["rss"], tuple(facts["digests"]))


def run_command(name: str, command: list[str], folder: Path, stage: Stage) -> Result:
    """Run a client that does not hash."""
    began = time.monotonic()
    _, usage = measure(command, stage.environ)
    seconds = time.monotonic() - began
    after = run_script(sys.executable, "hash", folder, stage)
    if name not in WITH_HASH:
        return Result(seconds, seconds, seconds, usage["cpu"], usage["rss"], after.digests)
    together = seconds + after.seconds
    return Result(together, together, together, usage["cpu"] + after.cpu, usage["rss"], after.digests)


def write_command(name: str, commands: Mapping[str, str], folder: Path, stage: Stage) -> list[str]:
    if name == "skopeo":
        return [commands[name], "copy", "-q", "--src-tls-verify=false", f"docker://{stage.uri[6:]}", f"dir:{folder}"]
    endpoint = stage.environ["AWS_ENDPOINT_URL_S3"]
    if name == "s5cmd":
        words = ["--endpoint-url", endpoint, "--no-verify-ssl", "--log", "error", "cp", "-c", "5", "-p", "50"]
        return [commands[name], *words, f"{stage.uri}/*", f"{folder}/"]
    remote = f":s3,provider=Other,env_auth=true,endpoint='{endpoint}':{stage.uri[5:]}"
    words = ["--config", "", "--transfers", "4", "--multi-thread-streams", "4", "--multi-thread-cutoff", "64M"]
    return [commands[name], "copy", "--no-check-certificate", *words, remote, str(folder)]


def run(name: str, commands: Mapping[str, str], folder: Path, stage: Stage) -> Result:
    if name in {"s5cmd", "rclone", "skopeo"}:
        return run_command(name, write_command(name, commands, folder, stage), folder, stage)
    return run_script(sys.executable if name == "plnt" else commands["python"], name, folder, stage)


def compare(stage: Stage, names: list[str], rounds: int, commands: Mapping[str, str], work: Path) -> dict[str, Result]:
    """Run all in turn; gives the medians."""
    results: dict[str, list[Result]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            folder = work / f"{name}-{number}"
            folder.mkdir()
            last = run(name, commands, folder, stage)
            results[name].append(last)
            tell(f"{name}: {last.seconds:.2f} s, {last.cpu:.2f} CPU s, {last.rss_mib:.0f} MiB")
            shutil.rmtree(folder)
    check_same(results)
    return {name: take_median(runs) for name, runs in results.items()}


def check_same(results: Mapping[str, list[Result]]) -> None:
    wanted = set(results["plnt"][0].digests)
    for name, runs in results.items():
        if any(wanted - set(one.digests) for one in runs):
            sys.exit(f"{name} did not end with the same bytes as plnt")


def take_median(runs: list[Result]) -> Result:
    return Result(
        statistics.median(one.seconds for one in runs),
        statistics.median(one.verified for one in runs),
        statistics.median(one.started for one in runs),
        statistics.median(one.cpu for one in runs),
        max(one.rss_mib for one in runs),
        runs[0].digests,
    )


def render(medians: Mapping[str, Result], total: int) -> str:
    own = medians["plnt"]
    heads = ("MB/s", "s", "verified s", "with start", "CPU s/GiB", "peak MiB", "plnt is", "verified")
    lines = [f"{'':18}" + "".join(f"{head:>12}" for head in heads)]
    for name, one in medians.items():
        figures = [
            f"{total / one.seconds / 1e6:.0f}",
            f"{one.seconds:.2f}",
            f"{one.verified:.2f}",
            f"{one.started:.2f}",
            f"{one.cpu / total * (1 << 30):.2f}",
            f"{one.rss_mib:.0f}",
            f"{one.seconds / own.seconds:.2f}x",
            f"{one.verified / own.verified:.2f}x",
        ]
        lines.append(f"{name:18}" + "".join(f"{figure:>12}" for figure in figures))
    return "\n".join(lines)


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
