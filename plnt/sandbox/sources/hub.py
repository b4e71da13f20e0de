"""A Hub on loopback: the part of the Hugging Face Hub's API that its own client needs to download a model.

A repository is a folder ``OWNER/REPO`` with ``repo.json`` (branches, visibility) and a folder per commit. Files that
the Hub would keep in its large-file store are answered by a redirect to a signed link that expires.
"""

import hashlib
import json
import secrets
import shutil
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aiohttp import web

TOKEN = "hf_sandbox"  # noqa: S105 - of a server on loopback
"""The token that opens private and gated repositories."""
LARGE = (".safetensors", ".bin", ".gguf")
LINK_SECONDS = 300.0


def write_repository(
    root: Path, name: str, files: Path, *, branch: str = "main", private: bool = False, gated: bool = False
) -> str:
    """Commit a folder to a repository's branch and give the commit."""
    digest = hashlib.sha1(usedforsecurity=False)
    for path in sorted(path for path in files.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(files)}:{_sha256(path)}\n".encode())
    commit, folder = digest.hexdigest(), root / name
    shutil.copytree(files, folder / commit, dirs_exist_ok=True)
    facts = _read_facts(folder) or {"branches": {}}
    facts["branches"][branch] = commit
    draft = folder / "repo.json.part"
    draft.write_text(json.dumps({**facts, "private": private, "gated": gated}))
    draft.replace(folder / "repo.json")
    return commit


def _read_facts(folder: Path) -> dict[str, Any]:
    path = folder / "repo.json"
    return dict(json.loads(path.read_text())) if path.is_file() else {}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _blob_id(path: Path) -> str:
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


class Hub:
    """The server. Its large files lie at another host, as the real ones do: ``localhost`` in place of 127.0.0.1."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._links: dict[str, tuple[Path, float]] = {}
        self._sums: dict[Path, str] = {}

    def make_app(self) -> web.Application:
        """Give the application."""
        app = web.Application()
        repo = "/{owner}/{repo}"
        app.router.add_get("/healthz", _answer_health)
        app.router.add_get(f"/api/models{repo}", self._describe)
        app.router.add_get(f"/api/models{repo}/revision/{{revision}}", self._describe)
        app.router.add_get(f"/api/models{repo}/tree/{{revision}}", self._list)
        app.router.add_get(f"/api/models{repo}/tree/{{revision}}/{{path:.+}}", self._list)
        app.router.add_get(f"{repo}/resolve/{{revision}}/{{path:.+}}", self._resolve)
        app.router.add_get("/store/{key}", self._serve)
        return app

    def expire_links(self) -> None:
        """Let every signed link expire now."""
        self._links.clear()

    def _find(self, request: web.Request) -> tuple[str, Path]:
        """Give commit and folder of what is asked for.

        Raises:
            web.HTTPException: it is not there, or not for this caller.
        """
        folder = self._root / request.match_info["owner"] / request.match_info["repo"]
        facts = _read_facts(folder)
        known = request.headers.get("Authorization") == f"Bearer {TOKEN}"
        if not facts or (facts["private"] and not known):
            raise _fault(web.HTTPUnauthorized, "RepoNotFound", "Repository not found")
        if facts["gated"] and not known and "resolve" in request.path:
            raise _fault(web.HTTPForbidden, "GatedRepo", "Access to this model is restricted")
        revision = request.match_info.get("revision", "main")
        commit = facts["branches"].get(revision, revision)
        if commit not in facts["branches"].values() and not (folder / commit).is_dir():
            raise _fault(web.HTTPNotFound, "RevisionNotFound", "Invalid rev id")
        return commit, folder / commit

    async def _describe(self, request: web.Request) -> web.Response:
        commit, folder = self._find(request)
        name = "/".join(request.match_info[key] for key in ("owner", "repo"))
        paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        return web.json_response(
            {
                "_id": commit[:24],
                "id": name,
                "modelId": name,
                "sha": commit,
                "private": False,
                "tags": [],
                "downloads": 0,
                "siblings": [{"rfilename": path} for path in paths],
            }
        )

    async def _list(self, request: web.Request) -> web.Response:
        _, folder = self._find(request)
        start = folder / request.match_info.get("path", "")
        if not start.is_dir():
            raise _fault(web.HTTPNotFound, "EntryNotFound", "Path does not exist")
        return web.json_response([self._entry(path, folder) for path in sorted(start.rglob("*"))])

    def _entry(self, path: Path, folder: Path) -> dict[str, Any]:
        name = path.relative_to(folder).as_posix()
        if path.is_dir():
            return {"type": "directory", "oid": "0" * 40, "size": 0, "path": name}
        size = path.stat().st_size
        if path.suffix not in LARGE:
            return {"type": "file", "oid": _blob_id(path), "size": size, "path": name}
        sha256 = self._sum(path)
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()
        return {
            "type": "file",
            "oid": hashlib.sha1(b"blob %d\0" % len(pointer) + pointer, usedforsecurity=False).hexdigest(),
            "size": size,
            "path": name,
            "lfs": {"oid": sha256, "size": size, "pointerSize": len(pointer)},
        }

    def _sum(self, path: Path) -> str:
        if path not in self._sums:
            self._sums[path] = _sha256(path)
        return self._sums[path]

    async def _resolve(self, request: web.Request) -> web.StreamResponse:
        commit, folder = self._find(request)
        path = folder / request.match_info["path"]
        if not path.is_file() or ".." in path.parts:
            raise _fault(web.HTTPNotFound, "EntryNotFound", "Entry not found")
        headers = {"X-Repo-Commit": commit}
        if path.suffix not in LARGE:
            return web.FileResponse(path, headers={**headers, "ETag": f'"{_blob_id(path)}"'})
        key = secrets.token_hex(16)
        self._links[key] = (path, time.monotonic() + LINK_SECONDS)
        headers |= {"X-Linked-Etag": f'"{self._sum(path)}"', "X-Linked-Size": str(path.stat().st_size)}
        host = request.host.replace("127.0.0.1", "localhost")
        location = f"http://{host}/store/{key}?name={quote(path.name)}"
        return web.Response(status=302, headers={**headers, "Location": location})

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        """Serve a signed link; like the real stores it refuses a second way of proving who asks."""
        if "Authorization" in request.headers:
            return web.Response(status=400, text="only one auth mechanism allowed")
        path, until = self._links.get(request.match_info["key"], (None, 0.0))
        if path is None or until < time.monotonic():
            return web.Response(status=403, text="request has expired")
        return web.FileResponse(path)


async def _answer_health(_: web.Request) -> web.Response:
    return web.Response(text="ok")


def _fault(kind: type[web.HTTPException], code: str, text: str) -> web.HTTPException:
    return kind(headers={"X-Error-Code": code, "X-Error-Message": text}, text=json.dumps({"error": text}))
