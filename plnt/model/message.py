"""The base of every model that crosses a process boundary."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Message(BaseModel):
    """Frozen; unknown fields are dropped, so that an older worker reads a newer sender."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Manifest(BaseModel):
    """A part of a Kubernetes manifest: camelCase outside, snake_case inside, unknown fields refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, serialize_by_alias=True
    )
