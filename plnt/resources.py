"""Where the CRD and the charts lie, in every kind of installation."""

from importlib.resources import files
from pathlib import Path

from plnt.model.workflow_run import Runtime


def crd_path() -> Path:
    """Give the path of the WorkflowRun CRD."""
    return Path(str(files("plnt") / "operators" / "crds" / "workflowrun.yaml"))


def chart_dir(runtime: Runtime, charts: Path | None = None) -> Path:
    """Give the folder of a runtime's chart, in ``charts`` or among those that came with plnt."""
    return (charts or Path(str(files("plnt") / "charts"))) / f"{runtime}-runtime"


def platform_chart() -> Path:
    """Give the folder of the chart that installs plnt itself."""
    return Path(str(files("plnt") / "operators" / "platform"))
