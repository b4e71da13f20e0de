"""Helm through pyhelm3, with a command of our own that can be cancelled.

pyhelm3 runs helm under a shell that swallows its signals; here helm is a direct child in a session of its own.
helm never waits for pods and never undoes by itself: plnt reads the pods and keeps its own undo.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import semver
import yaml
from pydantic import ValidationError
from pyhelm3 import Client, Command, Error

from plnt.errors import (
    AccessDenied,
    ApiUnavailable,
    ChartInvalid,
    NameTaken,
    PlntError,
    ReleaseBusy,
)
from plnt.model.workflow_run import Runtime
from plnt.settings import SettingsInvalid

STORAGE = "HELM_DRIVER=configmap"
"""Values hold no secret, so releases are kept where no process needs to read Secrets."""
OPERATION_TIMEOUT = "60s"
"""helm's limit of one operation on the API server; nothing here waits for pods."""
STOP_SECONDS = 10.0
"""Time from SIGTERM to SIGKILL; helm needs 0.02 s to write down that it was cancelled."""
MAX_ERROR_CHARS = 600
FORBIDDEN_SECONDS, FORBIDDEN_PAUSE_SECONDS = 20.0, 1.0
"""How long a command without a role is repeated: an API server that starts refuses everybody for a moment."""

_UNSTOPPABLE = frozenset({"rollback", "uninstall"})
"""Commands that die at SIGTERM without a word and leave the release locked."""

_SURROGATES = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")

_REASONS: Sequence[tuple[type[PlntError], Sequence[str]]] = (
    (ReleaseBusy, ("another operation", "release: already exists", "cannot re-use a name", "context canceled")),
    (NameTaken, ("invalid ownership metadata", "exists and cannot be imported")),
    (
        ApiUnavailable,
        (
            "cluster unreachable",
            "connection refused",
            "connection reset",
            "etcdserver",
            "timed out",
            "timeout",
            "deadline exceeded",
            "unreachable",
            "no such host",
            "eof",
            "too many requests",
            "failed calling webhook",
            "object has been modified",
            "internal error",
            "service unavailable",
            "currently unable to handle",
        ),
    ),
    (AccessDenied, ("forbidden", "unauthorized", "must be logged in")),
    (
        ChartInvalid,
        (
            "specifications of the schema",
            "render",
            "execution error",
            "parse error",
            "is invalid",
            "not found",
            "chart",
            "admission webhook",
            "denied the request",
            "failed to create typed patch",
        ),
    ),
)
"""Texts of helm's errors in the order in which they are looked for; what is in none counts as passing."""


