"""Compare plnt's pull with other clients: ``python -m benchmarks.weights [--mib 2048] [--rounds 5]``.

All pull one model of four shards and sixteen small files from one SeaweedFS on this machine, in turn, so that only the
ratios mean something elsewhere. The figure of a contestant is the median of its rounds. Peers that do not hash are
followed by one SHA-256 pass in two threads and fsync, whose time and CPU are added.
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.weights import peers
from plnt.sandbox.model_files import ModelFolder, write_model
from tests.fakes.object_store import ObjectStore, counting_proxy, running_object_store

BUCKET, PREFIX = "models", "bench"
URI = f"s3://{BUCKET}/{PREFIX}"
SMALL_FILES = 16
CONTESTANTS = Path(__file__).parent / "contestants.py"


@dataclass(frozen=True)
class Result:
    """One run."""

    seconds: float
    cpu: float
    rss_mib: float
    digests: Mapping[str, str]


MEASURE = """
import json, resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
sys.stdout.buffer.write(done.stdout + b"\\n")
print(json.dumps({"rss": used.ru_maxrss / 1024, "cpu": used.ru_utime + used.ru_stime}))
sys.exit(done.returncode)
"""
"""Runs a command from a small process: a child's peak counts what its parent had when it was forked."""


def measure(command: list[str], environ: Mapping[str, str]) -> tuple[str, dict[str, float]]:
    """Run a command; gives its last line, and its peak RSS in MiB and CPU seconds."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", MEASURE, *command],
        stdout=subprocess.PIPE,
        env=dict(environ),
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}")
    *said, usage = done.stdout.splitlines()
    lines = [line for line in said if line]
    return (lines[-1] if lines else ""), json.loads(usage)


def run_script(python: str, name: str, folder: Path, environ: Mapping[str, str]) -> Result:
    said, usage = measure([python, str(CONTESTANTS), name, str(folder), URI], environ)
    facts = json.loads(said)
    return Result(facts["seconds"], facts["cpu"], usage["rss"], facts["digests"])


def run_command(command: list[str], folder: Path, environ: Mapping[str, str]) -> Result:
    """Run a client that does not hash, then hash."""
    began = time.monotonic()
    _, usage = measure(command, environ)
    seconds = time.monotonic() - began
    after = run_script(sys.executable, "hash", folder, environ)
    return Result(seconds + after.seconds, usage["cpu"] + after.cpu, usage["rss"], after.digests)


def run(name: str, commands: Path, folder: Path, environ: Mapping[str, str]) -> Result:
    endpoint = environ["AWS_ENDPOINT_URL_S3"]
    if name == "s5cmd":
        command = [
            str(commands / name),
            "--endpoint-url",
            endpoint,
            "cp",
            "-c",
            "5",
            "-p",
            "50",
            f"{URI}/*",
            f"{folder}/",
        ]
        return run_command(command, folder, environ)
    if name == "rclone":
        remote = f":s3,provider=Other,env_auth=true,endpoint='{endpoint}':{BUCKET}/{PREFIX}"
        flags = ["--config", "", "--transfers", "4", "--multi-thread-streams", "4", "--multi-thread-cutoff", "64M"]
        return run_command([str(commands / name), "copy", *flags, remote, str(folder)], folder, environ)
    python = sys.executable if name == "plnt" else str(commands / "python")
    return run_script(python, name, folder, environ)


def compare(
    names: list[str], rounds: int, commands: Path, environ: Mapping[str, str], work: Path
) -> dict[str, list[Result]]:
    results: dict[str, list[Result]] = {name: [] for name in names}
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            folder = work / f"{name}-{number}"
            folder.mkdir()
            results[name].append(run(name, commands, folder, environ))
            last = results[name][-1]
            print(
                f"{name}: {last.seconds:.2f} s, {last.cpu:.2f} CPU s, {last.rss_mib:.0f} MiB",
                file=sys.stderr,
                flush=True,
            )
            shutil.rmtree(folder)
    return results


async def measure_resume(store: ObjectStore, environ: Mapping[str, str], folder: Path, total: int) -> float:
    """Kill a pull at half, pull again; gives what was sent twice as a share of the model."""
    async with counting_proxy(store) as proxy:
        through = {**environ, "AWS_ENDPOINT_URL_S3": proxy.endpoint, "WATCH": "1"}
        command = [sys.executable, str(CONTESTANTS), "plnt", str(folder), URI]
        child = await asyncio.create_subprocess_exec(*command, env=through, stdout=asyncio.subprocess.PIPE)
        assert child.stdout is not None
        while int(await child.stdout.readline()) < total // 2:
            continue
        child.kill()
        await child.wait()
        again = await asyncio.create_subprocess_exec(*command, env=through, stdout=asyncio.subprocess.DEVNULL)
        assert await again.wait() == 0
        return (proxy.served - total) / total


def report(results: Mapping[str, list[Result]], total: int) -> dict[str, dict[str, float]]:
    table = {}
    for name, runs in results.items():
        seconds = statistics.median(one.seconds for one in runs)
        table[name] = {
            "MB/s": round(total / seconds / 1e6),
            "seconds": round(seconds, 2),
            "cpu s/GiB": round(statistics.median(one.cpu for one in runs) / total * (1 << 30), 2),
            "peak RSS MiB": round(max(one.rss_mib for one in runs)),
        }
    for line in table.values():
        line["ratio to plnt"] = round(line["MB/s"] / table["plnt"]["MB/s"], 2)
    return table


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.weights", description=__doc__)
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    commands = await asyncio.to_thread(peers.install)
    names = ["plnt", "s5cmd", "rclone", "obstore", "aioboto3"]
    names = [name for name in names if name in (options.only or ",".join(names)).split(",")]
    names = [name for name in names if name != "s5cmd" or (commands / name).exists()]
    with tempfile.TemporaryDirectory(prefix="plnt-bench-") as name:
        work = Path(name)
        (work / "s3").mkdir()
        await asyncio.to_thread(write_model, work / "model", ModelFolder(total_bytes=options.mib << 20, shards=4))
        for number in range(SMALL_FILES):
            (work / "model" / f"extra-{number:02}.json").write_text(json.dumps({"filler": "x" * 30_000}))
        total = sum(path.stat().st_size for path in (work / "model").iterdir())
        async with running_object_store(work / "s3") as store:
            await store.seed(BUCKET, PREFIX, work / "model")
            await asyncio.to_thread(shutil.rmtree, work / "model")
            environ = {**os.environ, **store.environ(), "PYTHONPATH": str(Path.cwd())}
            results = await asyncio.to_thread(compare, names, options.rounds, commands, environ, work)
            check_same(results)
            print(json.dumps(report(results, total), indent=1))
            kept = work / "kept"
            refetched = await measure_resume(store, environ, kept, total)
            cached = await asyncio.to_thread(run_script, sys.executable, "plnt", kept, environ)
            print(
                json.dumps(
                    {"refetched after kill at half": round(refetched, 4), "cached pull s": round(cached.seconds, 2)}
                )
            )


def check_same(results: Mapping[str, list[Result]]) -> None:
    for name, runs in results.items():
        if any(dict(one.digests) != dict(results["plnt"][0].digests) for one in runs):
            sys.exit(f"{name} did not end with the same bytes as plnt")


if __name__ == "__main__":
    asyncio.run(main())
