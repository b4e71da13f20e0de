"""What a wheel holds, built either way, and that the import names are plnt's alone."""

import subprocess
import sys
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"plnt", "workflows", "activities", "bridge"}


def _tracked(*folders: str) -> set[str]:
    listed = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, check=True, capture_output=True, text=True)
    return set(listed.stdout.split())


def _build(out: Path, *options: str) -> set[str]:
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), *options, str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    with zipfile.ZipFile(next(out.glob("*.whl"))) as wheel:
        return set(wheel.namelist())


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "options", [pytest.param(["--wheel"], id="from the tree"), pytest.param([], id="by way of the sdist")]
)
def test_wheel_holds_every_chart_and_crd_and_only_the_four_packages(tmp_path: Path, options: list[str]) -> None:
    held = _build(tmp_path, *options)
    charts = {f"plnt/{path}" for path in _tracked("charts")}
    crds = {f"plnt/operators/{path}" for path in _tracked("crds")}
    assert charts
    assert crds
    platform = {f"plnt/operators/platform/{path.removeprefix('deploy/plnt/')}" for path in _tracked("deploy/plnt")}
    assert platform
    assert charts | crds | platform <= held
    assert {name.split("/")[0] for name in held if ".dist-info/" not in name} == PACKAGES


def test_no_other_distribution_ships_an_import_name_of_plnt() -> None:
    # An install in place lists no modules, so plnt itself may be missing here.
    owners = packages_distributions()
    assert {name: set(owners.get(name, [])) - {"plnt"} for name in PACKAGES} == {key: set() for key in PACKAGES}


def test_changelog_has_a_heading_for_the_version() -> None:
    version = next(
        line.split('"')[1] for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("version")
    )
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()