class _Cancellable(Command):  # type: ignore[misc]
    """Runs helm as a direct child; ``labels`` go on the release that is written."""

    def __init__(self, executable: str, version: semver.Version, labels: Mapping[str, str]) -> None:
        super().__init__(executable=executable, default_timeout=OPERATION_TIMEOUT)
        self._version = version
        self._labels = labels

    def client_version(self) -> semver.Version:
        """Give the version that was asked once; the original blocks the event loop at each client."""
        return self._version

    async def run(self, command: list[Any], input: bytes | None = None) -> bytes:  # noqa: A002
        """Run helm to its end, again where a server that has just started refuses it before it has read any role.

        Raises:
            Error: pyhelm3's error of helm's exit.
        """
        patience = time.monotonic() + FORBIDDEN_SECONDS
        while True:
            try:
                return await self._run_once(command, input)
            except Error as error:
                if not _lacks_role(error.stderr) or time.monotonic() > patience:
                    raise
            await asyncio.sleep(FORBIDDEN_PAUSE_SECONDS)

    async def _run_once(self, command: list[Any], text: bytes | None) -> bytes:
        """Run helm; on cancel stop it first, so that nothing is left at work."""
        arguments = [str(part) for part in command]
        if arguments[0] == "upgrade" and self._labels:
            arguments += ["--labels", ",".join(f"{key}={value}" for key, value in self._labels.items())]
        process = await asyncio.create_subprocess_exec(
            "env",
            STORAGE,
            self._executable,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL if text is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        talk = asyncio.create_task(process.communicate(None if text is None else join_surrogates(text)))
        try:
            stdout, stderr = await asyncio.shield(talk)
        except asyncio.CancelledError:
            await _outlast(asyncio.create_task(_end(process, talk, arguments[0])))
            raise
        if process.returncode != 0:
            raise Error(process.returncode, stdout, stderr)
        return stdout


class Helm:
    """The helm commands that plnt needs."""

    def __init__(self, executable: str, version: semver.Version) -> None:
        """Use ``executable``; see `open_helm`."""
        self._executable = executable
        self._version = version

    async def install(
        self, release: str, namespace: str, chart: Path, values: Mapping[str, Any], labels: Mapping[str, str]
    ) -> None:
        """Install the release, or upgrade it to exactly ``values``; does not wait for pods.

        Raises:
            ReleaseBusy: another helm is at work on it, or was killed at it.
            ChartInvalid: chart or values were refused.
            NameTaken: an object of that name belongs to something else.
        """
        client = self._client(labels)
        try:
            found = await client.get_chart(chart)
            await client.install_or_upgrade_release(
                release, found, dict(values), namespace=namespace, create_namespace=False, reset_values=True
            )
        except Error as error:
            raise explain_failure(f"helm install {namespace}/{release}", error.stderr) from error
        except (ValidationError, KeyError, ValueError) as error:
            raise ApiUnavailable(
                f"helm install {namespace}/{release}: the answer is not understood: {error}"
            ) from error

    async def check_values(self, chart: Path, values: Mapping[str, Any]) -> None:
        """Check values against the chart's schema, and that its templates take them.

        Raises:
            ChartInvalid: they do not fit. No cluster is asked, so what helm says is about them, whatever its words.
            ApiUnavailable: helm ended without a word.
        """
        command = ["template", "check", chart, "--values", "-"]
        try:
            await _Cancellable(self._executable, self._version, {}).run(command, json.dumps(values).encode())
        except Error as error:
            said = explain_failure(f"chart {chart.name}", error.stderr)
            raise (ChartInvalid(str(said)) if error.stderr.strip() else said) from error

    async def uninstall(self, release: str, namespace: str) -> None:
        """Uninstall the release if it is there; its pods may still be ending afterwards."""
        try:
            await self._client({}).uninstall_release(release, namespace=namespace)
        except Error as error:
            if b"release: not found" not in error.stderr:
                raise explain_failure(f"helm uninstall {namespace}/{release}", error.stderr) from error

    async def roll_back(self, release: str, namespace: str, version: int) -> None:
        """Go back to ``version``; the release is no longer locked then."""
        command = ["rollback", release, version, "--namespace", namespace, "--timeout", OPERATION_TIMEOUT]
        try:
            await _Cancellable(self._executable, self._version, {}).run(command)
        except Error as error:
            raise explain_failure(f"helm rollback {namespace}/{release} {version}", error.stderr) from error

    def _client(self, labels: Mapping[str, str]) -> Client:
        command = _Cancellable(self._executable, self._version, labels)
        return Client(command=command, executable=self._executable)


async def open_helm(executable: str = "helm") -> Helm:
    """Find helm and ask its version.

    Raises:
        SettingsInvalid: there is none, or its version cannot be read.
    """
    path = shutil.which(executable)
    if path is None:
        raise SettingsInvalid(f"{executable}: not found on PATH; the deploy pool needs Helm 4 (https://helm.sh)")
    process = await asyncio.create_subprocess_exec(
        path, "version", "--template", "{{ .Version }}", stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    try:
        return Helm(path, semver.Version.parse(said.decode().strip().removeprefix("v")))
    except ValueError as error:
        raise SettingsInvalid(f"{path}: {said!r} is no version; put a released helm on PATH") from error


def _lacks_role(stderr: bytes) -> bool:
    """Tell a refusal for want of a role from one by a quota or an admission webhook."""
    return b" is forbidden: User " in stderr and b" cannot " in stderr


def join_surrogates(text: bytes) -> bytes:
    """Replace JSON's escaped surrogate pairs by the characters they mean: helm reads values as YAML, which has none."""
    return _SURROGATES.sub(lambda pair: json.loads(b'"' + pair[0] + b'"').encode(), text)


def read_chart_versions(charts: Mapping[Runtime, Path]) -> dict[str, str]:
    """Give the version of each chart.

    Raises:
        ChartInvalid: a chart's Chart.yaml is missing or has no version.
    """
    versions: dict[str, str] = {}
    for runtime, folder in charts.items():
        try:
            versions[runtime.value] = str(yaml.safe_load((folder / "Chart.yaml").read_text())["version"])
        except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
            raise ChartInvalid(f"{folder}: no chart for runtime {runtime}: {error}") from error
    return versions


def explain_failure(doing: str, stderr: bytes) -> PlntError:
    """Turn what helm wrote to stderr into the plnt error that it means."""
    lines = stderr.decode(errors="replace").splitlines()
    said = " ".join(
        line.strip() for line in lines if line.strip() and not line.startswith(("level=", "WARNING:", "walk"))
    )
    said = said.removeprefix("Error: ")[:MAX_ERROR_CHARS] or "helm ended without a word"
    low = said.lower()
    kind = next((kind for kind, texts in _REASONS if any(text in low for text in texts)), ApiUnavailable)
    return kind(f"{doing}: {said}")


async def _end(process: asyncio.subprocess.Process, talk: asyncio.Task[tuple[bytes, bytes]], verb: str) -> None:
    """Let helm end by itself, or stop it: SIGTERM, then SIGKILL for its whole session."""
    if verb not in _UNSTOPPABLE and process.returncode is None:
        process.terminate()
        await asyncio.wait([talk], timeout=STOP_SECONDS)
        if not talk.done():
            os.killpg(process.pid, signal.SIGKILL)
    await asyncio.wait([talk])


async def _outlast(task: asyncio.Task[None]) -> None:
    """Wait for ``task`` even when cancelled again: a helm that is left behind would hold the release."""
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            continue
