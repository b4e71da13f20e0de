"""Model folders in the sandbox's S3 server, one a variant, made when first asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plnt.sandbox.model_files import ModelFolder
from plnt.sandbox.running import Sandbox
from plnt.sandbox.seed import seed_model

BUCKET = "plnt-models"
MIB = 1_048_576
FAST = {"ttftMs": 20, "tpotMs": 2, "loadSeconds": 0.2}
_SEEDS = {"good": 1, "slow": 2, "other": 3}


@dataclass
class Models:
    """Variants of a small model; each is another engine, since ``stub.json`` lies beside the weights."""

    sandbox: Sandbox
    made: set[str] = field(default_factory=set)

    async def uri(
        self, variant: str, megabytes: int = 2, quantization: Mapping[str, Any] | None = None, **stub: Any
    ) -> str:
        """Give the location of a variant; what it holds is fixed by the first call."""
        if variant not in self.made:
            await self._upload(variant, megabytes, stub, quantization)
            self.made.add(variant)
        return f"s3://{BUCKET}/e2e/{variant}"

    async def change(self, variant: str, megabytes: int = 2, **stub: Any) -> None:
        """Put another content under the variant's location."""
        await self._upload(variant, megabytes, stub)

    async def _upload(
        self, variant: str, megabytes: int, stub: dict[str, Any], quantization: Mapping[str, Any] | None = None
    ) -> None:
        seed = _SEEDS.get(variant, 9)
        model = ModelFolder(megabytes * MIB, 2, seed=seed, quantization=quantization, stub={**FAST, **stub})
        await seed_model(self.sandbox.site.s3, BUCKET, f"e2e/{variant}", model)
