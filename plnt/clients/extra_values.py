"""Reads extra chart values from a ConfigMap's text."""

from typing import Any

import yaml

from plnt.errors import SpecInvalid
from plnt.model.extra_values import KEY, digest_values, find_value_faults
from plnt.model.options import VALUES_FROM

MAX_CHARS = 65_536
"""Longest text that is read: values are arguments and variables, not data."""


def read_values(config_map: dict[str, Any] | None, namespace: str, name: str) -> dict[str, Any]:
    """Give the values that a ConfigMap holds.

    Raises:
        SpecInvalid: there is no such ConfigMap, or what it holds is not the user's to set.
    """
    where = f"annotation {VALUES_FROM}: ConfigMap {namespace}/{name}"
    if config_map is None:
        raise SpecInvalid(f"{where} does not exist: create it, or remove the annotation")
    text = (config_map.get("data") or {}).get(KEY)
    if text is None or len(text) > MAX_CHARS:
        size = "holds no" if text is None else f"holds more than {MAX_CHARS} characters under"
        raise SpecInvalid(f"{where} {size} key {KEY}: put chart values there, as YAML")
    values = _parse(text, where)
    faults = list(find_value_faults(values))
    if faults:
        raise SpecInvalid(f"{where}: {'; '.join(faults)}")
    return values


def _parse(text: str, where: str) -> dict[str, Any]:
    try:
        # Aliases multiply: a few hundred characters may stand for gigabytes.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            raise SpecInvalid(f"{where}: {KEY} holds an alias (*name): write the value out")
        values = yaml.safe_load(text)
        digest_values(values if isinstance(values, dict) else {})
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        raise SpecInvalid(f"{where}: {KEY} is no YAML of plain values: {error}") from error
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise SpecInvalid(f"{where}: {KEY} is no map of chart values")
    return values
