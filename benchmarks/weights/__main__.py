"""Compare plnt's pull with other clients: ``python -m benchmarks.weights [--parts s3,gs] [--size-mib 2048]``.

Everybody pulls one model of four shards and sixteen small files from one server on this machine, in turn, so that only
the ratios mean something elsewhere. Figures are medians of the rounds. plnt's hold resolving, SHA-256 of every byte and
the data on the volume; on S3 the peers' hold one pass of SHA-256 in two threads and fsync too, elsewhere nothing beside
what they do themselves.
"""

import argparse
import asyncio
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.weights import peers, stages
from benchmarks.weights.capped import capped_proxy
from benchmarks.weights.measure import SCRIPT, compare, render, run_script, tell
from benchmarks.weights.stages import Stage
from plnt.sandbox.report import Reporter
from plnt.sandbox.sources.servers import provide_source_servers

S3_PEERS = ("s5cmd", "rclone", "obstore", "aioboto3")


@dataclass(frozen=True)
class Bench:
    """What all parts share."""

    work: Path
    commands: Mapping[str, str]
    rounds: int
    size_mib: int
    cap_mb: float
    sparse_gib: int

    def pick(self, *names: str) -> list[str]:
        """Give the contestants that are there, plnt first."""
        there = {*self.commands, "obstore", "aioboto3", "gcsfs", "oras-py", "snapshot_download"}
        return ["plnt", *(name for name in names if name in there)]

    @asynccontextmanager
    async def serve(self, name: str) -> AsyncIterator[Stage]:
        """Serve the model from a server of its own, which is gone afterwards."""
        folder = self.work / name
        model = folder / "model"
        total = await asyncio.to_thread(stages.write_bench_model, model, self.size_mib)
        async with self._open(name, folder, model, total) as stage:
            await asyncio.to_thread(shutil.rmtree, model)
            # What the server still writes would take the volume from whoever is first.
            await asyncio.to_thread(os.sync)
            yield stage
        await asyncio.to_thread(shutil.rmtree, folder)

    def _open(self, name: str, folder: Path, model: Path, total: int) -> AbstractAsyncContextManager[Stage]:
        if name.startswith("s3"):
            return stages.s3_stage(folder, model, total, tls=name == "s3-tls")
        return {"gs": stages.gs_stage, "oci": stages.oci_stage, "hf": stages.hf_stage}[name](folder, model, total)

    async def compare(self, stage: Stage, *names: str) -> str:
        medians = await asyncio.to_thread(compare, stage, self.pick(*names), self.rounds, self.commands, self.work)
        return render(medians, stage.total)


async def compare_s3(bench: Bench) -> str:
    async with bench.serve("s3") as stage:
        return await bench.compare(stage, *S3_PEERS)


async def compare_s3_tls(bench: Bench) -> str:
    async with bench.serve("s3-tls") as stage:
        return await bench.compare(stage, *S3_PEERS)


async def compare_s3_capped(bench: Bench) -> str:
    async with bench.serve("s3") as stage:
        with capped_proxy(stage.port) as proxy:
            through = stage.through(proxy.port)
            free = await asyncio.to_thread(compare, through, ["plnt"], bench.rounds, bench.commands, bench.work)
        with capped_proxy(stage.port, bench.cap_mb * 1e6) as proxy:
            table = await bench.compare(stage.through(proxy.port), "s5cmd", "rclone")
    return f"{table}\nthrough the same proxy without a cap plnt takes {free['plnt'].seconds:.2f} s"


async def compare_gs(bench: Bench) -> str:
    async with bench.serve("gs") as stage:
        return await bench.compare(stage, "gcsfs")


async def compare_oci(bench: Bench) -> str:
    async with bench.serve("oci") as stage:
        return await bench.compare(stage, "oras-py", "skopeo")


async def compare_hf(bench: Bench) -> str:
    async with bench.serve("hf") as stage:
        return await bench.compare(stage, "snapshot_download")


