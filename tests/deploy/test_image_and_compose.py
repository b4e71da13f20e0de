"""The image and the compose file, as far as they can be checked without an engine that runs containers."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from compose_spec import PyCompose

from plnt.sandbox.product import PRODUCT
from tests.deploy.compose import ROOT, VariableMissing, load_compose, read_dotenv

FILLED = {
    "POSTGRES_PASSWORD": "long",
    "PLNT_KUBECONFIG": "/etc/kubeconfig",
    "PLNT_CACHE_VOLUME": '{"nfs": {"server": "10.0.0.5", "path": "/export/weights"}}',
    "PLNT_WEIGHTS_NFS_OPTIONS": "addr=10.0.0.5,rw",
    "PLNT_WEIGHTS_NFS_DEVICE": ":/export/weights",
}
EXAMPLE = (ROOT / ".env.example").read_text()
DOCKERFILE = ROOT / "deploy" / "Dockerfile"


def test_dockerfile_passes_hadolint() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([str(hadolint), str(DOCKERFILE)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_build_context_holds_what_the_dockerfile_copies() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [word for line in DOCKERFILE.read_text().splitlines() if re.match(r"COPY (?!--from)", line)
              for word in line.split()[1:-1]]  # fmt: skip
    assert copied
    for word in copied:
        assert (ROOT / word).exists(), word
        assert any(word == path or word.startswith(f"{path}/") for path in kept), word


def test_compose_file_is_what_the_specification_says() -> None:
    parsed = PyCompose.from_json(json.dumps(load_compose(FILLED)))
    assert {*PRODUCT, "register", "temporal", "temporal-ui", "postgresql"} <= set(parsed.service_names())


def test_compose_file_names_each_variable_that_must_be_set() -> None:
    for name in FILLED:
        with pytest.raises(VariableMissing, match=name):
            load_compose({key: value for key, value in FILLED.items() if key != name})


def test_example_environment_lists_every_variable_of_the_compose_file_and_no_other() -> None:
    used = set(re.findall(r"(?<!\$)\$\{(\w+)", (ROOT / "docker-compose.yaml").read_text()))
    listed = set(re.findall(r"^#?([A-Z][A-Z0-9_]+)=", EXAMPLE, re.MULTILINE))
    assert listed == used
    assert set(read_dotenv(EXAMPLE)) >= set(FILLED)


def test_every_lasting_service_is_restarted_watched_and_waits_for_what_it_needs() -> None:
    services: dict[str, Any] = load_compose(FILLED)["services"]
    for name, service in services.items():
        assert service["restart"] in {"unless-stopped", "on-failure"}, name
        if service["restart"] == "unless-stopped" and name != "temporal-ui":
            assert service["healthcheck"]["test"], name
    for name in PRODUCT:
        assert services[name]["depends_on"] == {"register": {"condition": "service_completed_successfully"}}
