"""The ConfigMap with extra chart values: checked in Validating, read again and compared when they are used."""

from pathlib import Path
from typing import Any

from plnt.clients.extra_values import read_values
from plnt.clients.helm import Helm
from plnt.clients.kube import CONFIG_MAPS, Kube
from plnt.errors import ChartInvalid, SpecInvalid
from plnt.model.extra_values import describe_values, digest_values
from plnt.model.messages import ExtraValues, InstallRelease
from plnt.model.options import VALUES_FROM

CHECKED_NAME = "model"
"""Stands for the model's name while extra values are checked; they cannot change it."""


async def check_values(kube: Kube, helm: Helm, chart: Path, namespace: str, name: str) -> ExtraValues:
    """Read and check the values; what is wrong with them is part of the answer, so that it is told with the rest."""
    try:
        values = read_values(await kube.find(CONFIG_MAPS, namespace, name), namespace, name)
        await helm.check_values(chart, {**values, "model": {"name": CHECKED_NAME}})
    except SpecInvalid as error:
        return ExtraValues(name=name, fault=str(error))
    except ChartInvalid as error:
        return ExtraValues(name=name, fault=f"annotation {VALUES_FROM}: ConfigMap {namespace}/{name}: {error}")
    return describe_values(name, values)


async def fetch_values(kube: Kube, request: InstallRelease) -> dict[str, Any]:
    """Give the values that were checked.

    Raises:
        SpecInvalid: the ConfigMap holds others by now.
    """
    namespace, name = request.ref.namespace, request.options.values_from
    if not name:
        return {}
    values = read_values(await kube.find(CONFIG_MAPS, namespace, name), namespace, name)
    if digest_values(values) != request.values_digest:
        raise SpecInvalid(
            f"annotation {VALUES_FROM}: ConfigMap {namespace}/{name} was changed after it was checked:"
            " run the rollout again to take the new values"
        )
    return values