async def measure_again(bench: Bench) -> str:
    """Kill pulls at half and go on; pull once more what is there."""
    async with bench.serve("s3") as stage:
        with capped_proxy(stage.port) as proxy:
            through = stage.through(proxy.port)
            shares = []
            for number in range(bench.rounds):
                folder = bench.work / f"again-{number}"
                before = proxy.served
                await kill_at_half(through, folder)
                await asyncio.to_thread(run_script, sys.executable, "plnt", folder, through)
                shares.append((proxy.served - before - stage.total) / stage.total)
                tell(f"fetched again: {shares[-1]:.2%}")
                before = proxy.served
                cached = await asyncio.to_thread(run_script, sys.executable, "plnt", folder, through)
                listed = proxy.served - before
                await asyncio.to_thread(shutil.rmtree, folder)
    return (
        f"fetched again after a kill at half: {statistics.median(shares):.2%} of the bytes (worst {max(shares):.2%})\n"
        f"pull of a cached tree: {cached.seconds:.2f} s, {cached.started:.2f} s with the process's start; resolving "
        f"took {listed} bytes, the pull none"
    )


async def kill_at_half(stage: Stage, folder: Path) -> None:
    command = [sys.executable, str(SCRIPT), "plnt", str(folder), stage.uri]
    environ = {**stage.environ, "WATCH": "1"}
    child = await asyncio.create_subprocess_exec(*command, env=environ, stdout=asyncio.subprocess.PIPE)
    assert child.stdout is not None
    while int(await child.stdout.readline()) < stage.total // 2:
        continue
    child.kill()
    await child.wait()


async def measure_memory(bench: Bench) -> str:
    """Pull a model far larger than memory's bound, whose weights are holes at the server."""
    model = bench.work / "sparse"
    total = await asyncio.to_thread(stages.write_sparse_model, model, bench.sparse_gib)
    async with stages.hf_stage(bench.work / "hf-sparse", model, total) as stage:
        folder = bench.work / "sparse-pulled"
        one = await asyncio.to_thread(run_script, sys.executable, "plnt", folder, stage)
        await asyncio.to_thread(shutil.rmtree, folder)
    await asyncio.to_thread(shutil.rmtree, model)
    return f"hf, {bench.sparse_gib} GiB: peak {one.rss_mib:.0f} MiB, {one.seconds:.1f} s, {one.cpu:.1f} CPU s"


PARTS: dict[str, Callable[[Bench], Awaitable[str]]] = {
    "s3": compare_s3,
    "s3-tls": compare_s3_tls,
    "s3-capped": compare_s3_capped,
    "gs": compare_gs,
    "oci": compare_oci,
    "hf": compare_hf,
    "again": measure_again,
    "memory": measure_memory,
}


def provide() -> dict[str, str]:
    """Build the servers and install the peers where they are missing; gives the peers' commands."""
    with Reporter(sys.stderr) as reporter:
        provide_source_servers(os.environ, reporter)
    return peers.install()


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.weights", description=__doc__)
    parser.add_argument("--parts", default=",".join(PARTS), help="default: %(default)s")
    parser.add_argument("--size-mib", type=int, default=2048, help="size of the model (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each contestant (%(default)s)")
    parser.add_argument("--cap-mb", type=float, default=90, help="MB/s of each connection in s3-capped (%(default)s)")
    parser.add_argument("--sparse-gib", type=int, default=20, help="size of the model in memory (%(default)s)")
    parser.add_argument("--folder", type=Path, help="where servers and pulls keep their files (the system's for such)")
    options = parser.parse_args()
    commands = await asyncio.to_thread(provide)
    with tempfile.TemporaryDirectory(prefix="plnt-bench-", dir=options.folder) as name:
        bench = Bench(Path(name), commands, options.rounds, options.size_mib, options.cap_mb, options.sparse_gib)
        for part in options.parts.split(","):
            print(f"\n{part}\n{await PARTS[part](bench)}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
