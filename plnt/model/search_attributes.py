"""The search attributes by which runs are found in Temporal, and the type of each."""

SEARCH_ATTRIBUTES = {
    "PlntPhase": "Keyword",
    "PlntNamespace": "Keyword",
    "PlntModel": "Keyword",
    "PlntRuntime": "Keyword",
    "PlntGpuClass": "Keyword",
    "PlntGeneration": "Int",
}
"""Types as the Temporal CLI spells them."""
