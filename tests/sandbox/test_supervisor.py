import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from plnt.sandbox import record
from plnt.sandbox.component import Component
from plnt.sandbox.state import State
from plnt.sandbox.supervisor import ComponentFailed, Supervisor
from plnt.sandbox.waiting import wait_until

SLEEPS = "import time; time.sleep(60)"


@pytest.fixture
def state(tmp_path: Path) -> State:
    state = State(tmp_path)
    state.clear()
    return state


def component(name: str, program: str, *, restarts: bool = False, ready: str = "") -> Component:
    return Component(name, (sys.executable, "-c", program), dict(os.environ), ready, restarts=restarts)


async def test_killed_pool_is_started_again(state: State) -> None:
    supervisor = Supervisor(state, [component("pool", SLEEPS, restarts=True)])
    supervisor.start()
    await supervisor.wait_ready(["pool"], 60)
    first = supervisor.pid("pool")
    supervisor.kill("pool")

    async def has_new_pid() -> bool:
        return supervisor.pid("pool") not in {None, first}

    await wait_until(has_new_pid, 60)
    assert record.read_entries(state.processes)[-1].restarts == 1
    await supervisor.stop_all()
    assert supervisor.pid("pool") is None


async def test_death_of_a_server_names_it_with_its_last_lines(state: State) -> None:
    supervisor = Supervisor(state, [component("etcd", "print('disk on fire', flush=True); raise SystemExit(3)")])
    supervisor.start()
    failure = await asyncio.wait_for(supervisor.wait_failed(), 60)
    assert "etcd ended with status 3" in failure.explain()
    assert "disk on fire" in failure.explain()
    assert "what to do" in failure.explain()
    await supervisor.stop_all()


async def test_server_that_never_answers_is_named(state: State) -> None:
    supervisor = Supervisor(state, [component("s3", SLEEPS, ready="tcp://127.0.0.1:1")])
    supervisor.start()
    with pytest.raises(ComponentFailed, match="s3 does not answer within 1 s"):
        await supervisor.wait_ready(["s3"], 1)
    await supervisor.stop_all()


async def test_stopped_component_stays_down_until_resumed_with_its_new_settings(state: State) -> None:
    program = "import os, time; print('rate', os.environ.get('RATE'), flush=True); time.sleep(60)"
    supervisor = Supervisor(state, [component("weights", program, restarts=True)])
    supervisor.start()
    await supervisor.wait_ready(["weights"], 60)
    await supervisor.stop("weights", signal.SIGKILL)
    assert supervisor.pid("weights") is None
    supervisor.resume("weights", {"RATE": "7"})

    async def said_so() -> bool:
        return "rate 7" in state.log_of("weights").read_text()

    await wait_until(said_so, 60)
    await supervisor.stop_all()


def test_killed_launcher_leaves_nothing_behind_after_down(state: State) -> None:
    launcher = f"""
import asyncio, os, sys
from pathlib import Path
from plnt.sandbox.component import Component
from plnt.sandbox.state import State
from plnt.sandbox.supervisor import Supervisor
child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(99)'], " \\
        "start_new_session=True)"
async def main():
    state = State(Path({str(state.root)!r}))
    supervisor = Supervisor(state, [Component("kubelet", (sys.executable, "-c", child), dict(os.environ), "")])
    supervisor.start()
    await supervisor.wait_ready(["kubelet"], 60)
    print("up", flush=True)
    await supervisor.wait_failed()
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", launcher], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.kill()
    assert "kubelet" in record.end_all(state.root, state.processes)
    assert record.find_marked(state.root) == []
    assert not state.processes.exists()


def test_recorded_pid_of_another_process_is_not_ended(state: State) -> None:
    with subprocess.Popen([sys.executable, "-c", SLEEPS]) as innocent:
        entry = record.describe_process("gpu", innocent.pid)
        book = record.Record(state.processes)
        book.put(record.Entry("gpu", innocent.pid, entry.started - 100))
        assert record.end_all(state.root, state.processes) == []
        assert psutil.Process(innocent.pid).is_running()
        innocent.kill()


def test_recorded_process_is_found_after_the_machines_clock_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", SLEEPS]) as lasting:
        entry = record.describe_process("gpu", lasting.pid)
        # What the kernel gives as the time of the boot is the time of day less the uptime.
        moved = psutil.boot_time() + 3600
        monkeypatch.setattr("psutil._pslinux.boot_time", lambda: moved)
        assert entry.find() is not None
        lasting.kill()
    assert entry.find() is None
