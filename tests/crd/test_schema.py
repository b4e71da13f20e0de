"""The CRD says what the models say, and the examples fit both."""

from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from plnt.model import names
from plnt.model.status import ConditionStatus, Phase
from plnt.model.workflow_run import Runtime, Spec

ROOT = Path(__file__).parents[2]
CRD: dict[str, Any] = yaml.safe_load((ROOT / "plnt/operators/crds/workflowrun.yaml").read_text())
VERSION: dict[str, Any] = CRD["spec"]["versions"][0]
SCHEMA: dict[str, Any] = VERSION["schema"]["openAPIV3Schema"]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))

KEPT = ("type", "enum", "minimum", "maximum")


def flatten(schema: dict[str, Any], defs: dict[str, Any], path: str = "spec") -> dict[str, dict[str, Any]]:
    """Give each field's bounds, default and whether it is required, by dotted path."""
    found: dict[str, dict[str, Any]] = {}
    for name, raw in schema.get("properties", {}).items():
        field = resolve(raw, defs)
        facts = {key: field[key] for key in KEPT if key in field}
        if "properties" not in field and field.get("default") is not None:
            facts["default"] = field["default"]
        facts["required"] = name in schema.get("required", [])
        found[f"{path}.{name}"] = facts
        found |= flatten(field, defs, f"{path}.{name}")
    return found


def resolve(field: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    """Follow a reference and drop the null of an optional field."""
    if "anyOf" in field:
        field = {**field, **next(part for part in field["anyOf"] if part.get("type") != "null")}
    if "$ref" in field:
        field = {**defs[field["$ref"].rpartition("/")[2]], **field}
    return field


def every_field(schema: dict[str, Any], path: str) -> list[tuple[str, dict[str, Any]]]:
    """Give every field below ``schema``, list items included."""
    found = [
        pair
        for name, field in schema.get("properties", {}).items()
        for pair in [(f"{path}.{name}", field), *every_field(field, f"{path}.{name}")]
    ]
    return found + (every_field(schema["items"], f"{path}[]") if "items" in schema else [])


FIELDS = [pair for part in ("spec", "status") for pair in every_field(SCHEMA["properties"][part], part)]


def test_spec_schema_equals_the_models() -> None:
    model = Spec.model_json_schema(by_alias=True)
    assert flatten(SCHEMA["properties"]["spec"], {}) == flatten(model, model["$defs"])


def test_defaults_of_parents_equal_the_models() -> None:
    properties = SCHEMA["properties"]["spec"]["properties"]
    spec = Spec.model_validate(yaml.safe_load(EXAMPLES[0].read_text())["spec"] | {"replicas": {}, "canary": {}})
    assert properties["replicas"]["default"] == spec.replicas.model_dump(exclude_none=True)
    assert properties["canary"]["default"] == spec.canary.model_dump(exclude_none=True)
    assert properties["canary"]["properties"]["smokeTest"]["default"] == spec.canary.smoke_test.model_dump(
        exclude_none=True
    )


def test_status_phases_and_condition_values_are_those_that_are_written() -> None:
    status = SCHEMA["properties"]["status"]["properties"]
    assert status["phase"]["enum"] == list(Phase)
    assert status["conditions"]["items"]["properties"]["status"]["enum"] == list(ConditionStatus)
    assert status["conditions"]["x-kubernetes-list-map-keys"] == ["type"]


def test_names_are_those_that_clients_use() -> None:
    assert CRD["metadata"]["name"] == f"{names.PLURAL}.{names.GROUP}"
    assert (CRD["spec"]["group"], VERSION["name"]) == (names.GROUP, names.VERSION)
    assert (CRD["spec"]["names"]["kind"], CRD["spec"]["names"]["plural"]) == (names.KIND, names.PLURAL)


def test_columns_are_the_documented_ones() -> None:
    columns = [column["name"].upper() for column in VERSION["additionalPrinterColumns"]]
    assert columns == ["RUNTIME", "GPU", "PHASE", "ENDPOINT", "AGE"]


@pytest.mark.parametrize(("path", "field"), FIELDS, ids=[path for path, _ in FIELDS])
def test_field_is_described_and_bounded(path: str, field: dict[str, Any]) -> None:
    assert field.get("description"), "kubectl explain shows nothing"
    bound = {"string": "maxLength", "array": "maxItems", "integer": "minimum"}.get(field["type"])
    assert bound is None or bound in field


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_fits_the_schema(path: Path) -> None:
    (manifest,) = (one for one in yaml.safe_load_all(path.read_text()) if one["kind"] == names.KIND)
    jsonschema.Draft202012Validator(SCHEMA).validate(manifest)
    Spec.model_validate(manifest["spec"])


def test_examples_hold_every_runtime() -> None:
    shown = {
        one["spec"]["runtime"] for path in EXAMPLES for one in yaml.safe_load_all(path.read_text()) if "spec" in one
    }
    assert shown == set(Runtime)
