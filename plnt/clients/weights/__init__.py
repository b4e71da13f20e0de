"""The weights of a model: sources, the mover of bytes, and the content-addressed cache."""
